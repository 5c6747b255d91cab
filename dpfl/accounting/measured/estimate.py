"""Epsilon from the cosines of canaries with what was released ([Andrew24]).

A canary is a random direction, uniform on the unit sphere of R^d. The cosine of a direction that
took no part with any vector that does not depend on it has a known distribution, of mean 0 and
variance 1/d, and nearly normal. Here cosines are in units of that deviation: `score = sqrt(d)
cosine`. For a Gaussian mechanism the scores of canaries that took part are about N(mu, 1).

The privacy curve of two normal distributions of different means and variances is exact. For P =
N(m, s^2) and Q = N(0, 1) the privacy loss `log P(y) / Q(y)` is a quadratic function of y, so the
set where it exceeds epsilon is a half-line, an interval or the outside of one, and

    delta(epsilon) = P(loss > epsilon) - e^epsilon Q(loss > epsilon)

needs normal tails only ([Andrew24]). The curve of a pair is the larger one of both orders. With s =
1 it is that of `accounting.gaussian` for mu = m.
"""

import dataclasses
import math
from typing import Annotated

import numpy as np
import scipy

from dpfl import _random, errors
from dpfl._validate import Deviations, Epsilon, Limits
from dpfl.accounting import gaussian

_MOST_EPSILON = 1e8
_LEAST_DEVIATION = 1e-9
CONFIDENCE = 0.95
# The spread of the scores is taken to be that of the null unless a test at this level denies it.
_LEVEL = 0.01
# Probabilities below this one are rounded up to it, which lowers a lower bound.
_LEAST_RATE = 1e-300
# Draws of all scores that a power is estimated from, and numbers that are drawn at most for it.
_DRAWS, _MOST_DRAWN = 200, 10**7


def delta(epsilon: float, mean: float, deviation: float) -> float:
    """Least delta at which N(mean, deviation^2) and N(0, 1) are epsilon-indistinguishable.

    Args:
      epsilon: at least 0.
      mean: any number.
      deviation: above 0.
    """
    # In units of P, y = mean + deviation u, the loss log P / Q is a u^2 + b u + c, whose
    # coefficients are exact also for a small deviation.
    a = 0.5 * (deviation - 1.0) * (deviation + 1.0)
    b = mean * deviation
    c = 0.5 * mean**2 - math.log(deviation)
    # Where P is the larger one, and where Q is.
    above = _set_of(a, b, c - epsilon)
    below = _set_of(-a, -b, -c - epsilon)
    p_above, q_above = _log_mass(above), _log_mass(_in_units_of_q(above, mean, deviation))
    p_below, q_below = _log_mass(below), _log_mass(_in_units_of_q(below, mean, deviation))
    return max(
        _difference(p_above, epsilon + q_above),
        _difference(q_below, epsilon + p_below),
    )


def epsilon(mean: float, deviation: float, delta_: float) -> float:
    """Least epsilon of the pair N(mean, deviation^2), N(0, 1) at a delta.

    Args:
      mean: any number.
      deviation: at least 0. Below 1e-9 it counts as 0, which gives infinity: nothing then hides
        the difference.
      delta_: strictly between 0 and 1.

    Returns:
      Epsilon to about ten digits; infinity above 1e8.
    """
    if deviation < _LEAST_DEVIATION:
        return math.inf
    if delta(0.0, mean, deviation) <= delta_:
        return 0.0
    high = 1.0
    while delta(high, mean, deviation) > delta_:
        high *= 2
        if high > _MOST_EPSILON:
            return math.inf
    return scipy.optimize.brentq(
        lambda epsilon: delta(epsilon, mean, deviation) - delta_,
        0.0,
        high,
        xtol=1e-12,
        rtol=1e-12,
    )


def _set_of(a: float, b: float, c: float) -> list[tuple[float, float]]:
    """Intervals on which `a u^2 + b u + c` is above 0."""
    if a == 0:
        if b == 0:
            return [(-math.inf, math.inf)] if c > 0 else []
        return [(-c / b, math.inf)] if b > 0 else [(-math.inf, -c / b)]
    square = b * b - 4 * a * c
    if square <= 0:
        return [(-math.inf, math.inf)] if a > 0 else []
    # Without cancellation, also for a near 0: one root is then far away.
    q = -0.5 * (b + math.copysign(math.sqrt(square), b))
    low, high = sorted((q / a, c / q)) if q else (-math.sqrt(-c / a), math.sqrt(-c / a))
    return [(-math.inf, low), (high, math.inf)] if a > 0 else [(low, high)]


def _in_units_of_q(
    intervals: list[tuple[float, float]], mean: float, deviation: float
) -> list[tuple[float, float]]:
    return [(mean + deviation * low, mean + deviation * high) for low, high in intervals]


