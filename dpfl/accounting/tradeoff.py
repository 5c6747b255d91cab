"""What a membership test can reach against a guarantee: the trade-off curve of f-DP ([Dong22]).

Whoever has seen all that a run releases, and knows everything but whether a client's data were as
they are or as in a neighbouring run, tests which of the two it was. At a given false positive rate
no test has a larger true positive rate than the trade-off curve says.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import dp_accounting
import numpy as np
from scipy import special

from dpfl import _validate
from dpfl.accounting import events
from dpfl.accounting.losses import loss_distribution
from dpfl.accounting.losses.dominating_pairs import Neighbours

# False positive rates of a curve, unless others are asked for.
FALSE_POSITIVE_RATES = (
    1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9,
)  # fmt: skip
# Relative rounding error of a rate that comes from a loss distribution.
_ROUNDING = 1e-9
# How much coarser the grid is than for epsilon.
_COARSENESS = 16.0


@dataclasses.dataclass(frozen=True)
class Tradeoff:
    """Upper bounds of what a membership test can reach.

    Attributes:
      points: pairs of false and largest true positive rate.
      advantage: largest difference of true and false positive rate.
    """

    points: tuple[tuple[float, float], ...]
    advantage: float

    @property
    def error(self) -> float:
        """Least probability of a wrong answer if both runs are equally likely (Bayes risk)."""
        return max(0.0, (1 - self.advantage) / 2)

    def to_dict(self) -> dict[str, Any]:
        """JSON values, by the keys that a report has for them."""
        return {
            'tradeoff': [{'fpr': false, 'tpr': true} for false, true in self.points],
            'membership': {'advantage': self.advantage, 'bayes_risk': self.error},
        }


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
        tuple((rate, float(special.ndtr(special.ndtri(rate) + mu))) for rate in rates),
        math.erf(mu / math.sqrt(8)),
    )


def of_event(
    event: dp_accounting.DpEvent,
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
        found = of_mu(events.mu_without_amplification(event, neighbours), near)
    else:
        try:
            found = _of_curves(loss_distribution.curves(releases, _COARSENESS), near)
        except (OverflowError, ValueError, ZeroDivisionError, FloatingPointError):
            # The loss distribution does not fit: everybody in every sample is worse.
            found = of_mu(events.mu_without_amplification(event, neighbours), near)
    return Tradeoff(
        tuple(
            (rate, min(1.0, revealed + (1 - revealed) * true * more))
            for rate, (_, true) in zip(rates, found.points, strict=True)
        ),
        min(1.0, revealed + (1 - revealed) * (found.advantage + 2 * math.expm1(slack))),
    )


def limited(found: Tradeoff, guarantees: Sequence[tuple[float, float]]) -> Tradeoff:
    """The curve if (epsilon, delta)-DP holds as well, in both orders of the neighbours.

    Args:
      found: a curve.
      guarantees: pairs of epsilon, at least 0 or infinite, and delta.
    """
    known = [pair for pair in guarantees if math.isfinite(pair[0])]
    if not known:
        return found
    epsilons, deltas = map(np.array, zip(*known, strict=True))
    rates, largest = zip(*found.points, strict=True)
    more = _of_curves([(epsilons, deltas)] * 2, rates)
    # Where both lines of a pair meet: t = delta + e^epsilon x and x = 1 - t.
    slopes = np.exp(np.minimum(epsilons, 700.0))
    advantages = (slopes - 1 + 2 * deltas) / (slopes + 1) * (1 + _ROUNDING)
    return Tradeoff(
        tuple(
            (rate, min(one, other))
            for rate, one, (_, other) in zip(rates, largest, more.points, strict=True)
        ),
        min(found.advantage, float(advantages.min())),
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
    advantage = min(_advantage(*order) for order in orders) * (1 + _ROUNDING)
    return Tradeoff(tuple(points), min(1.0, advantage))


def _advantage(epsilons: np.ndarray, deltas: np.ndarray) -> float:
    """The advantage, which is delta at epsilon 0, from points on either side of 0."""
    below, above = epsilons <= 0, epsilons >= 0
    # Delta does not increase with epsilon, and 1 - delta at most by the factor e^epsilon.
    from_above = 1 - np.exp(-epsilons[above]) * (1 - deltas[above])
    return float(min(deltas[below].min(initial=1.0), from_above.min(initial=1.0)))
