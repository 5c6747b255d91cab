"""The noise that a target epsilon needs, and values of delta that promise little."""

import functools
import math
from collections.abc import Callable

from scipy import optimize

from dpfl import _validate, errors
from dpfl.accounting import gaussian

# With so much noise, epsilon is only what the method itself adds; more noise does not lower it.
_LEAST_MU = 1e-9
# Publishing all data of a random hundredth of the clients is (0, 0.01)-DP.
USUAL_MOST_DELTA = 0.01
# A delta of 1 / population that is written with three digits gives no warning.
_ROUNDED = 1.01


def mu_from_epsilon(epsilon: float, delta: float, method: str = 'pld') -> float:
    """Largest `mu = sensitivity / noise_multiplier` whose epsilon at `delta` is at most `epsilon`.

    Args:
      epsilon: target, above 0.
      delta: strictly between 0 and 1.
      method: as in `gaussian.epsilon_from_mu`; the result meets the target by this method.

    Raises:
      ValueError: if an argument is out of its range, or no noise meets the target by that method.
    """
    _validate.number('epsilon', epsilon, above=0)
    _refuse_unreachable(epsilon, gaussian.epsilon_from_mu(_LEAST_MU, delta, method), delta, method)

    def log_ratio(log_mu: float) -> float:
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


def least_noise_multiplier(
    epsilon_of: Callable[[float], float], epsilon: float, start: float, delta: float, method: str
) -> float:
    """Least noise multiplier with `epsilon_of(noise multiplier) <= epsilon`, to 1e-8 relative.

    Args:
      epsilon_of: epsilon by noise multiplier; it does not increase, except by rounding.
      epsilon: target, above 0.
      start: noise multiplier where the search begins, above 0.
      delta, method: named in the error.

    Raises:
      ValueError: if the target is not above 0, or no noise meets it.
    """
    _validate.number('epsilon', epsilon, above=0)

    @functools.cache  # An evaluation may take a second.
    def excess(log_noise: float) -> float:
        return math.log(max(epsilon_of(math.exp(log_noise)), 1e-300) / epsilon)

    upper = math.log(start)
    while excess(upper) > 0:
        upper += 1.0
        if upper > math.log(start / _LEAST_MU):
            _refuse_unreachable(epsilon, epsilon_of(math.exp(upper)), delta, method)
    lower = upper - 1.0
    while excess(lower) <= 0:
        lower, upper = lower - 1.0, lower
    log_noise, step = optimize.brentq(excess, lower, upper, xtol=1e-9), 1e-9
    while excess(log_noise) > 0:
        log_noise += step
        step *= 2
    return math.exp(log_noise)


def _refuse_unreachable(epsilon: float, floor: float, delta: float, method: str) -> None:
    if floor > epsilon:
        raise errors.ArgumentError(
            'epsilon',
            epsilon,
            f'must be at least {floor:.4g}, the least that accountant={method} '
            f'can show at delta={delta:g}',
        )


def delta_warning(delta: float, population: int | None) -> str:
    """What a delta above 1 / population permits, as a sentence; empty for a smaller delta.

    Args:
      delta: of a guarantee.
      population: number of clients; None if it is not known.
    """
    if population is None or delta * population <= _ROUNDED:
        return ''
    return (
        f'delta={delta:g} is above 1 / population ({population} clients): publishing the data of '
        f'{delta * population:.3g} clients on average would satisfy it.'
    )
