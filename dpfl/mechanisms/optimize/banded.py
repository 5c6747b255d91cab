"""Banded matrix factorisation (BandMF): the banded strategy of least loss.

With `X = C^T C` the squared error of round t is `e_t = (A X^-1 A^T)_tt`: convex in X. X has as many
bands as C, and the columns of C have norm 1 where X has a unit diagonal; a pattern then meets only
orthogonal columns while the bands are at most the minimum separation, so the squared sensitivity
is the number of participations, whatever X is. BandMF (document 002, section 2.3) is the minimum
of the sum of e over banded positive definite X with unit diagonal.

Newton's method finds it, each step by preconditioned conjugate gradients. With Z = X^-1 and
G = Z A^T A Z, projected on the bands,

    gradient = -G,     Hessian of V = Z V G + G V Z.

At the optimum G is diagonal but for entries outside the bands, and X is nearly diagonal in a sine
basis, so the Hessian is nearly inverted by two fast sine transforms. The start comes from the
optimum for half the rounds and bands, and so on down: strategies of different size are close to
one function of (round / n, lag / b) once each diagonal is divided by the coefficient of
(1 - x)^(-1/2), the optimal Toeplitz factor without bands. For workloads other than the prefix sums
the diagonal of G varies more: an eigendecomposition inverts the Hessian better, and the start is
the optimum without bands, tapered.

The largest e is minimised as a weighted power mean of them, `(mean of w_t e_t^p)^(1/p)` with a
moderate p, whose weights are then multiplied by `e_t^(p - 1)`: at the fixed point e is the same
wherever the weight is not zero, and X is optimal for a weighted sum of e, so no X has a smaller
largest e. The ratio of the largest e to its weighted mean bounds what is left to gain.
"""

import math
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tqdm
from scipy import linalg, ndimage

from dpfl import _validate, errors
from dpfl.mechanisms import banded
from dpfl.mechanisms import workload as workloads
from dpfl.mechanisms.optimize import banded_objective as objectives
from dpfl.mechanisms.optimize import cache
from dpfl.participation import Participation

_VERSION = 1
# A step is the last when it is expected to lower the value by less than this share. Newton's
# method then leaves about 1e-3 of that. Flatness decides for the largest error, not the value.
_TOLERANCE = {'rms': 1e-5, 'max': 1e-3}
_COARSE_TOLERANCE = {'rms': 1e-4, 'max': 1e-3}
_MAX_STEPS = 60
# X must stay positive definite even after a step that is longer by this factor.
_MARGIN = 1.5
_MAX_INNER_STEPS = 60
# Conjugate gradients stop when a step adds less than this share of the model's decrease so far.
_INNER_TOLERANCE = 0.01
# Sizes below which a coarser problem does not pay.
_SMALLEST_ROUNDS = 64
_SMALLEST_BANDS = 8
_TAPER_ITERATIONS = 5
# For the largest error: the power, the share by which it may exceed the weighted mean, and the
# least weight. Single rounds near multiples of b need none; without any their errors run away
# before the weights can follow.
_POWER = 12
_FLATNESS = 2e-3
_LEAST_EMPHASIS = 0.1
_MAX_UPDATES = 40


def optimize_banded(
    participation: Participation,
    bands: int,
    *,
    loss: str = 'rms',
    column_norms: str = 'equal',
    workload: np.ndarray | None = None,
    max_seconds: float | None = None,
    progress: bool = False,
) -> banded.Banded:
    """The banded strategy of least loss: BandMF, unless told otherwise.

    Deterministic, unless it is stopped by `max_seconds`. Needs the memory of about ten float64
    arrays [n, n].

    Args:
      participation: the schema. With equal column norms only `rounds` n and `min_separation`
        matter to the result.
      bands: of C, the main diagonal included: at most `min_separation` and `rounds`.
      loss: 'rms', to about 1e-7 of the optimum, or 'max', to about 1e-3 and slower.
      column_norms: 'equal' for norm 1, as in BandMF. 'blocks' optimises them too: one norm for
        each block of `min_separation` rounds, with a fixed sum of squares. A pattern meets each
        block at most once, so the squared sensitivity is at most that sum, whatever the norms
        are; the RMS loss for this schema is smaller (1.4 % at 2052 rounds in 6 blocks). The
        schema must admit a round in every block.
      workload: A, see `mechanisms.workload`; None for the prefix sums.
      max_seconds: stop with the best strategy so far after about this time; None for no limit.
      progress: show the loss after each step on standard error.

    Raises:
      ValueError: if an argument is out of its range, the workload has a zero on its diagonal, or
        the schema admits fewer rounds than there are blocks whose norms are to be optimised.
    """
    n = participation.rounds
    most = min(n, participation.min_separation)
    _validate.integer('bands', bands, minimum=1, maximum=most)
    _validate.choice('loss', loss, ('rms', 'max'))
    _validate.choice('column_norms', column_norms, ('equal', 'blocks'))
    if max_seconds is not None:
        max_seconds = _validate.number('max_seconds', max_seconds, above=0)
    workload = _checked(workload, n)
    blocks = np.zeros(n, np.int64)
    if column_norms == 'blocks':
        blocks = _blocks(participation)

    def compute() -> banded.Banded:
        with tqdm.tqdm(desc='banded', unit=' steps', disable=not progress) as bar:
            search = _Search(
                loss=loss,
                deadline=math.inf if max_seconds is None else time.monotonic() + max_seconds,
                report=_reporter(bar, participation, loss),
            )
            gram, _ = _optimum(blocks, bands, workload, search, _TOLERANCE[loss])
        return banded.Banded(_strategy(gram))

    if max_seconds is not None:  # What was reached in time is not the optimum: not kept.
        return compute()
    key = {
        'version': _VERSION,
        'participation': cache.participation_key(participation),
        'bands': bands,
        'loss': loss,
        'column_norms': column_norms,
        'workload': cache.array_key(workload),
    }
    return cache.cached('optimize_banded', banded.Banded, key, compute)


