"""Driver of all optimisers: from a problem to the mechanism of least proven loss.

An optimiser checks its own arguments, states its `Problem`, and gives `Problem.solve` a function
that returns candidates. The candidate with the least loss is the result, where the loss holds the
proven sensitivity, whatever the search has minimised. Results are cached on disk, as archives with
a seal (`dpfl._cache`).
Searches use L-BFGS (`descend`), and for the largest of many errors `over_rows` or `smooth_maximum`.
"""

import dataclasses
import hashlib
import json
import math
import pathlib
import sys
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from scipy import optimize, special

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

        Args:
          kind: class of the candidates.
          candidates: makes them; only called if the result is not cached.
          version: of the optimiser, part of the key.
          make: as in `cached`.
          **settings: what else the result depends on, see `cached`.
        """
        schema = self.participation
        key = {
            'version': version,
            'participation': [schema.rounds, schema.min_separation, schema.count],
            'loss': self.loss,
            'workload': _cache.array_key(self.workload),
            **settings,
        }

        def best() -> _M:
            made = list(candidates())
            return min(made, key=self.proven) if len(made) > 1 else made[0]

        return cached(self.optimizer, kind, key, best, make=make)


def cached(
    optimizer: str,
    kind: type[_M],
    key_fields: Mapping[str, Any],
    compute: Callable[[], _M],
    *,
    make: Callable[..., _M] | None = None,
) -> _M:
    """The cached mechanism for these fields, else that of `compute`, which is then cached.

    An entry is computed again and replaced if it is not a valid mechanism, or was not made for
    exactly these fields.

    Args:
      optimizer: name of the optimiser.
      kind: class of the result.
      key_fields: everything that the result depends on, including the optimiser's version: plain
        numbers, strings, lists and None; see `_cache.array_key`.
      compute: makes the mechanism; only called if it is not cached.
      make: makes the mechanism of the values of an entry, by name; None for `kind`.
    """
    key = json.dumps(
        {'schema_version': _SCHEMA_VERSION, 'kind': optimizer, **key_fields},
        sort_keys=True,
        allow_nan=False,
    )

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

    return _cache.cached(f'{optimizer}-*.npz', key, compute, read=read, write=write)


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
    solution = optimize.minimize(
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


def smooth_maximum(logs: np.ndarray, sharpness: float) -> tuple[float, np.ndarray]:
    """Log of the p-norm of exp(logs), with p the sharpness, and its gradient, [logs].

    It is at least the largest log, by at most `log(number of logs) / sharpness`.
    """
    scaled = sharpness * logs
    return special.logsumexp(scaled) / sharpness, special.softmax(scaled)


def smooth_log_maximum(values: np.ndarray, sharpness: float) -> tuple[float, np.ndarray]:
    """`smooth_maximum` of the logs of positive values, and its gradient with respect to these."""
    value, shares = smooth_maximum(np.log(values), sharpness)
    return value, shares / values


def over_rows(
    start: np.ndarray,
    squared_errors: Callable[[np.ndarray], np.ndarray],
    minimize: Callable[[np.ndarray, Sequence[int], float], np.ndarray],
) -> np.ndarray:
    """Minimises the largest error of many rows, of which only few matter.

    The row with the largest error is added to those whose smooth maximum is minimised, until it is
    already among them.

    Args:
      start: where to begin.
      squared_errors: of all rows at a point.
      minimize: the minimum from a point on, for some rows and a sharpness.
    """
    point, rows = start, list[int]()
    while True:
        squared = squared_errors(point)
        worst = int(squared.argmax())
        if rows and squared[worst] <= squared[rows].max() * (1 + _ROW_TOLERANCE):
            return point
        rows.append(worst)
        for sharpness in _SHARPNESS if len(rows) > 1 else _SHARPNESS[-1:]:
            point = minimize(point, rows, sharpness)
