"""How well one measure of the points predicts another, such as a mechanism's loss its accuracy.

[McMahan24], section 2.5, leaves open whether max or rms loss says more about the accuracy of a
model. For each seed the outcome is regressed on the logarithm of each predictor over the points,
which gives a share of explained variance (R squared) and a rank correlation (Spearman). Two
predictors are compared on the differences of their R squared, seed by seed. No TensorFlow.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from scipy import stats

from dpfl.errors import ArgumentError
from dpfl.studies import definition, statistics

_FEWEST_POINTS = 4


@dataclasses.dataclass(frozen=True)
class Prediction:
    """How well predictors explain an outcome.

    Attributes:
      outcome: Measure that is predicted.
      points: Names of the points that have the outcome and all predictors.
      r_squared: By predictor, the mean over the seeds of the share of the outcome's variance over
        the points that a straight line in the logarithm of the predictor explains.
      rank_correlation: By predictor, the mean of Spearman's rank correlation over the points.
      difference: R squared of the first predictor minus that of the second, seed by seed; None
        unless there are two.
      better: The predictor whose R squared is higher in the whole interval of the difference; None
        if that is not settled.
    """

    outcome: str
    points: tuple[str, ...]
    r_squared: Mapping[str, statistics.Interval]
    rank_correlation: Mapping[str, statistics.Interval]
    difference: statistics.Interval | None
    better: str | None


def predict(outcome: str, predictors: Sequence[str], runs: statistics.Runs) -> Prediction:
    """Regresses an outcome on each predictor, over all points that have them.

    Raises:
      ArgumentError: If fewer than four points have all measures, or a predictor is not positive.
    """
    names = (outcome, *predictors)
    points = [point for point in runs if all(statistics.summary(runs[point], n) for n in names)]
    if len(points) < _FEWEST_POINTS:
        raise ArgumentError('predictions', outcome, f'needs at least {_FEWEST_POINTS} points')
    # [seeds, points] for each measure
    values = {
        name: np.array([[run.values[name] for run in runs[point]] for point in points], float).T
        for name in names
    }
    squares, ranks = {}, {}
    for name in predictors:
        if not (values[name] > 0).all():
            raise ArgumentError('predictions', name, 'must be a measure that is positive')
        pairs = list(zip(np.log(values[name]), values[outcome], strict=True))
        squares[name] = [_r_squared(each, result) for each, result in pairs]
        ranks[name] = [float(stats.spearmanr(each, result)[0]) for each, result in pairs]
    difference, better = None, None
    if len(predictors) == 2:
        one, other = predictors
        difference = statistics.interval(
            [a - b for a, b in zip(squares[one], squares[other], strict=True)]
        )
        better = one if difference.low > 0 else other if difference.high < 0 else None
    return Prediction(
        outcome,
        tuple(points),
        {name: statistics.interval(squares[name]) for name in predictors},
        {name: statistics.interval(ranks[name]) for name in predictors},
        difference,
        better,
    )


def by_value(
    study: definition.Study, runs: statistics.Runs
) -> dict[str | None, tuple[Prediction, ...]]:
    """The predictions of a study at each value of its axis, or for None without an axis."""
    if not study.predictions:
        return {}
    found = {}
    for value in dict.fromkeys(point.value for point in study.points):
        here = {point.name: runs[point.name] for point in study.points if point.value == value}
        found[value] = tuple(
            predict(outcome, predictors, here) for outcome, predictors in study.predictions.items()
        )
    return found


def _r_squared(predictor: np.ndarray, outcome: np.ndarray) -> float:
    """Share of the variance of the outcome that the best straight line explains; both [points]."""
    if np.ptp(outcome) == 0 or np.ptp(predictor) == 0:
        return 0.0
    return float(np.corrcoef(predictor, outcome)[0, 1] ** 2)
