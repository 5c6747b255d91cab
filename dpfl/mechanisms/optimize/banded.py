"""Optimiser of banded mechanisms: banded matrix factorisation (BandMF) and free column norms.

With `X = C^T C` the squared error of round t is `e_t = (A X^-1 A^T)_tt`, which is convex in X. X
has the bands of C, and the squared norms of the columns of C on its diagonal. If the bands are
at most the minimum separation, the columns of a pattern are orthogonal, so the squared sensitivity
is the heaviest pattern of squared column norms, whatever the other entries are. BandMF
([McMahan24], section 2.3) minimises the sum of e for equal norms. Below is which other norms have
the same sensitivity.

L-BFGS starts from the optimal banded Toeplitz matrix, or for many bands from an
interpolation of the optimum for half the rounds and bands, which is found in the same way. The
largest e is minimised through power means with rising powers. They begin higher from an
interpolation, where the errors are already nearly equal.

The search is over unit columns and over weights of the column norms. The loss does not depend on
the scale of C, so the log of its square is minimised, without a constraint on the sensitivity. A
step takes O(n b^2) for common workloads, which for few bands is far less than Newton's method on X
= C^T C takes. The loss is convex in X and in the squared column norms, so a stationary point is the
optimum.

If the number of bands is at most the separation b, the squared sensitivity is the heaviest pattern
of squared column norms d ([McMahan24], section 3.1). Patterns are the vertices of the polytope of
all x >= 0 with sum(x) <= k and a sum of at most 1 over any b consecutive rounds: its constraints
have the consecutive-ones property, so its vertices are integral. By the duality of linear programs
the heaviest pattern is at most 1 if and only if, for some y, z >= 0 with sum(y) + k z <= 1,

    d_t  <=  z + sum of y_w over all windows [w, w + b) that contain round t.

More of any d_t lowers the error of a banded X with diagonal d, so equality loses nothing, and the
least loss over all banded C is the least over y, z and the unit columns. With z alone all norms are
equal, and with the windows 0, b, 2b, .. there is one norm for each block of b rounds.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import scipy

from dpfl import _progress, _validate, errors
from dpfl.mechanisms import banded, toeplitz
from dpfl.mechanisms import workload as workloads
from dpfl.mechanisms.optimize import banded_error, driver
from dpfl.mechanisms.optimize.banded_toeplitz import optimize_banded_toeplitz
from dpfl.participation import Participation

# Unit of the weights: smaller than that of the entries of C, as a weight acts on many columns.
_WEIGHT_UNIT = 0.3
# Excess of the value where it is not defined. The line search shortens its step, as it would not
# for an infinite value.
_PENALTY = 10.0
_MAX_ITERATIONS = 5000
_PAIRS = 10
_VERSION = 4
# A search ends when a step lowers the squared loss by less than this share. That is about a
# hundredth of what is left.
_TOLERANCE = {'rms': 1e-10, 'max': 1e-7}
# For tables of more entries, where every step takes longer, and for coarser problems.
_LARGE = 50_000
_LARGE_TOLERANCE = {'rms': 1e-9, 'max': 1e-5}
_LARGE_FREE_TOLERANCE = {'rms': 1e-6, 'max': 3e-6}  # With many weights, steps are small.
# For tables of even more entries, where a step takes seconds.
_HUGE = 1_000_000
_HUGE_TOLERANCE = {'rms': 1e-6, 'max': 1e-5}
_COARSE_TOLERANCE = 1e-6
# Fewest bands for which solving a coarser problem first pays.
_COARSE_BANDS = 48
# Exponents of power means. The last mean is at least n^(-1/5000) of the largest of n errors, and
# comes much closer because most errors are then equal.
_POWERS = {'rms': (1,), 'max': (12, 50, 200, 1000, 5000)}
# From the optimum of a coarser problem.
_LATER_POWERS = {'rms': (1,), 'max': (200, 1000, 5000)}


class Point(NamedTuple):
    """A strategy before its columns are scaled.

    Attributes:
      rows: C with ones on its diagonal, float64 [n, bands].
      weights: of the column norms, see `Norms`.
    """

    rows: np.ndarray
    weights: np.ndarray


@dataclasses.dataclass(frozen=True)
class Norms:
    """Squared column norms d as a function of weights >= 0: y of windows, then z.

    Attributes:
      starts: first rounds of the windows, int64 [m]. A window may end after the last round.
      ends: rounds after their last ones, at most n, int64 [m].
      count: k, the largest number of participations.
      rounds: n.
    """

    starts: np.ndarray
    ends: np.ndarray
    count: int
    rounds: int

    @classmethod
    def equal(cls, participation: Participation) -> 'Norms':
        """One norm for all columns."""
        none = np.zeros(0, np.int64)
        return cls(none, none, participation.count, participation.rounds)

    @classmethod
    def free(cls, participation: Participation) -> 'Norms':
        """All norms, by windows of `min_separation` rounds."""
        n, separation = participation.rounds, participation.min_separation
        starts = np.arange(max(n - separation, 0) + 1)
        return cls(starts, np.minimum(starts + separation, n), participation.count, n)

    @property
    def costs(self) -> np.ndarray:
        """Share of each weight in the squared sensitivity, float64 [m + 1]."""
        return np.append(np.ones(self.starts.size), float(self.count))

    def start(self, participation: Participation) -> np.ndarray:
        """Weights of about equal norms: windows side by side, or z if there are too many."""
        weights = np.zeros(self.starts.size + 1)
        blocks = np.arange(0, participation.rounds, participation.min_separation)
        if self.starts.size and blocks.size <= participation.count:
            weights[np.searchsorted(self.starts, np.minimum(blocks, self.starts[-1]))] = 1.0
        else:
            weights[-1] = 1.0
        return weights

    def refined(
        self, coarse: 'Norms', weights: np.ndarray, participation: Participation
    ) -> np.ndarray:
        """Weights from those for half the rounds and half the separation.

        Each weight goes to the window at twice its first round. If that leaves a column with less
        than half of its squared norm, it returns `start`.
        """
        place = np.searchsorted(self.starts, 2 * coarse.starts, side='right') - 1
        refined = np.bincount(place, weights[: place.size], self.starts.size)
        refined = np.append(refined, weights[place.size :])
        before = np.repeat(coarse.squared(weights), 2)[: self.rounds]
        if (2 * self.squared(refined) < before).any():
            return self.start(participation)
        return refined

    def squared(self, weights: np.ndarray) -> np.ndarray:
        """d, float64 [n]."""
        windows = weights[: self.starts.size]
        changes = np.bincount(self.starts, windows, self.rounds + 1)
        changes -= np.bincount(self.ends, windows, self.rounds + 1)
        # A sum of differences may fall below zero by rounding.
        return np.maximum(np.cumsum(changes)[:-1], 0.0) + weights[-1]

    def gradient(self, by_squared: np.ndarray) -> np.ndarray:
        """Derivatives with respect to the weights, from those with respect to d."""
        sums = np.append(0.0, np.cumsum(by_squared))
        windows = sums[self.ends] - sums[self.starts]
        return np.append(windows, sums[-1])


class Descent:
    """Minimises (mean of e_t^p)^(1/p) times the squared sensitivity.

    Args:
      error: computes e and derivatives.
      norms: the column norms that are allowed.
      power: p, at least 1. The largest error is the limit of large p.
      report: called with the number of rounds and the squared loss after each step.
    """

    def __init__(
        self,
        error: banded_error.BlockError | banded_error.DenseError,
        norms: Norms,
        power: float,
        report: Callable[[int, float], None],
    ):
        self._error, self._norms, self._power, self._report = error, norms, power, report

    def minimise(self, start: Point, tolerance: float) -> Point:
        """The point from which a step lowers the log of the squared loss less than `tolerance`."""
        rows, weights = start
        n, bands = rows.shape
        inside = (np.arange(bands) <= np.arange(n)[:, None]) & (np.arange(bands) > 0)
        entries = np.count_nonzero(inside)
        lowest = math.inf

        def unpack(x):
            table = np.zeros((n, bands))
            table[:, 0] = 1.0
            table[inside] = x[:entries]
            # A single weight only scales C.
            return table, weights if weights.size == 1 else x[entries:] * _WEIGHT_UNIT

        def objective(x):
            nonlocal lowest
            evaluation = self.value(*unpack(x))
            if evaluation is None:
                return lowest + _PENALTY, np.zeros_like(x)
            value, by_rows, by_weights = evaluation
            lowest = min(lowest, value)
            by_rows = by_rows[inside]
            if weights.size > 1:
                return value, np.concatenate([by_rows, by_weights * _WEIGHT_UNIT])
            return value, by_rows

        x, bounds = rows[inside], None
        if weights.size > 1:
            x = np.concatenate([x, weights / _WEIGHT_UNIT])
            bounds = [(None, None)] * entries + [(0, None)] * weights.size

        if x.size:
            _, x = driver.descend(
                objective,
                x,
                iterations=_MAX_ITERATIONS,
                tolerance=tolerance,
                gradient_tolerance=1e-12,
                pairs=_PAIRS,
                bounds=bounds,
                callback=lambda _: self._report(n, math.exp(lowest)),
            )
        return Point(*unpack(x))

    def value(
        self, rows: np.ndarray, weights: np.ndarray
    ) -> tuple[float, np.ndarray, np.ndarray] | None:
        """Log of the squared loss, and its derivatives by the rows and by the weights.

        Returns:
          None far from any optimum, where errors overflow or a column is zero.
        """
        squared, norms = self._norms.squared(weights), _squared_norms(rows)
        if not squared.min() > 0:
            return None
        factors = np.sqrt(squared / norms)
        evaluation = self._error(_scaled(rows, factors), self._weigh)
        if evaluation is None:
            return None
        value, gradient = evaluation
        by_factor = banded.column_sums(gradient * rows)
        by_norms = -by_factor * factors / (2 * norms)
        by_rows = _scaled(gradient, factors) + 2 * _scaled(rows, by_norms)
        costs = self._norms.costs
        total = costs @ weights
        by_weights = self._norms.gradient(by_factor * factors / (2 * squared)) + costs / total
        return value + math.log(total), by_rows, by_weights

    def strategy(self, point: Point) -> np.ndarray:
        """Diagonals of C with squared sensitivity k, as of BandMF, float64 [n, bands]."""
        scale = self._norms.count / (self._norms.costs @ point.weights)
        squared = self._norms.squared(point.weights) * scale
        return _scaled(point.rows, np.sqrt(squared / _squared_norms(point.rows)))

    def _weigh(self, errors):
        """Log of the power mean of the errors, and its derivatives."""
        largest = errors.max()  # Relative to it, powers do not overflow.
        powers = (errors / largest) ** self._power
        value = math.log(largest) + math.log(powers.mean()) / self._power
        return value, powers / errors / powers.sum()


def _refined_rows(rows: np.ndarray, n: int, bands: int) -> np.ndarray:
    """Diagonals of a strategy, interpolated from one for half the rounds and half the bands.

    Strategies of different size are close to one function of (round / n, lag / b), once each
    diagonal is divided by the coefficient of (1 - x)^(-1/2), the optimal Toeplitz factor without
    bands.

    Args:
      rows: diagonals C[t, t - j] of the smaller strategy, [about n / 2, about bands / 2], whose
        columns are scaled so that its diagonal is one.
      n: number of rounds.
      bands: number of bands.

    Returns:
      float64 [n, bands], zero left of the matrix.
    """
    coarse_n, coarse_bands = rows.shape
    shape = rows / toeplitz.square_root_coefficients(coarse_bands)
    for j in range(1, coarse_bands):  # Continue each diagonal to the left of the matrix.
        shape[:j, j] = shape[j, j]
    rounds = (np.arange(n) + 0.5) * coarse_n / n - 0.5
    grid = np.meshgrid(rounds, np.arange(bands) / 2, indexing='ij')
    values = scipy.ndimage.map_coordinates(shape, grid, order=1, mode='nearest')
    values[np.arange(bands) > np.arange(n)[:, None]] = 0.0
    return values * toeplitz.square_root_coefficients(bands)


def _unit_rows(strategy: np.ndarray) -> np.ndarray:
    """Diagonals of a strategy whose columns are scaled so that its diagonal is one."""
    return _scaled(strategy, 1 / strategy[:, 0])


def _scaled(table, factors):
    """The table of C diag(factors)."""
    scaled = np.zeros_like(table)
    for j in range(min(table.shape)):
        scaled[j:, j] = table[j:, j] * factors[: factors.size - j]
    return scaled


def _squared_norms(table):
    return banded.column_sums(table**2)


_NORMS = {'equal': Norms.equal, 'free': Norms.free}


def optimize_banded(
    participation: Participation,
    bands: int,
    *,
    loss: str = 'rms',
    column_norms: str = 'equal',
    workload: np.ndarray | None = None,
    progress: bool = False,
) -> banded.Banded:
    """Finds the banded strategy of least loss: by default BandMF.

    The search is deterministic. Results are cached on disk, see `optimize.driver`. With n rounds
    and b bands it takes about O(n b^2) per step for workloads whose inverse has few bands, as for
    the prefix sums, momentum and learning rates, and O(n^3) for others.

    Args:
      participation: the schema. With equal column norms the result depends only on `rounds` n and
        `min_separation`.
      bands: number of bands of C, including the main diagonal: at most `min_separation` and
        `rounds`.
      loss: 'rms', to about 1e-6 of the optimum, or 1e-4 for free norms if n times the bands are
        more than 50,000, and for all norms if they are more than a million; 'max', to about 1e-3,
        or 1e-2 if they are more than 50,000.
      column_norms: 'equal' for norm 1, as in BandMF. 'free' optimises all norms for the schema:
        it has the least loss of all banded strategies, Toeplitz ones included (1.4 % less than
        BandMF at 2052 rounds in 6 blocks). The errors of single rounds differ more: for the rms
        loss early rounds get less noise and the last ones more.
      workload: A, see `mechanisms.workload`; None for the prefix sums.
      progress: whether to show the loss after each step on standard error.

    Raises:
      ArgumentError: if an argument is out of its range, or the workload has a zero on its diagonal.

    Example:
      >>> schema = Participation(40, min_separation=8)
      >>> optimize_banded(schema, bands=8).rms_loss(schema) < Identity(40).rms_loss(schema)
      True
    """
    n = participation.rounds
    most = min(n, participation.min_separation)
    _validate.integer('bands', bands, minimum=1, maximum=most)
    _validate.choice('column_norms', column_norms, tuple(_NORMS))
    matrix = None if workload is None else workloads.matrix(workload, n)
    if matrix is not None:
        if not np.diag(matrix).all():
            t = int(np.flatnonzero(np.diag(matrix) == 0)[0])
            raise errors.ArgumentError(
                'workload',
                errors.NOT_SHOWN,
                f'has 0 at [{t}, {t}], must have no 0 on its diagonal for an optimum to exist',
            )
        if all((row[: t + 1] == 1).all() for t, row in enumerate(matrix)):
            matrix = None  # The prefix sums, whose inverse is known.
    problem = driver.Problem('optimize_banded', participation, loss, matrix, progress)

    def candidates() -> Iterator[banded.Banded]:
        with _progress.bar(desc='banded', unit='step', disable=not progress) as bar:

            def report(rounds: int, squared: float) -> None:
                reached = f'{rounds} of {n} rounds, {loss} loss {math.sqrt(squared):.4f}'
                bar.set_postfix_str(reached)
                bar.update()

            search = _Search(loss, column_norms, matrix, report)
            yield banded.Banded(search.solve(participation, bands))
            if column_norms == 'free':
                yield search.toeplitz(participation, bands)
                # In these cases free norms gain little, and with many weights their search ends
                # before the last digits.
                is_hard = loss == 'max' and n * bands > _LARGE
                fills_blocks = participation.count * participation.min_separation >= n
                if is_hard or not fills_blocks:
                    equal = dataclasses.replace(search, column_norms='equal')
                    yield banded.Banded(equal.solve(participation, bands))

    return problem.solve(
        banded.Banded, candidates, version=_VERSION, bands=bands, column_norms=column_norms
    )


@dataclasses.dataclass(frozen=True)
class _Search:
    """A search, see `optimize_banded`; the workload is [n, n] or None."""

    loss: str
    column_norms: str
    workload: np.ndarray | None
    report: Callable[[int, float], None]

    def solve(self, participation: Participation, bands: int) -> np.ndarray:
        """Diagonals of C with the squared sensitivity `participation.count`, [n, bands]."""
        tolerance = self._tolerance(participation.rounds * bands)
        descent, point = self._optimum(participation, bands, tolerance)
        return descent.strategy(point)

    def _tolerance(self, entries: int) -> float:
        """Tolerance that ends a search over `entries` entries."""
        if entries > _HUGE:
            return _HUGE_TOLERANCE[self.loss]
        if entries <= _LARGE:
            return _TOLERANCE[self.loss]
        is_free = self.column_norms == 'free'
        return (_LARGE_FREE_TOLERANCE if is_free else _LARGE_TOLERANCE)[self.loss]

    def toeplitz(self, participation: Participation, bands: int) -> banded.Banded:
        """The banded Toeplitz matrix of least loss."""
        # The max loss of a dense workload takes long, and a start need not be optimal.
        loss = self.loss if self.workload is None else 'rms'
        optimum = optimize_banded_toeplitz(participation, bands, loss, workload=self.workload)
        column = optimum.toeplitz_column(participation.rounds)[:bands]
        inside = np.arange(bands) <= np.arange(participation.rounds)[:, None]
        return banded.Banded(np.where(inside, column, 0.0))

    def _optimum(
        self, participation: Participation, bands: int, tolerance: float
    ) -> tuple[Descent, Point]:
        n = participation.rounds
        norms = _NORMS[self.column_norms](participation)
        inverse = banded_error.workload_inverse(self.workload, n)
        error: banded_error.BlockError | banded_error.DenseError
        if inverse is None:
            assert self.workload is not None
            error = banded_error.DenseError(bands, self.workload)
        else:
            error = banded_error.BlockError(bands, inverse)
        if self.workload is None and bands >= _COARSE_BANDS:
            # From the optimum for half the rounds and bands.
            half = dataclasses.replace(
                participation,
                rounds=-(-n // 2),
                min_separation=-(-participation.min_separation // 2),
            )
            half_bands = -(-bands // 2)
            entries = half.rounds * half_bands
            coarse = self._tolerance(entries) if entries > _HUGE else _COARSE_TOLERANCE
            _, point = self._optimum(half, half_bands, coarse)
            rows = _unit_rows(_refined_rows(point.rows, n, bands))
            of_half = _NORMS[self.column_norms](half)
            weights = norms.refined(of_half, point.weights, participation)
            point, powers = Point(rows, weights), _LATER_POWERS
        else:
            schema = participation
            if self.column_norms == 'equal':  # The participations do not matter.
                schema = dataclasses.replace(participation, max_participations=None)
            rows = _unit_rows(self.toeplitz(schema, bands).diagonals)
            point, powers = Point(rows, norms.start(participation)), _POWERS
        for power in powers[self.loss]:
            descent = Descent(error, norms, power, self.report)
            point = descent.minimise(point, tolerance)
        return descent, point
