"""What a membership test can reach against a guarantee: the trade-off curve of f-DP ([Dong22]).

Whoever has seen all that a run releases, and knows everything but whether a client's data were as
they are or as in a neighbouring run, tests which of the two it was. At a given false positive rate
no test has a larger true positive rate than the trade-off curve says.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Annotated

import numpy as np
import scipy

from dpfl import _validate
from dpfl._validate import Limits
from dpfl.accounting import dp, events
from dpfl.accounting.losses import loss_distribution
from dpfl.accounting.losses.dominating_pairs import Neighbours
from dpfl.mechanisms import rounding

# False positive rates of a curve, unless others are asked for.
FALSE_POSITIVE_RATES = (
    1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9,
)  # fmt: skip
# Relative rounding error of a rate that comes from a loss distribution.
_ROUNDING = 1e-9
# How much coarser the grid is than for epsilon.
_COARSENESS = 16.0
# The false positive rates at which two curves are compared. Beyond, curves of samples have no
# digits left.
_LEAST, _MOST = 1e-9, 1 - 1e-6
# Rates of the first look, and between two of these where the curves change places.
_RATES, _FINER = 161, 17
# Curves closer than this, relative to their distance from the diagonal, are the same: those of
# samples come from a grid.
_TOLERANCE = 1e-3


Rate = Annotated[float, Limits('probability', minimum=0, maximum=1)]


@dataclasses.dataclass(frozen=True)
class Rates:
    """A point of a trade-off curve.

    Attributes:
      fpr: false positive rate of a membership test.
      tpr: its largest true positive rate, rounded up.
    """

    fpr: Rate
    tpr: Rate


@dataclasses.dataclass(frozen=True)
class Tradeoff:
    """Upper bounds of what a membership test can reach.

    Attributes:
      points: pairs of false and largest true positive rate.
      advantage: largest difference of true and false positive rate.
    """

    points: tuple[tuple[float, float], ...]
    advantage: Rate

    @property
    def rates(self) -> tuple[Rates, ...]:
        """The points of the curve by names."""
        return tuple(Rates(*point) for point in self.points)

    @property
    def error(self) -> Rate:
        """Least probability of a wrong answer if both runs are equally likely (Bayes risk)."""
        return max(0.0, (1 - self.advantage) / 2 - rounding.UNIT)  # An advantage is rounded.


def of_mu(mu: float, rates: Sequence[float] = FALSE_POSITIVE_RATES) -> Tradeoff:
    """The curve of a Gaussian release, exact: `Phi(Phi^-1(fpr) + mu)`.

    Args:
      mu: Gaussian DP parameter, at least 0; infinity without noise.
      rates: false positive rates, strictly between 0 and 1.

    Raises:
      ArgumentError: if a number is out of its range.
    """
    rates = _rates(rates)
    if math.isinf(mu) and mu > 0:
        return Tradeoff(tuple((rate, 1.0) for rate in rates), 1.0)
    mu = _validate.number('mu', mu, minimum=0)
    return Tradeoff(
        tuple((rate, float(scipy.special.ndtr(scipy.special.ndtri(rate) + mu))) for rate in rates),
        math.erf(mu / math.sqrt(8)),
    )


def of_event(
    event: dp.Event,
    neighbours: Neighbours | None = None,
    slack: float = 0.0,
    rates: Sequence[float] = FALSE_POSITIVE_RATES,
) -> Tradeoff:
    """The curve of an event; for samples an upper bound by the privacy loss distribution.

    Args:
      event, neighbours: as in `events.bound`.
      slack: bound on the logarithm of the quotient of a probability and that of the event, as with
        hardened noise.
      rates: false positive rates, strictly between 0 and 1.

    Raises:
      ArgumentError: if a number is out of its range, or the event is not supported.
    """
    rates = _rates(rates)
    releases = events.sampled_releases(event, neighbours)
    more, revealed = math.exp(slack), events.revealing_probability(event)
    if revealed >= 1:
        return Tradeoff(tuple((rate, 1.0) for rate in rates), 1.0)
    # A test that waits for what is revealed has no false positives by it.
    near = [min(rate * more / (1 - revealed), 1 - 1e-16) for rate in rates]
    if releases is None:
        curve = of_mu(events.mu_without_amplification(event, neighbours), near)
    else:
        try:
            curve = _of_curves(loss_distribution.curves(releases, _COARSENESS), near)
        except (OverflowError, ValueError, ZeroDivisionError, FloatingPointError):
            # The loss distribution does not fit: everybody in every sample is worse.
            curve = of_mu(events.mu_without_amplification(event, neighbours), near)
    return Tradeoff(
        tuple(
            (rate, min(1.0, revealed + (1 - revealed) * true * more))
            for rate, (_, true) in zip(rates, curve.points, strict=True)
        ),
        min(1.0, revealed + (1 - revealed) * (curve.advantage + 2 * math.expm1(slack))),
    )


def limited(curve: Tradeoff, guarantees: Sequence[tuple[float, float]]) -> Tradeoff:
    """The curve if (epsilon, delta)-DP holds as well, in both orders of the neighbours.

    Args:
      curve: of a release.
      guarantees: pairs of epsilon, at least 0 or infinite, and delta.
    """
    known = [pair for pair in guarantees if math.isfinite(pair[0])]
    if not known:
        return curve
    epsilons, deltas = map(np.array, zip(*known, strict=True))
    rates, largest = zip(*curve.points, strict=True)
    more = _of_curves([(epsilons, deltas)] * 2, rates)
    # Where both lines of a pair meet: t = delta + e^epsilon x and x = 1 - t.
    slopes = np.exp(np.minimum(epsilons, 700.0))
    advantages = (slopes - 1 + 2 * deltas) / (slopes + 1) * (1 + _ROUNDING)
    return Tradeoff(
        tuple(
            (rate, min(one, other))
            for rate, one, (_, other) in zip(rates, largest, more.points, strict=True)
        ),
        min(curve.advantage, float(advantages.min())),
    )


def _rates(rates: Sequence[float]) -> tuple[float, ...]:
    return tuple(_validate.number('fpr', rate, above=0, below=1) for rate in rates)


def _of_curves(orders: Sequence[tuple[np.ndarray, np.ndarray]], rates: Sequence[float]) -> Tradeoff:
    """The curve from points (epsilon, delta) of both orders of the neighbours.

    Let (P, Q) have delta and (Q, P) have delta', and let a test answer P with probability t under P
    and x under Q. For every epsilon, t <= delta + e^epsilon x, and the opposite answer gives
    1 - x <= delta' + e^epsilon (1 - t).
    """
    with np.errstate(over='ignore'):
        lines = [
            (np.exp(epsilons), deltas, np.exp(-epsilons), 1 - deltas) for epsilons, deltas in orders
        ]
    largest = np.zeros(len(rates))
    for (slopes, deltas, _, _), (_, _, shares, rests) in zip(lines, lines[::-1], strict=True):
        for i, rate in enumerate(rates):
            direct = np.min(deltas + slopes * rate)
            indirect = 1 - np.max(shares * (rests - rate))
            largest[i] = max(largest[i], min(direct, indirect))
    largest = np.minimum(largest * (1 + _ROUNDING), 1.0)
    points = zip(rates, largest.tolist(), strict=True)
    # The advantage is delta at epsilon 0, from points on either side of 0. Delta does not increase
    # with epsilon, and 1 - delta at most by the factor e^epsilon.
    advantage = 1.0
    for epsilons, deltas in orders:
        below, above = epsilons <= 0, epsilons >= 0
        from_above = 1 - np.exp(-epsilons[above]) * (1 - deltas[above])
        advantage = min(advantage, deltas[below].min(initial=1.0), from_above.min(initial=1.0))
    return Tradeoff(tuple(points), min(1.0, float(advantage) * (1 + _ROUNDING)))


# From false positive rates to a trade-off curve at these.
Curve = Callable[[Sequence[float]], Tradeoff]


@dataclasses.dataclass(frozen=True)
class Stretch:
    """False positive rates at which the same curve is the lower one.

    Attributes:
      start, end: least and largest of these rates.
      lower: 'first' or 'second': against this one a membership test reaches less.
    """

    start: float
    end: float
    lower: str


def order(first: Curve, second: Curve) -> tuple[Stretch, ...]:
    """Where which of two curves is the lower one, from false positive rates 1e-9 to 1 - 1e-6.

    Curves are compared as normal quantiles of the true minus those of the false positive rate, for
    a Gaussian release its mu. The rates where they cross are interpolated; they have about three
    digits.

    Returns:
      One stretch if one curve is lower wherever they differ, more if they cross, none if they are
      the same.
    """
    logits = np.linspace(scipy.special.logit(_LEAST), scipy.special.logit(_MOST), _RATES)
    differences = _differences(first, second, logits)
    brackets = _changes(differences)
    if brackets:
        more = [np.linspace(logits[left], logits[right], _FINER)[1:-1] for left, right in brackets]
        logits = np.concatenate([logits, *more])
        differences = np.concatenate(
            [differences, _differences(first, second, np.concatenate(more))]
        )
        by_rate = np.argsort(logits)
        logits, differences = logits[by_rate], differences[by_rate]
    (known,) = np.nonzero(differences)
    if not known.size:
        return ()
    crossings = []
    for left, right in _changes(differences):
        # Where the line through both points is 0; between them, if one of them is infinite.
        low, high = differences[left], differences[right]
        share = low / (low - high) if np.isfinite(low) and np.isfinite(high) else 0.5
        crossing = logits[left] + share * (logits[right] - logits[left])
        crossings.append(float(scipy.special.expit(crossing)))
    limits = [_LEAST, *crossings, _MOST]
    sides = ('first', 'second') if differences[known[0]] < 0 else ('second', 'first')
    return tuple(
        Stretch(start, end, side)
        for (start, end), side in zip(
            itertools.pairwise(limits), itertools.cycle(sides), strict=False
        )
    )


def _differences(first: Curve, second: Curve, logits: np.ndarray) -> np.ndarray:
    """How far the first curve lies above the second; 0 where they are the same."""
    rates = scipy.special.expit(logits)
    one, other = (
        np.array([true for _, true in curve(rates.tolist()).points]) for curve in (first, second)
    )
    # Above it, the rest of the true positive rate is rounding.
    one, other = (np.where(rate > _MOST, 1.0, rate) for rate in (one, other))
    with np.errstate(invalid='ignore'):
        difference = scipy.special.ndtri(one) - scipy.special.ndtri(other)
        size = np.minimum(
            scipy.special.ndtri(one), scipy.special.ndtri(other)
        ) - scipy.special.ndtri(rates)
    return np.where((one == other) | (np.abs(difference) <= _TOLERANCE * size), 0.0, difference)


def _changes(differences: np.ndarray) -> list[tuple[int, int]]:
    """Neighbouring places of differences other than 0 with opposite signs."""
    (known,) = np.nonzero(differences)
    return [
        (int(left), int(right))
        for left, right in itertools.pairwise(known)
        if (differences[left] < 0) != (differences[right] < 0)
    ]
