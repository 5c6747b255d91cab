"""What the runs of a study show: measures, claims, rankings and predictions.

Means of independent values have confidence intervals.

Measures of a run:
- `accuracy`, `accuracy_with_oov`, `loss`: mean of the last `smooth` evaluations on held-out
  clients. `accuracy_with_oov` is AccuracyTop1 of [McMahan18], appendix B.
- `rounds_to_threshold`: rounds until the mean accuracy first reaches the threshold of the study. If
  it never does, one more than the rounds of the run, marked as a lower bound.
- `max_loss`, `rms_loss`: losses of the mechanism for the schema, at unit sensitivity of the release
  ([McMahan24], section 3.2); no value without noise.
- `epsilon`, `rho`, and numbers of the privacy plan such as `noise_multiplier`.
"""

import dataclasses
import functools
import itertools
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from dpfl import Participation, _validate, accounting, errors, mechanisms
from experiments.studies.shared import finished_run, grid

CONFIDENCE = 0.95
# A relative half-width below this is rounding: all values are the same.
_ROUNDING = 1e-9


@dataclasses.dataclass(frozen=True)
class Interval:
    """A mean with its confidence interval, by Student's t.

    Attributes:
      mean: mean of the values.
      half_width: the interval is the mean plus or minus this; None for a single value.
      count: number of values.
      is_lower_bound: whether some values, and so the mean, are lower bounds.
    """

    mean: float
    half_width: float | None
    count: int
    is_lower_bound: bool = False

    @property
    def low(self) -> float:
        """Lower end of the interval; minus infinity for a single value."""
        return -math.inf if self.half_width is None else self.mean - self.half_width

    @property
    def high(self) -> float:
        """Upper end of the interval; infinity for a single value."""
        return math.inf if self.half_width is None else self.mean + self.half_width

    def __str__(self) -> str:
        """Mean and half-width, the half-width with two digits."""
        text = f'{self.mean:.4g}'
        if self.half_width and self.half_width > _ROUNDING * abs(self.mean):
            digits = max(0, 1 - math.floor(math.log10(self.half_width)))
            text = f'{self.mean:.{digits}f} ± {self.half_width:.{digits}f}'
        return f'>= {text}' if self.is_lower_bound else text


def interval(values: Sequence[float], is_lower_bound: bool = False) -> Interval:
    """The mean of independent values with its confidence interval.

    Raises:
      ValueError: if there are no values.
    """
    count = _validate.integer('values', len(values), minimum=1)
    half_width = None
    if count > 1:
        quantile = stats.t.ppf((1 + CONFIDENCE) / 2, count - 1)
        half_width = float(quantile * np.std(values, ddof=1) / math.sqrt(count))
    return Interval(float(np.mean(values)), half_width, count, is_lower_bound)


SMALLER_IS_BETTER = ('loss', 'rounds_to_threshold', 'epsilon', 'rho', 'max_loss', 'rms_loss')
SMOOTHED = ('accuracy', 'accuracy_with_oov', 'loss')
TO_THRESHOLD = 'rounds_to_threshold'
_LOSSES = ('max_loss', 'rms_loss')
_OF_PLAN = ('noise_multiplier', 'clip_norm', 'clients_per_round')
HOLDS, FAILS, OPEN = 'holds', 'fails', 'not settled'
# A straight line passes through two points whatever they are.
_FEWEST_POINTS = 4


@dataclasses.dataclass(frozen=True)
class Measured:
    """What was measured of a finished run.

    Attributes:
      values: measures by name; None if the run has no such number.
      is_bound: names of the measures that are lower bounds.
      curve: columns of the evaluations by name, each [evaluations]: `round`, `epsilon`, and those
        of `SMOOTHED` that were measured, smoothed.
    """

    values: Mapping[str, float | None]
    is_bound: frozenset[str]
    curve: Mapping[str, np.ndarray]


