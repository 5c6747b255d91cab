"""Driver of all optimisers: from a problem to the mechanism of least proven loss.

An optimiser checks its own arguments, states its `Problem`, and gives `Problem.solve` a function
that returns candidates. The candidate with the least loss is the result, where the loss holds the
proven sensitivity, whatever the search has minimised. Results are cached on disk, as archives with
a seal (`dpfl._cache`).
Searches use L-BFGS (`descend`), smooth maxima of many errors (`_smooth_maximum`), and for Toeplitz
strategies `over_workload`.
"""

import dataclasses
import functools
import hashlib
import json
import math
import pathlib
import sys
import zipfile
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
import scipy

from dpfl import _cache, _files, _validate, errors
from dpfl.mechanisms import mechanism_file
from dpfl.mechanisms import workload as workloads
from dpfl.mechanisms.base import Mechanism
from dpfl.participation import Participation

_M = TypeVar('_M', bound=Mechanism)

# Part of the key of every cached mechanism, so that older entries are not found.
_SCHEMA_VERSION = 1
# The value at a point and the gradient, in the shape of the point.
Objective = Callable[[np.ndarray], tuple[float, np.ndarray]]
# Smoothing of the maximum over rows of a dense workload, from coarse to negligible.
_SHARPNESS = (30.0, 300.0, 3000.0, 3e4)
# Relative differences below this between squared errors of rows count as equal.
_ROW_TOLERANCE = 1e-6


@dataclasses.dataclass(frozen=True)
class Problem:
    """Which loss is to be least.

    Attributes:
      optimizer: name of the public function.
      participation: the schema.
      loss: 'max' or 'rms', see `Mechanism.max_loss` and `Mechanism.rms_loss`.
      workload: A, see `mechanisms.workload`, [rounds] or [rounds, rounds]; None for prefix sums.
      progress: whether to show the loss of each stage on standard error.
    """

    optimizer: str
    participation: Participation
    loss: str
    workload: np.ndarray | None
    progress: bool = False

    def __post_init__(self) -> None:
        _validate.choice('loss', self.loss, ('max', 'rms'))
        if self.workload is not None:
            workload = workloads.cut(self.workload, self.participation.rounds)
            if not workload.any():
                raise errors.ArgumentError(
                    'workload', errors.NOT_SHOWN, 'must have an entry other than 0'
                )
            object.__setattr__(self, 'workload', workload)

    def proven(self, mechanism: Mechanism) -> float:
        """Loss with the proven sensitivity, run for the rounds of the schema."""
        if mechanism.rounds != self.participation.rounds:
            mechanism = mechanism.with_rounds(self.participation.rounds)
        of_kind = mechanism.max_loss if self.loss == 'max' else mechanism.rms_loss
        return of_kind(self.participation, self.workload)

    def report(self, stage: str, value: float) -> None:
        """Shows the log of the squared loss that a search has reached."""
        if self.progress:
            self._print(stage, math.exp(value / 2))

    def shown(self, stage: str, mechanism: _M) -> _M:
        """The mechanism, whose proven loss is shown."""
        if self.progress:
            self._print(stage, self.proven(mechanism))
        return mechanism

    def _print(self, stage: str, loss: float) -> None:
        print(f'{self.optimizer}: {stage}: {self.loss} loss {loss:.6f}', file=sys.stderr)

    def solve(
        self,
        kind: type[_M],
        candidates: Callable[[], Iterable[_M]],
        *,
        version: int,
        make: Callable[..., _M] | None = None,
        **settings: Any,
    ) -> _M:
        """The candidate of least proven loss, the first of several; cached on disk.

        An entry is computed again and replaced if it is not a valid mechanism, or was not made for
        exactly this problem and these settings.

        Args:
          kind: class of the candidates.
          candidates: makes them; only called if the result is not cached.
          version: of the optimiser, part of the key.
          make: makes the mechanism of the values of an entry, by name; None for `kind`.
          **settings: what else the result depends on: plain numbers, strings, lists and None.
        """
        schema = self.participation
        key = json.dumps(
            {
                'schema_version': _SCHEMA_VERSION,
                'kind': self.optimizer,
                'version': version,
                'participation': [schema.rounds, schema.min_separation, schema.count],
                'loss': self.loss,
                'workload': _cache.array_key(self.workload),
                **settings,
            },
            sort_keys=True,
            allow_nan=False,
        )

        def best() -> _M:
            made = list(candidates())
            return min(made, key=self.proven) if len(made) > 1 else made[0]

        def read(path: pathlib.Path) -> _M | None:
            with _files.open_regular(path) as file, zipfile.ZipFile(file) as archive:
                seal = archive.comment
            values = mechanism_file.read(path)
            if values.pop('mechanism', None) != kind.name:
                return None
            mechanism = (make or kind)(**values)
            return mechanism if seal == _seal(key, mechanism) else None

        def write(mechanism: _M, path: pathlib.Path) -> None:
            mechanism_file.write(mechanism.to_dict(), path)
            with zipfile.ZipFile(path, 'a') as archive:
                archive.comment = _seal(key, mechanism)

        return _cache.cached(f'{self.optimizer}-*.npz', key, best, read=read, write=write)


