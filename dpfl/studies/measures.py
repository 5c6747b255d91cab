"""Measures of a finished run. No TensorFlow.

- `accuracy`, `accuracy_with_oov`, `loss`: Mean of the last `smooth` evaluations on held-out
  clients. `accuracy_with_oov` is AccuracyTop1 of [McMahan18], appendix B.
- `rounds_to_threshold`: Rounds until the mean accuracy first reaches the threshold of the study. If
  it never does, one more than the rounds of the run, marked as a lower bound.
- `max_loss`, `rms_loss`: Losses of the mechanism for the schema, at unit sensitivity of the release
  ([McMahan24], section 3.2); no value without noise.
- Any other name: A number of the run's privacy plan or of the output of `dpfl train`, such
  as `epsilon` or `noise_multiplier`.
"""

import csv
import dataclasses
import functools
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpfl import Participation, _storage, errors, mechanisms
from dpfl.accounting.records import archive
from dpfl.studies import definition

SMALLER_IS_BETTER = ('loss', 'rounds_to_threshold', 'epsilon', 'rho', 'max_loss', 'rms_loss')
SMOOTHED = ('accuracy', 'accuracy_with_oov', 'loss')
_OF_MECHANISM = ('max_loss', 'rms_loss')
_OF_PLAN = ('noise_multiplier', 'clip_norm', 'clients_per_round')


@dataclasses.dataclass(frozen=True)
class Curve:
    """The evaluations of a run; each field is an array [evaluations].

    Attributes:
      rounds: Number of rounds before each evaluation.
      epsilon: Epsilon of those rounds; infinite without noise.
      accuracy, loss: Mean of the last `smooth` evaluations, of all of them as long as there are
        fewer.
      accuracy_with_oov: The same; None for a task without words.
    """

    rounds: np.ndarray
    epsilon: np.ndarray
    accuracy: np.ndarray
    loss: np.ndarray
    accuracy_with_oov: np.ndarray | None = None

    def smoothed(self, name: str) -> np.ndarray:
        """The values of one of `SMOOTHED`.

        Raises:
          ArgumentError: If the run has no such metric.
        """
        values = getattr(self, name)
        if values is None:
            raise errors.ArgumentError('measures', name, 'is not measured')
        return values


@dataclasses.dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
      values: Measures by name; None if the run has no such number.
      is_bound: Names of the measures that are lower bounds.
      curve: Evaluations of the run.
    """

    values: Mapping[str, float | None]
    is_bound: frozenset[str]
    curve: Curve


def read(study: definition.Study, folder: pathlib.Path, result: Mapping[str, Any]) -> Run:
    """Reads the measures of a run.

    Args:
      study: The study, which says what is measured.
      folder: Directory of the run.
      result: Values that `dpfl train` printed.

    Raises:
      StorageError: If a file of the run cannot be read.
      ValueError: If a file is not that of a run, or a measure does not exist.
    """
    curve = _curve(folder / 'metrics.csv', study.smooth)
    rounds, is_bound = rounds_to(curve, study.threshold, result['rounds'])
    values: dict[str, float | None] = {}
    for name in dict.fromkeys([*study.measures, *study.orders, *_claimed(study)]):
        if name in SMOOTHED:
            values[name] = _finite(curve.smoothed(name)[-1])
        elif name == 'rounds_to_threshold':
            values[name] = rounds
        elif name in _OF_MECHANISM or name in _OF_PLAN:
            values[name] = _of_plan(str(folder), name)
        elif name in result:
            values[name] = _finite(result[name])
        else:
            raise errors.ArgumentError('measures', name, 'is not measured')
    bounds = {'rounds_to_threshold'} & {*values} if is_bound else ()
    return Run(values, frozenset(bounds), curve)


def rounds_to(curve: Curve, threshold: float | None, rounds: int) -> tuple[float | None, bool]:
    """Rounds until the accuracy reaches a threshold, and whether this is only a lower bound."""
    if threshold is None:
        return None, False
    reached = np.flatnonzero(curve.accuracy >= threshold)
    return (float(curve.rounds[reached[0]]), False) if reached.size else (float(rounds + 1), True)


def smoothed(values: Sequence[float], count: int) -> np.ndarray:
    """Moving averages: the mean of each value and up to `count - 1` values before it."""
    return np.array(
        [np.mean(values[max(0, end - count) : end]) for end in range(1, len(values) + 1)]
    )


def _claimed(study: definition.Study) -> list[str]:
    return [claim.measure for claim in study.claims]


def _curve(path: pathlib.Path, smooth: int) -> Curve:
    with _storage.naming(path), open(path, newline='') as file:
        rows = [row for row in csv.DictReader(file) if row.get('accuracy')]
    if not rows:
        raise ValueError(f'{path}: has no evaluation')
    columns = {
        name: [float(row[name]) for row in rows]
        for name in ('round', 'epsilon', *SMOOTHED)
        if name in rows[0]
    }
    return Curve(
        np.array(columns['round']),
        np.array(columns['epsilon']),
        **{name: smoothed(columns[name], smooth) for name in SMOOTHED if name in columns},
    )


def _of_plan(folder: str, name: str) -> float | None:
    plan = archive.read_plan(folder).plan
    if name in _OF_PLAN:
        return float(getattr(plan, name))
    if not plan.noise_multiplier or plan.sampling is not None:
        return None
    return _loss(plan.mechanism, plan.participation, name)


@functools.lru_cache(maxsize=1000)
def _loss(mechanism: mechanisms.Mechanism, participation: Participation, name: str) -> float:
    return float(getattr(mechanism, name)(participation))


def _finite(value: float | None) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None