def _log_mass(intervals: list[tuple[float, float]]) -> float:
    """Logarithm of the probability of a union of intervals under N(0, 1)."""
    logs = []
    for low, high in intervals:
        if low > 0:  # The upper tail is that of the mirror image, without cancellation.
            low, high = -high, -low
        outer, inner = scipy.special.log_ndtr(high), scipy.special.log_ndtr(low)
        if inner == -math.inf:
            logs.append(outer)
        elif inner < outer:
            logs.append(outer + math.log1p(-math.exp(inner - outer)))
    return float(scipy.special.logsumexp(logs)) if logs else -math.inf


def _difference(first: float, second: float) -> float:
    """`e^first - e^second`, or 0 if that is below 0."""
    if second >= first:
        return 0.0
    return math.exp(first) * -math.expm1(second - first)


Canaries = Annotated[int, Limits('canaries', minimum=2)]
Mu = Annotated[float, Limits('standard deviations', minimum=0, has_infinity=True)]
_Score = Annotated[float, Limits('standard deviations')]


@dataclasses.dataclass(frozen=True)
class Estimate:
    """The estimate of one attack.

    Attributes:
      observed: number of canaries that took part.
      unobserved: number of canaries that were held out.
      mean: mean score of the canaries that took part.
      deviation: standard deviation of these scores.
      null_mean: mean score of those that were held out; 0 in expectation.
      null_deviation: standard deviation of these scores; 1 in expectation.
      has_null_spread: whether `deviation` agrees with 1, so that the estimate takes it to be 1.
      epsilon: of the pair N(mean, deviation^2), N(0, 1), with deviation 1 if it has the spread of
        the null; infinity if the scores have no spread.
      epsilon_low: lower end of the confidence interval of that estimate, if scores are independent
        and normal.
      epsilon_high: upper end of that interval.
      epsilon_fitted: the same with the fitted deviation in any case. At a small delta it depends
        on tails that a few hundred scores do not show.
      mu_lower: lower confidence bound of mu; None if the claim is not one of Gaussian DP.
      epsilon_lower: lower confidence bound of epsilon; see `lower_bounds`.
    """

    observed: Canaries
    unobserved: Canaries
    mean: _Score
    deviation: Deviations
    null_mean: _Score
    null_deviation: Deviations
    has_null_spread: bool
    epsilon: Epsilon
    epsilon_low: Epsilon
    epsilon_high: Epsilon
    epsilon_fitted: Epsilon
    mu_lower: Mu | None
    epsilon_lower: Epsilon


def estimate(
    observed: np.ndarray,
    unobserved: np.ndarray,
    dimension: int,
    delta: float,
    *,
    is_gaussian: bool,
) -> Estimate:
    """The estimate from the cosines of one attack.

    Args:
      observed: cosines of the canaries that took part, at least two.
      unobserved: cosines of those that did not, at least two. They only serve to check the null.
      dimension: d, at least 2.
      delta: of the estimate, strictly between 0 and 1.
      is_gaussian: whether the claim is one of Gaussian DP, which the lower bounds then refute.

    Raises:
      ArgumentError: if there are too few canaries, or a cosine is not within [-1, 1].
    """
    for name, cosines in (('observed', observed), ('unobserved', unobserved)):
        if cosines.ndim != 1 or cosines.size < 2:
            raise errors.ArgumentError(name, cosines.size, 'must be at least 2 cosines')
        if not (np.abs(cosines) <= 1 + 1e-6).all():
            raise errors.ArgumentError(name, errors.NOT_SHOWN, 'must be within [-1, 1]')
    scores, null = math.sqrt(dimension) * observed, math.sqrt(dimension) * unobserved
    count, mean, deviation = scores.size, float(scores.mean()), float(scores.std(ddof=1))
    low, high = _deviation_interval(deviation, count, _LEVEL)
    has_null_spread = low <= 1.0 <= high
    spread = 1.0 if has_null_spread else deviation
    if has_null_spread:
        quantile = scipy.stats.norm.ppf((1 + CONFIDENCE) / 2)
        spreads = [1.0]
    else:  # Mean and spread share the probability of error.
        quantile = scipy.stats.t.ppf(1 - (1 - CONFIDENCE) / 4, count - 1)
        low, high = _deviation_interval(deviation, count, (1 - CONFIDENCE) / 2)
        spreads = [low, high, min(max(1.0, low), high)]
    margin = float(quantile) * spread / math.sqrt(count)
    box = [
        epsilon(max(0.0, corner_mean), corner_spread, delta)
        for corner_mean in (mean - margin, mean + margin)
        for corner_spread in spreads
    ]
    mu_lower, epsilon_lower = lower_bounds(observed, dimension, delta, is_gaussian=is_gaussian)
    return Estimate(
        observed=count,
        unobserved=null.size,
        mean=mean,
        deviation=deviation,
        null_mean=float(null.mean()),
        null_deviation=float(null.std(ddof=1)),
        has_null_spread=has_null_spread,
        epsilon=epsilon(max(0.0, mean), spread, delta),
        epsilon_low=min(box),
        epsilon_high=max(box),
        epsilon_fitted=epsilon(max(0.0, mean), deviation, delta),
        mu_lower=mu_lower,
        epsilon_lower=epsilon_lower,
    )