def _seal(key: str, mechanism: Mechanism) -> bytes:
    """Digests of the arguments an entry was made for and of its parameters."""
    return f'{hashlib.sha256(key.encode()).hexdigest()} {mechanism.digest()}'.encode()


def descend(
    objective: Objective,
    start: np.ndarray,
    *,
    iterations: int,
    tolerance: float,
    gradient_tolerance: float = 1e-9,
    pairs: int = 30,
    bounds: Sequence[tuple[float | None, float | None]] | np.ndarray | None = None,
    callback: Callable[[np.ndarray], None] | None = None,
) -> tuple[float, np.ndarray]:
    """Local minimum that L-BFGS finds: its value and the point.

    Args:
      objective: value and gradient.
      start: where to begin, [n]; moved to within the bounds.
      iterations: most of them.
      tolerance: least relative decrease of the value in an iteration.
      gradient_tolerance: largest entry of a gradient that counts as zero.
      pairs: number of differences of gradients that approximate the curvature.
      bounds: lower and upper bound of each variable; None for no bound.
      callback: called with the point after each iteration.
    """
    solution = scipy.optimize.minimize(
        objective,
        start,
        jac=True,
        method='L-BFGS-B',
        bounds=bounds,
        callback=callback,
        options={
            'maxiter': iterations,
            'maxcor': pairs,
            'ftol': tolerance,
            'gtol': gradient_tolerance,
        },
    )
    return solution.fun, solution.x


def _smooth_maximum(logs: np.ndarray, sharpness: float) -> tuple[float, np.ndarray]:
    """Log of the p-norm of exp(logs), with p the sharpness, and its gradient, [logs].

    It is at least the largest log, by at most `log(number of logs) / sharpness`.
    """
    scaled = sharpness * logs
    return scipy.special.logsumexp(scaled) / sharpness, scipy.special.softmax(scaled)


def smooth_log_maximum(values: np.ndarray, sharpness: float) -> tuple[float, np.ndarray]:
    """`_smooth_maximum` of the logs of positive values, and its gradient with respect to these."""
    value, shares = _smooth_maximum(np.log(values), sharpness)
    return value, shares / values


def log_error(
    squared: np.ndarray, loss: str, sharpness: float, shares: np.ndarray | None = None
) -> tuple[float, np.ndarray]:
    """Log of the squared error of a loss, and its gradient with respect to `squared`.

    Args:
      squared: of rounds, or of the ends of groups of rounds, [any].
      loss: 'max' for their smooth maximum, 'rms' for their mean.
      sharpness: of the smooth maximum.
      shares: of each in the mean, with sum 1, [any]; None for equal ones.
    """
    if loss == 'max':
        return smooth_log_maximum(squared, sharpness)
    if shares is None:
        return math.log(squared.mean()), np.full(squared.size, 1 / squared.sum())
    mean = shares @ squared
    return math.log(mean), shares / mean