def read(study: grid.Study, folder: pathlib.Path) -> Measured:
    """Reads the measures of a run.

    Args:
      study: the study, which says what is measured.
      folder: directory of the run.

    Raises:
      StorageError: if a file of the run cannot be read.
      ValueError: if a file is not that of a run, or a measure does not exist.
    """
    run = finished_run.open_run(folder)
    rows = [row for row in run.rows if 'accuracy' in row]
    if not rows:
        raise ValueError(f'{folder}: has no evaluation')
    curve = {
        name: np.array([row[name] for row in rows])
        for name in ('round', 'epsilon', *SMOOTHED)
        if name in rows[0]
    }
    curve |= {name: smoothed(curve[name], study.smooth) for name in SMOOTHED if name in curve}
    rounds, is_bound = rounds_to(curve, study.threshold, run.report.guarantee.rounds)
    guarantee = {'epsilon': run.report.guarantee.epsilons[0], 'rho': run.report.guarantee.rho}
    values: dict[str, float | None] = {}
    claimed = [claim.measure for claim in study.claims]
    for name in dict.fromkeys([*study.measures, *study.orders, *claimed]):
        if name in SMOOTHED and name in curve:
            values[name] = _finite(curve[name][-1])
        elif name == TO_THRESHOLD:
            values[name] = rounds
        elif name in _LOSSES or name in _OF_PLAN:
            values[name] = _of_plan(run.records.record.plan, name)
        elif name in guarantee:
            values[name] = _finite(guarantee[name])
        else:
            raise errors.ArgumentError('measures', name, 'is not measured')
    return Measured(values, frozenset({TO_THRESHOLD} & {*values} if is_bound else ()), curve)


def rounds_to(
    curve: Mapping[str, np.ndarray], threshold: float | None, rounds: int
) -> tuple[float | None, bool]:
    """Rounds until the accuracy reaches a threshold, and whether this is only a lower bound."""
    if threshold is None:
        return None, False
    reached = np.flatnonzero(curve['accuracy'] >= threshold)
    return (float(curve['round'][reached[0]]), False) if reached.size else (float(rounds + 1), True)


def smoothed(values: Sequence[float] | np.ndarray, count: int) -> np.ndarray:
    """Moving averages: the mean of each value and up to `count - 1` values before it."""
    return np.array(
        [np.mean(values[max(0, end - count) : end]) for end in range(1, len(values) + 1)]
    )


def _of_plan(plan: accounting.PrivacyPlan, name: str) -> float | None:
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


# Runs by the name of the point, in the order of the seeds.
Runs = Mapping[str, Sequence[Measured]]


def summary(runs: Sequence[Measured], measure: str) -> Interval | None:
    """Mean and interval of a measure at a point; None if a run of the point does not have it."""
    values = [value for run in runs if (value := run.values[measure]) is not None]
    if len(values) < len(runs):
        return None
    return interval(values, any(measure in run.is_bound for run in runs))


@dataclasses.dataclass(frozen=True)
class Finding:
    """What the runs say about a claim.

    Attributes:
      claim: the claim.
      difference: mean of the differences, higher minus lower, pair by pair; None if a run lacks
        the measure.
      verdict: `holds` if the whole interval is above the claimed difference, `fails` if it is
        below, `not settled` otherwise.
    """

    claim: grid.Claim
    difference: Interval | None
    verdict: str


def check(claim: grid.Claim, runs: Runs) -> Finding:
    """Compares two points seed by seed, so that whatever a seed sets for both cancels.

    A lower bound at the higher point only makes the difference too small, so the claim can still
    hold. A lower bound at the lower point makes it too large, so the claim can still fail.
    """
    higher, lower = runs[claim.higher], runs[claim.lower]
    differences = _differences(claim.measure, higher, lower)
    if differences is None:
        return Finding(claim, None, OPEN)
    bound_above = any(claim.measure in run.is_bound for run in higher)
    bound_below = any(claim.measure in run.is_bound for run in lower)
    difference = interval(differences, bound_above)
    verdict = OPEN
    if difference.low > claim.by and not bound_below:
        verdict = HOLDS
    elif difference.high < claim.by and not bound_above:
        verdict = FAILS
    return Finding(claim, difference, verdict)


