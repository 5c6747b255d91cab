"""The noise that a target epsilon needs."""

import math

from scipy import optimize

from dpfl import _validate
from dpfl.accounting import gaussian


def mu_from_epsilon(epsilon: float, delta: float, method: str = 'pld') -> float:
    """Largest `mu = sensitivity / noise_multiplier` whose epsilon at `delta` is at most `epsilon`.

    Args:
      epsilon: target, above 0.
      delta: strictly between 0 and 1.
      method: as in `gaussian.epsilon_from_mu`; the result meets the target by that method.

    Raises:
      ValueError: if an argument is out of its range.
    """
    _validate.number('epsilon', epsilon, above=0)

    def log_ratio(log_mu):
        reached = gaussian.epsilon_from_mu(math.exp(log_mu), delta, method)
        return math.log(max(reached, 1e-300) / epsilon)

    if method == 'analytic_gaussian':
        upper, step = math.log(math.sqrt(2 * epsilon) + 1), 1.0
        while log_ratio(upper) < 0:
            upper += step
    else:  # No method reports less than the exact value: its root bounds theirs.
        upper, step = math.log(mu_from_epsilon(epsilon, delta, 'analytic_gaussian')) + 1e-9, 1e-6
    lower = upper - step
    while log_ratio(lower) > 0:
        step *= 8
        lower = upper - step
    log_mu = lower
    if log_ratio(upper) > 0:
        log_mu = optimize.brentq(log_ratio, lower, upper, xtol=1e-12)
    step = 1e-12
    while log_ratio(log_mu) > 0:
        log_mu -= step
        step *= 2
    return math.exp(log_mu)