def row_shares(rounds: int, loss: str) -> np.ndarray:
    """Weights of `b_i^2` in the squared error under a Toeplitz workload, [rounds].

    For max loss, the last row has the largest error. For rms loss it is the mean over rows.
    """
    return np.ones(rounds) if loss == 'max' else np.arange(rounds, 0, -1) / rounds


def over_workload(
    problem: Problem,
    start: np.ndarray,
    error: Callable[[np.ndarray, Callable[[np.ndarray], np.ndarray]], Callable[..., Any]],
    minimize: Callable[[np.ndarray, Callable[..., Any]], np.ndarray],
    mechanism: Callable[[np.ndarray], Mechanism],
) -> np.ndarray:
    """Minimises the loss of Toeplitz strategies under any workload.

    With `b = a / c` as power series, c the coefficients of C, the squared error under a Toeplitz
    workload with coefficients a is a quadratic form of b. So is that of one row of a workload
    [n, n], where a is the row read backwards from its last column. The mean over all of its rows is
    a quadratic form for a = (1, 1, ..), see `_mean_form`. Of many rows only few matter for the
    largest error: the row with the largest error is added to those whose smooth maximum is
    minimised, until it is already among them.

    Args:
      problem: the problem; its workload counts.
      start: where to begin.
      error: makes the log of `b @ weigh(b)` and its gradients, as a function of the parameters of a
        strategy, from a and `weigh`, a symmetric linear map of the last axis of b.
      minimize: the minimum from a point on, for such a function.
      mechanism: of a point.
    """
    rounds, workload = problem.participation.rounds, problem.workload
    if workload is None or workload.ndim == 1:
        first, shares = (
            np.ones(rounds) if workload is None else workload,
            row_shares(rounds, problem.loss),
        )
        return minimize(start, error(first, lambda b: shares * b))
    if problem.loss == 'rms':
        form = _mean_form(workload)
        return minimize(start, error(np.ones(rounds), lambda b: (form @ b.T).T))
    point, rows = start, list[int]()
    while True:
        squared = mechanism(point).squared_error(workload)
        worst = int(squared.argmax())
        if rows and squared[worst] <= squared[rows].max() * (1 + _ROW_TOLERANCE):
            return point
        rows.append(worst)
        errors_of_rows = [error(workload[row, ::-1], lambda b: b) for row in rows]
        for sharpness in _SHARPNESS if len(rows) > 1 else _SHARPNESS[-1:]:
            point = minimize(point, functools.partial(_largest, errors_of_rows, sharpness))


def _largest(functions: Sequence[Callable[..., Any]], sharpness: float, *point: np.ndarray) -> Any:
    """Smooth maximum of the logs that functions give, and its gradients; infinity if one is."""
    values, *slopes = zip(*(function(*point) for function in functions), strict=True)
    if not np.isfinite(values).all():
        return np.inf, *(np.zeros_like(slope[0]) for slope in slopes)
    value, shares = _smooth_maximum(np.array(values), sharpness)
    return value, *(shares @ np.array(slope) for slope in slopes)


def _mean_form(workload: np.ndarray) -> np.ndarray:
    """Mean squared error of a workload [n, n] as a quadratic form [n, n].

    The workload is `A = A' P` with the prefix sums P, so that `A C^-1 = A' T` with the Toeplitz
    matrix `T = P C^-1`. With its coefficients b, `||A' T||_F^2 / n = sum_{s, t} b_s b_t M[s, t]`,
    where `M[s, t] = sum_m (A'^T A')[m + s, m + t] / n`.
    """
    n = len(workload)
    differences = workload - np.pad(workload[:, 1:], [(0, 0), (0, 1)])
    form = differences.T @ differences / n
    for row in reversed(range(n - 1)):
        form[row, :-1] += form[row + 1, 1:]
    return form
