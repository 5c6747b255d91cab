"""The exact curve of one Gaussian release, computed so that rounding never lowers it.

[Balle18], theorem 8: a release with sensitivity / standard deviation = mu has

    delta(epsilon) = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu).

For small mu both terms are nearly equal. With `t = epsilon/mu - mu/2`, the density phi of the
normal distribution and its Mills ratio `R(t) = Phi(-t) / phi(t)`, this is

    delta = phi(t) (R(t) - R(t + mu)) = phi(t) * integral of Q over [t, t + mu],  Q(s) = 1 - s R(s).

R is the Laplace transform of `exp(-u^2/2)` for u > 0, so every even derivative of `Q = -R'` is
positive, and a Gauss-Lobatto rule never gives less than the integral.
"""

import math

from scipy import optimize, special

# Bound on the relative error of R: scipy's erfcx errs by less than 1e-15, as
# tests/accounting/oracle_test.py checks.
_MILLS_ERROR = 4e-15
# Bound on the error of a density's logarithm, for each unit of its size and of what is added.
_LOG_ERROR = 1e-15
# Below this mu the rule computes the integral; above it the difference is used. The relative error
# of the rule is upwards and less than 7e-10 mu^8 Q^(8)/Q <= 2.7e-7 mu^8.
_SMALL_MU = 0.1
# Weights and nodes of the Gauss-Lobatto rule with five nodes on [0, 1].
_HALF = math.sqrt(3 / 7) / 2
_RULE = (
    (1 / 20, 0.0),
    (49 / 180, 0.5 - _HALF),
    (16 / 45, 0.5),
    (49 / 180, 0.5 + _HALF),
    (1 / 20, 1.0),
)
# For every float delta below 1, t is above this.
_LEAST_T = -9.0
# For smaller t, delta is above 1/2, and 1 - delta is computed because it keeps more digits.
_COMPLEMENT_T = -1.0
# A smaller mu is counted as this one: its product with t may be too small for a float.
_LEAST_MU = 1e-290
_LOG_DENSITY = math.log(2 * math.pi) / 2


def epsilon(mu: float, delta: float) -> float:
    """Least epsilon of the curve at `delta`, rounded up: never below the truth.

    For mu within [1e-15, 1e3] and delta within [1e-300, 0.99] it exceeds the true value by a
    relative error of less than 1e-12, plus 1e-12 times mu.

    Args:
      mu: above 0; infinity gives infinity, and so does a mu whose square overflows.
      delta: strictly between 0 and 1.
    """
    mu = max(mu, _LEAST_MU)
    lowest = max(-mu / 2, _LEAST_T)
    if lowest == -mu / 2 and _excess(mu, lowest, delta) <= 0:
        return 0.0
    # delta(t) <= Phi(-t) <= exp(-t^2/2) / 2 for t >= 0.
    highest = math.sqrt(-2 * math.log(delta)) + 1e-3
    t = optimize.brentq(lambda t: _excess(mu, t, delta), lowest, highest, xtol=1e-15, rtol=1e-15)
    step = 1e-15
    while _excess(mu, t, delta) > 0:  # The root may be off by rounding: end on its safe side.
        t += step * max(1.0, abs(t))
        step *= 2
    return mu * (t + mu / 2) * (1 + 1e-15)


def _excess(mu: float, t: float, delta: float) -> float:
    """Positive unless delta(t) <= delta is certain; decreases with t."""
    if t < _COMPLEMENT_T:
        # delta is above 1/2 here, so this difference is exact.
        return math.log(1 - delta) - math.log(_least_complement(mu, t)) + _LOG_ERROR * 40
    return _log_delta(mu, t) - math.log(delta)


def _log_delta(mu: float, t: float) -> float:
    """Logarithm of delta for t >= -1, rounded up."""
    square = t * t / 2
    if mu < _SMALL_MU:
        total = math.fsum(weight * _most_slope(t + mu * node) for weight, node in _RULE)
        log_difference = math.log(mu) + math.log(total)
        size = abs(math.log(mu))
    else:
        left, right = _mills(t), _mills(t + mu)
        log_difference = math.log(left - right + _MILLS_ERROR * (left + right))
        size = 0.0
    # The logarithms of delta and of its parts are below 800 in size, or as large as that of mu.
    size += square + abs(log_difference)
    return log_difference - square - _LOG_DENSITY + _LOG_ERROR * (size + 10)


def _most_slope(s: float) -> float:
    """Q(s), rounded up."""
    product = s * _mills(s)
    return 1 - product + _MILLS_ERROR * (1 + abs(product))


def _least_complement(mu: float, t: float) -> float:
    """1 - delta for t <= -1, `phi(t) (R(-t) + R(t + mu))`, rounded down."""
    total = _mills(-t) + _mills(t + mu)
    return total * math.exp(-t * t / 2 - _LOG_DENSITY) * (1 - _LOG_ERROR * 100)


def _mills(t: float) -> float:
    """R(t), for t >= -1."""
    return math.sqrt(math.pi / 2) * float(special.erfcx(t / math.sqrt(2)))