def _checked(workload: np.ndarray | None, n: int) -> np.ndarray | None:
    """The workload as a matrix [n, n]; None for the prefix sums."""
    matrix = workloads.matrix(workload, n)
    if not np.diag(matrix).all():
        t = int(np.flatnonzero(np.diag(matrix) == 0)[0])
        raise ValueError(f'workload[{t}, {t}]=0: must not be 0 for an optimum to exist')
    return None if np.array_equal(matrix, workloads.matrix(None, n)) else matrix


def _blocks(participation: Participation) -> np.ndarray:
    """Number of the block of `min_separation` rounds that each round is in."""
    blocks = np.arange(participation.rounds) // participation.min_separation
    if participation.count <= blocks[-1]:
        raise errors.ArgumentError(
            'column_norms',
            'blocks',
            f'max_participations={participation.max_participations} must be '
            f'at least {blocks[-1] + 1}, the number of blocks of min_separation rounds',
        )
    return blocks


class _Search(NamedTuple):
    """What to look for, when to stop, and whom to tell (rounds and value after each step)."""

    loss: str
    deadline: float
    report: Callable[[int, float], None]

    def is_over(self) -> bool:
        return time.monotonic() > self.deadline


def _reporter(bar: tqdm.tqdm, participation: Participation, loss: str):
    """Shows, after each step, the rounds of the problem at hand and its loss."""

    def report(n: int, value: float) -> None:
        current = math.sqrt(value / n * participation.count)
        bar.set_postfix_str(f'{n} of {participation.rounds} rounds, {loss} loss {current:.4f}')
        bar.update()

    return report


