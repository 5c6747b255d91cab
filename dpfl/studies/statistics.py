"""Means over seeds with confidence intervals, paired differences, rankings. No TensorFlow."""

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np
from scipy import stats

from dpfl import _validate
from dpfl.studies import definition, measures

CONFIDENCE = 0.95
HOLDS, FAILS, OPEN = 'holds', 'fails', 'not settled'


@dataclasses.dataclass(frozen=True)
class Interval:
    """A mean with its confidence interval, by Student's t.

    Attributes:
      mean: Mean of the values.
      half_width: The interval is the mean plus or minus this; None for a single value.
      count: Number of values.
      is_bound: Whether some values, and so the mean, are lower bounds.
    """

    mean: float
    half_width: float | None
    count: int
    is_bound: bool = False

    @property
    def low(self) -> float:
        """Lower end of the interval; minus infinity for a single value."""
        return -math.inf if self.half_width is None else self.mean - self.half_width

    @property
    def high(self) -> float:
        """Upper end of the interval; infinity for a single value."""
        return math.inf if self.half_width is None else self.mean + self.half_width


def interval(values: Sequence[float], is_bound: bool = False) -> Interval:
    """The mean of independent values with its confidence interval.

    Raises:
      ValueError: If there are no values.
    """
    count = _validate.integer('values', len(values), minimum=1)
    half_width = None
    if count > 1:
        quantile = stats.t.ppf((1 + CONFIDENCE) / 2, count - 1)
        half_width = float(quantile * np.std(values, ddof=1) / math.sqrt(count))
    return Interval(float(np.mean(values)), half_width, count, is_bound)


# Runs by the name of the point, in the order of the seeds.
Runs = Mapping[str, Sequence[measures.Run]]


def summary(runs: Sequence[measures.Run], measure: str) -> Interval | None:
    """Mean and interval of a measure at a point; None if a run of the point does not have it."""
    values = [value for run in runs if (value := run.values[measure]) is not None]
    if len(values) < len(runs):
        return None
    return interval(values, any(measure in run.is_bound for run in runs))


@dataclasses.dataclass(frozen=True)
class Finding:
    """What the runs say about a claim.

    Attributes:
      claim: The claim.
      difference: Mean of the differences, higher minus lower, pair by pair; None if a run lacks
        the measure.
      verdict: `holds` if the whole interval is above the claimed difference, `fails` if it is
        below, `not settled` otherwise.
    """

    claim: definition.Claim
    difference: Interval | None
    verdict: str


def check(claim: definition.Claim, runs: Runs) -> Finding:
    """Compares two points seed by seed, so that whatever a seed sets for both cancels.

    A lower bound at the higher point only makes the difference too small, so the claim can still
    hold. A lower bound at the lower point makes it too large, so the claim can still fail.
    """
    pairs = list(zip(runs[claim.higher], runs[claim.lower], strict=True))
    differences = _differences(claim.measure, runs[claim.higher], runs[claim.lower])
    if differences is None:
        return Finding(claim, None, OPEN)
    bound_above = any(claim.measure in higher.is_bound for higher, _ in pairs)
    bound_below = any(claim.measure in lower.is_bound for _, lower in pairs)
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
      by_measure: For each measure, the names of the points that have all measures, best first.
      agree: Whether all these orders are the same.
      unsettled: Pairs of points, better and worse, whose first measure does not differ clearly seed
        by seed.
      agree_where_settled: Whether all other pairs are in the same order by every measure.
    """

    by_measure: Mapping[str, tuple[str, ...]]
    agree: bool
    unsettled: tuple[tuple[str, str], ...]
    agree_where_settled: bool


def orders(names: Sequence[str], runs: Runs) -> Orders:
    """Sorts the points by each of the measures."""
    points = [point for point in runs if all(summary(runs[point], name) for name in names)]
    found = {
        name: tuple(sorted(points, key=lambda point: _worse(name, runs[point]))) for name in names
    }
    first, best = names[0], found[names[0]]
    sign = -1 if first in measures.SMALLER_IS_BETTER else 1
    unsettled, agree_where_settled = [], True
    for better, worse in itertools.combinations(best, 2):
        differences = _differences(first, runs[better], runs[worse])
        assert differences is not None  # These points have all measures.
        if not interval([sign * difference for difference in differences]).low > 0:
            unsettled.append((better, worse))
        elif any(order.index(better) > order.index(worse) for order in found.values()):
            agree_where_settled = False
    agree = len({*found.values()}) <= 1
    return Orders(found, agree, tuple(unsettled), agree_where_settled)


def orders_by_value(study: definition.Study, runs: Runs) -> dict[str | None, Orders]:
    """The orders of the lines at each value of the axis, by the name of the value.

    Points at different values of the axis are different tasks, which no loss of a mechanism ranks.
    Without an axis the only key is None; without measures to rank by there is no key.
    """
    if not study.orders:
        return {}
    found = {}
    for value in dict.fromkeys(point.value for point in study.points):
        names = [point.name for point in study.points if point.value == value]
        found[value] = orders(study.orders, {name: runs[name] for name in names})
    return found


def _worse(name: str, runs: Sequence[measures.Run]) -> float:
    """Sort key: the worse a point by a measure, which it has, the larger the number."""
    found = summary(runs, name)
    assert found is not None
    return found.mean if name in measures.SMALLER_IS_BETTER else -found.mean


def _differences(
    measure: str, higher: Sequence[measures.Run], lower: Sequence[measures.Run]
) -> list[float] | None:
    """Differences of a measure, seed by seed; None if a run does not have it."""
    found = []
    for one, other in zip(higher, lower, strict=True):
        minuend, subtrahend = one.values[measure], other.values[measure]
        if minuend is None or subtrahend is None:
            return None
        found.append(minuend - subtrahend)
    return found
