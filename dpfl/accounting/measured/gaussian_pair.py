"""The exact privacy curve of two normal distributions of different means and variances.

For P = N(m, s^2) and Q = N(0, 1) the privacy loss `log P(y) / Q(y)` is a quadratic function of y,
so the set where it exceeds epsilon is a half-line, an interval or the outside of one, and

    delta(epsilon) = P(loss > epsilon) - e^epsilon Q(loss > epsilon)

needs normal tails only ([Andrew24]). The curve of a pair is
the larger one of both orders. With s = 1 it is that of `accounting.gaussian_curve` for mu = m.
"""

import math

from scipy import optimize, special

_MOST_EPSILON = 1e8
_LEAST_DEVIATION = 1e-9


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
    return optimize.brentq(
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
    logs = [_log_interval(low, high) for low, high in intervals]
    return float(special.logsumexp(logs)) if logs else -math.inf


def _log_interval(low: float, high: float) -> float:
    if low > 0:  # The upper tail is that of the mirror image, without cancellation.
        low, high = -high, -low
    outer, inner = special.log_ndtr(high), special.log_ndtr(low)
    if inner == -math.inf:
        return float(outer)
    return float(outer + math.log1p(-math.exp(inner - outer))) if inner < outer else -math.inf


def _difference(first: float, second: float) -> float:
    """`e^first - e^second`, or 0 if that is below 0."""
    if second >= first:
        return 0.0
    return math.exp(first) * -math.expm1(second - first)