@dataclasses.dataclass(frozen=True)
class Orders:
    """The points from best to worst by several measures.

    Attributes:
      best_to_worst: for each measure, the names of the points that have all measures, best first.
      agree: whether all these orders are the same.
      not_told_apart: pairs of points, better and worse, whose first measure does not differ clearly
        seed by seed.
      agree_on_others: whether all other pairs are in the same order by every measure.
    """

    best_to_worst: Mapping[str, tuple[str, ...]]
    agree: bool
    not_told_apart: tuple[tuple[str, str], ...]
    agree_on_others: bool


def orders(names: Sequence[str], runs: Runs) -> Orders:
    """Sorts the points by each of the measures."""
    points = [point for point in runs if all(summary(runs[point], name) for name in names)]
    sorted_points = {
        name: tuple(sorted(points, key=lambda point: _worse(name, runs[point]))) for name in names
    }
    first, best = names[0], sorted_points[names[0]]
    sign = -1 if first in SMALLER_IS_BETTER else 1
    unsettled, agree_on_others = [], True
    for better, worse in itertools.combinations(best, 2):
        differences = _differences(first, runs[better], runs[worse])
        assert differences is not None  # These points have all measures.
        if not interval([sign * difference for difference in differences]).low > 0:
            unsettled.append((better, worse))
        elif any(order.index(better) > order.index(worse) for order in sorted_points.values()):
            agree_on_others = False
    agree = len({*sorted_points.values()}) <= 1
    return Orders(sorted_points, agree, tuple(unsettled), agree_on_others)


def _worse(name: str, runs: Sequence[Measured]) -> float:
    """Sort key: the worse a point by a measure, which it has, the larger the number."""
    found = summary(runs, name)
    assert found is not None
    return found.mean if name in SMALLER_IS_BETTER else -found.mean


def _differences(
    measure: str, higher: Sequence[Measured], lower: Sequence[Measured]
) -> list[float] | None:
    """Differences of a measure, seed by seed; None if a run does not have it."""
    pairs = [
        (one.values[measure], other.values[measure])
        for one, other in zip(higher, lower, strict=True)
    ]
    found = [one - other for one, other in pairs if one is not None and other is not None]
    return found if len(found) == len(pairs) else None


@dataclasses.dataclass(frozen=True)
class Prediction:
    """How well predictors, such as losses of a mechanism, explain an outcome, such as accuracy.

    [McMahan24], section 2.5, leaves open whether max or rms loss says more about the accuracy.

    Attributes:
      outcome: measure that is predicted.
      points: names of the points that have the outcome and all predictors.
      r_squared: by predictor, the mean over the seeds of the share of the outcome's variance over
        the points that a straight line in the logarithm of the predictor explains.
      rank_correlation: by predictor, the mean of Spearman's rank correlation over the points.
      difference: R squared of the first predictor minus that of the second, seed by seed; None
        unless there are two.
      better: the predictor whose R squared is higher in the whole interval of the difference; None
        if that is not settled.
    """

    outcome: str
    points: tuple[str, ...]
    r_squared: Mapping[str, Interval]
    rank_correlation: Mapping[str, Interval]
    difference: Interval | None
    better: str | None