def _optimum(
    blocks: np.ndarray, bands: int, workload, search: _Search, tolerance: float
) -> tuple[np.ndarray, np.ndarray]:
    """Optimal X as bands, float64 [n, bands], and the weights of the rounds' errors, float64 [n].

    Args:
      blocks: number of the block of each round, int64 [n], from 0 on.
    """
    n = blocks.size
    power = _POWER if search.loss == 'max' else 1
    objective = objectives.Objective(blocks, bands, workload, power)
    levels = np.ones(blocks[-1] + 1)
    if workload is not None:
        gram = _tapered(workload, bands)
    elif n <= _SMALLEST_ROUNDS or bands <= _SMALLEST_BANDS:
        gram = objective.gram(np.tile(_root_coefficients(bands), (n, 1)), levels)
    else:
        half_blocks = blocks[::2]
        half, emphasis = _optimum(
            half_blocks, -(-bands // 2), None, search, _COARSE_TOLERANCE[search.loss]
        )
        first = np.searchsorted(half_blocks, np.arange(levels.size))
        levels = half[np.minimum(first, half_blocks.size - 1), 0]
        gram = objective.gram(_refined(_strategy(half), n, bands), levels)
        objective.emphasis = _emphasis(np.repeat(emphasis, 2)[:n])
    point = _minimise(objective, objective.evaluate(gram), search, tolerance)
    if search.loss == 'max':
        point = _flatten(objective, point, search, tolerance)
    return point.gram, objective.emphasis


def _emphasis(weights: np.ndarray) -> np.ndarray:
    raised = np.maximum(weights / weights.mean(), _LEAST_EMPHASIS)
    return raised / raised.mean()


def _flatten(objective, point, search: _Search, tolerance: float):
    """Repeats the minimisation, with new weights, until the largest error is nearly least."""
    best = point
    for _ in range(_MAX_UPDATES):
        mean = point.shares @ point.errors / point.shares.sum()
        if point.errors.max() <= mean * (1 + _FLATNESS) or search.is_over():
            break
        objective.emphasis = _emphasis(point.shares)
        point = _minimise(objective, objective.evaluate(point.gram), search, tolerance)
        best = min(best, point, key=lambda candidate: candidate.errors.max())
    return best


def _minimise(objective, point, search: _Search, tolerance: float):
    """Newton's method with backtracking from a positive definite X."""
    for _ in range(_MAX_STEPS):
        if search.is_over():
            break
        direction = _newton_direction(objective, point, search)
        decrease = -objectives.inner(point.gradient, direction)
        lower = _lower(objective, point, direction, decrease)
        if lower is None:
            break
        point = lower
        search.report(len(point.gram), point.value)
        if decrease <= tolerance * point.value:
            break
    return point


def _lower(objective, point, direction: np.ndarray, decrease: float):
    """First point along the direction, by halving from 1, that is low enough; None if none is.

    Stays off the edge of the positive definite matrices, where later steps would get stuck.
    """
    step = 1.0
    while step > 1e-6:
        if objective.is_definite(point.gram + _MARGIN * step * direction):
            trial = objective.evaluate(point.gram + step * direction)
            if trial is not None and trial.value <= point.value - 1e-4 * step * decrease:
                return trial
        step /= 2
    return None


def _newton_direction(objective, point, search: _Search) -> np.ndarray:
    """Minimiser of the quadratic model by preconditioned conjugate gradients."""
    precondition = objective.preconditioner(point)
    direction = np.zeros_like(point.gram)
    residual = -point.gradient
    scaled = precondition(residual)
    conjugate = scaled
    product = objectives.inner(residual, scaled)
    gained = 0.0
    for _ in range(_MAX_INNER_STEPS):
        if product <= 0:  # nothing to choose, or solved
            break
        curved = objective.curvature(point, conjugate)
        curve = objectives.inner(conjugate, curved)
        if curve <= 0:  # lost in rounding
            break
        length = product / curve
        direction += length * conjugate
        gained += length * product
        if length * product <= _INNER_TOLERANCE * gained or search.is_over():
            break
        residual = residual - length * curved
        scaled = precondition(residual)
        last, product = product, objectives.inner(residual, scaled)
        conjugate = scaled + product / last * conjugate
    return direction


def _strategy(gram: np.ndarray) -> np.ndarray:
    """Diagonals of the lower-triangular C with `C^T C = X`, from the bands of X.

    Not the Cholesky factor L of X, for which `L L^T = X`: that one has *rows* of norm 1. Reversing
    the order of the rounds in X, factoring, and reversing and transposing the factor gives C. In
    LAPACK's storage of bands the reversed matrix is the reversed table.
    """
    factor = linalg.cholesky_banded(gram[::-1].T, lower=True)
    return factor.T[::-1]


def _root_coefficients(count: int) -> np.ndarray:
    """First coefficients of (1 - x)^(-1/2)."""
    lags = np.arange(1, count)
    return np.concatenate([[1.0], np.cumprod((2 * lags - 1) / (2 * lags))])


def _refined(rows: np.ndarray, n: int, bands: int) -> np.ndarray:
    """Strategy for n rounds and `bands` from one for half of them, both by diagonals."""
    coarse_n, coarse_bands = rows.shape
    shape = rows / _root_coefficients(coarse_bands)
    for j in range(1, coarse_bands):  # continue each diagonal to the left of the matrix
        shape[:j, j] = shape[j, j]
    rounds = (np.arange(n) + 0.5) * coarse_n / n - 0.5
    grid = np.meshgrid(rounds, np.arange(bands) / 2, indexing='ij')
    refined = ndimage.map_coordinates(shape, grid, order=1, mode='nearest')
    return refined * _root_coefficients(bands)


def _tapered(workload: np.ndarray, bands: int) -> np.ndarray:
    """A start for any workload, as bands: the optimum without bands, tapered.

    Without bands the optimum is X = D^(-1/2) (D^(1/2) A^T A D^(1/2))^(1/2) D^(-1/2), for the
    diagonal D that makes the diagonal of X one (a fixed point). The entrywise product with the
    positive definite matrix of the taper 1 - lag / b keeps X positive definite.
    """
    moments = workload.T @ workload
    scale = np.diag(moments) ** 0.25  # of D^(1/2)
    for _ in range(_TAPER_ITERATIONS):
        eigenvalues, vectors = linalg.eigh(scale[:, None] * moments * scale)
        root = (vectors * np.sqrt(np.maximum(eigenvalues, 0))) @ vectors.T
        scale = np.sqrt(np.diag(root))
    gram = root / np.outer(scale, scale)
    table = np.zeros((len(workload), bands))
    for j in range(bands):
        table[j:, j] = np.diagonal(gram, -j) * (1 - j / bands)
    return table