def lower_bounds(
    cosines: np.ndarray, dimension: int, delta: float, *, is_gaussian: bool
) -> tuple[float | None, float]:
    """Lower bounds of mu and of epsilon, each at confidence `CONFIDENCE`.

    They assume that the scores of canaries that took part are independent, and nothing about their
    distribution. Every score is a threshold. The false positive rate is that of the null, exactly;
    the true positive rate is bounded at all thresholds at once by the inequality of Dvoretzky,
    Kiefer and Wolfowitz with the constant of Massart.

    Args:
      cosines: of the canaries that took part.
      dimension: d.
      delta: of epsilon.
      is_gaussian: whether the claim is one of Gaussian DP. Then mu is bounded: a test against
        mu-GDP has at most the true positive rate `Phi(Phi^-1(false positive rate) + mu)`; and
        epsilon is that of mu. Otherwise `true positive rate <= e^epsilon rate + delta`, and the
        same for the errors of the other kind, bound epsilon.
    """
    ordered = np.sort(cosines)
    count = ordered.size
    true = _true_rates(count)
    false = np.maximum(null_tail(ordered, dimension), _LEAST_RATE)
    is_useful = true > 0
    if not is_useful.any():
        return (0.0 if is_gaussian else None), 0.0
    true, false = true[is_useful], false[is_useful]
    if is_gaussian:
        mu = max(0.0, float(np.max(scipy.special.ndtri(true) - scipy.special.ndtri(false))))
        return mu, gaussian.exact_epsilon(mu, delta) if mu else 0.0
    with np.errstate(divide='ignore', invalid='ignore'):
        both = np.concatenate(
            [
                np.log((true - delta) / false),
                np.log((1 - false - delta) / (1 - true)),
            ]
        )
    known = both[np.isfinite(both)]
    return None, max(0.0, float(known.max())) if known.size else 0.0


def _true_rates(count: int) -> np.ndarray:
    """Lower bounds of the true positive rates at the scores, all at once, float64 [count]."""
    slack = math.sqrt(math.log(1 / (1 - CONFIDENCE)) / (2 * count))
    return 1.0 - np.arange(count) / count - slack


def power(
    releases: Estimate, dimension: int, mu_planned: float, mu_claimed: float, share: float
) -> float:
    """Probability that the lower bound of mu is above the claim with a share of the noise.

    A canary of a correct run has the mean score `mu_planned`, or less where the sum of real updates
    hides it too. So the mean score tells the size of that sum, which is the same with less noise.

    Args:
      releases: the estimate of the run from all releases.
      dimension: d.
      mu_planned: of the canaries by the plan, above 0.
      mu_claimed: that the bound is compared with.
      share: of the planned deviation of the noise, within [0, 1].
    """
    seen = min(max(releases.mean, 0.0) / mu_planned, 1.0)
    if not seen:
        return 0.0
    hidden = math.hypot(share, math.sqrt(1 / seen**2 - 1))
    if not hidden:
        return 1.0
    mean = mu_planned / hidden
    # The canary itself is part of the vector that the cosine divides by.
    mean /= math.hypot(1.0, mean / math.sqrt(dimension))
    count = releases.observed
    draws = max(20, min(_DRAWS, _MOST_DRAWN // count))
    true = _true_rates(count)
    quantiles = scipy.special.ndtri(true[true > 0])
    if not quantiles.size:
        return 0.0
    generator = _random.generator('canary power', count)
    bounds = [
        np.max(quantiles + np.sort(generator.standard_normal(count))[: quantiles.size] + mean)
        for _ in range(draws)
    ]
    return float(np.mean(np.array(bounds) > mu_claimed))


def null_tail(cosines: np.ndarray, dimension: int) -> np.ndarray:
    """Probability that the cosine of a random direction is at least each of `cosines`."""
    square = np.clip(1.0 - np.square(np.asarray(cosines, np.float64)), 0.0, 1.0)
    half = 0.5 * scipy.special.betainc((dimension - 1) / 2, 0.5, square)
    return np.where(np.asarray(cosines) >= 0, half, 1.0 - half)


def _deviation_interval(deviation: float, count: int, level: float) -> tuple[float, float]:
    """Interval of the deviation of normal scores that fails with probability `level`."""
    ends = scipy.stats.chi2.ppf([1 - level / 2, level / 2], count - 1)
    low, high = deviation * np.sqrt((count - 1) / ends)
    return float(low), float(high)