def predict(outcome: str, predictors: Sequence[str], runs: Runs) -> Prediction:
    """Regresses an outcome on each predictor, over all points that have them.

    Raises:
      ArgumentError: if fewer than four points have all measures, or a predictor is not positive.
    """
    names = (outcome, *predictors)
    points = [point for point in runs if all(summary(runs[point], name) for name in names)]
    if len(points) < _FEWEST_POINTS:
        raise errors.ArgumentError('predictions', outcome, f'needs {_FEWEST_POINTS} points')
    # [seeds, points] for each measure
    values = {
        name: np.array([[run.values[name] for run in runs[point]] for point in points], float).T
        for name in names
    }
    squares, ranks = {}, {}
    for name in predictors:
        if not (values[name] > 0).all():
            raise errors.ArgumentError('predictions', name, 'must be a measure that is positive')
        pairs = list(zip(np.log(values[name]), values[outcome], strict=True))
        squares[name] = [_r_squared(each, result) for each, result in pairs]
        ranks[name] = [float(stats.spearmanr(each, result)[0]) for each, result in pairs]
    difference, better = None, None
    if len(predictors) == 2:
        one, other = predictors
        difference = interval([a - b for a, b in zip(squares[one], squares[other], strict=True)])
        better = one if difference.low > 0 else other if difference.high < 0 else None
    return Prediction(
        outcome,
        tuple(points),
        {name: interval(squares[name]) for name in predictors},
        {name: interval(ranks[name]) for name in predictors},
        difference,
        better,
    )


def _r_squared(predictor: np.ndarray, outcome: np.ndarray) -> float:
    """Share of the variance of the outcome that the best straight line explains; both [points]."""
    if np.ptp(outcome) == 0 or np.ptp(predictor) == 0:
        return 0.0
    return float(np.corrcoef(predictor, outcome)[0, 1] ** 2)


@dataclasses.dataclass(frozen=True)
class Results:
    """A study with its runs, and what they show.

    Points at different values of the axis are different tasks, which no loss of a mechanism ranks:
    orders and predictions are made for each value.

    Attributes:
      study: the study.
      runs: its runs.
      seeds: their seeds.
    """

    study: grid.Study
    runs: Runs
    seeds: Sequence[int]

    def mean(self, point: str, measure: str) -> Interval | None:
        """Mean and interval of a measure at a point; None if a run of it lacks the measure."""
        return summary(self.runs[point], measure)

    @functools.cached_property
    def findings(self) -> list[Finding]:
        """What the runs say about each claim."""
        return [check(claim, self.runs) for claim in self.study.claims]

    @functools.cached_property
    def orders(self) -> dict[str | None, Orders]:
        """The orders by the value of the axis, by None without an axis; empty without measures."""
        names = self.study.orders
        return {value: orders(names, runs) for value, runs in self._parts() if names}

    @functools.cached_property
    def predictions(self) -> dict[str | None, list[Prediction]]:
        """The predictions by the value of the axis, by None without an axis; empty for none."""
        wanted = self.study.predictions
        return {
            value: [predict(outcome, names, runs) for outcome, names in wanted.items()]
            for value, runs in self._parts()
            if wanted
        }

    def _parts(self):
        for value, points in self.study.at_values().items():
            yield value, {point.name: self.runs[point.name] for point in points}

    def values(self) -> dict[str, Any]:
        """The results as JSON values; without an axis, orders and predictions are under ''."""
        study = self.study
        return {
            'study': study.name,
            'title': study.title,
            'mirrors': study.mirrors,
            'seeds': list(self.seeds),
            'tuned_on': list(study.tuned_on),
            'confidence': CONFIDENCE,
            'points': [
                {
                    'point': point.name,
                    'line': point.line,
                    'value': None if point.value is None else float(point.value),
                    'flags': dict(point.flags),
                    'measures': {name: _asdict(summary(runs, name)) for name in runs[0].values},
                    'runs': [
                        {'seed': seed, **run.values, 'lower_bounds': sorted(run.is_bound)}
                        for seed, run in zip(self.seeds, runs, strict=True)
                    ],
                }
                for point in study.points
                for runs in [self.runs[point.name]]
            ],
            'claims': [
                {
                    **dataclasses.asdict(each.claim),
                    'difference': _asdict(each.difference),
                    'verdict': each.verdict,
                }
                for each in self.findings
            ],
            'orders': {value or '': _asdict(each) for value, each in self.orders.items()},
            'predictions': {
                value or '': [_asdict(each) for each in found]
                for value, found in self.predictions.items()
            },
        }


def _asdict(value: Any) -> dict[str, Any] | None:
    return None if value is None else dataclasses.asdict(value)
