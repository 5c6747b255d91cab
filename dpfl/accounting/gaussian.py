"""From rho or mu to epsilon for one Gaussian release.

A whole run of a mechanism is one Gaussian release of `C x`. Its guarantee depends only on
`mu = sensitivity / noise_multiplier`, and `rho = mu^2 / 2` (zCDP; [Bun16], proposition 1.6).
"""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from dp_accounting import rdp
from dp_accounting.pld import pld_pmf, privacy_loss_distribution, privacy_loss_mechanism

from dpfl import _validate
from dpfl.accounting import gaussian_curve, moments

ACCOUNTANTS = ('pld', 'rdp', 'analytic_gaussian', 'moments', 'best')
"""'best' is the smallest epsilon of all others; which one gives it depends on the numbers."""

# Grid step of the privacy loss distribution; larger where the grid would have too many points.
_PLD_INTERVAL = 1e-4
_PLD_POINTS = 2**19
# With a larger mu the values of the grid no longer fit into floats.
_PLD_MOST_MU = 1e4
# A smaller mu counts as this one: the square of its inverse has to fit, too.
_PLD_LEAST_MU = 1e-100


class Bound(NamedTuple):
    """An upper bound of epsilon, and the accountant that showed it, which is never 'best'."""

    epsilon: float
    accountant: str


def mu_from_rho(rho: float) -> float:
    """`mu = sqrt(2 rho)`."""
    return math.sqrt(2.0 * rho)


def epsilon_from_rho(rho: float, delta: float, method: str = 'pld') -> float:
    """Epsilon at `delta` of a Gaussian release with zCDP parameter `rho`; see `epsilon_from_mu`."""
    if not math.isinf(rho):
        _validate.number('rho', rho, minimum=0)
    return epsilon_from_mu(mu_from_rho(rho), delta, method)


def epsilon_from_mu(mu: float, delta: float, method: str = 'pld') -> float:
    """Epsilon at `delta` of a Gaussian release with sensitivity / standard deviation = `mu`.

    Args:
      mu: at least 0; infinity (no noise) gives infinity.
      delta: strictly between 0 and 1.
      method: 'pld' (privacy loss distribution; pessimistic by its grid and its cut tails, about
        1e-6 for delta >= 1e-10 and up to 2 % at 1e-15), 'rdp' (Renyi DP with the orders and
        conversion of dp_accounting, looser), 'analytic_gaussian' (the exact value; [Balle18],
        theorem 8), 'moments' (the accountant of [McMahan18], the loosest), 'best' (the smallest of
        these, which is the exact value).

    Returns:
      An epsilon that is never below the true one. The privacy loss distribution has no value for a
      delta below its cut tails or a mu beyond its grid; the exact value is returned then, and
      `bound` says so.

    Raises:
      ValueError: if an argument is out of its range.
    """
    return bound(mu, delta, method).epsilon


def bound(mu: float, delta: float, method: str = 'pld') -> Bound:
    """`epsilon_from_mu`, and the accountant that showed it."""
    _validate.number('delta', delta, above=0, below=1)
    _validate.choice('method', method, ACCOUNTANTS)
    shown = 'analytic_gaussian' if method == 'best' else method
    if math.isinf(mu) and mu > 0:
        return Bound(math.inf, shown)
    mu = _validate.number('mu', mu, minimum=0)
    if mu == 0:
        return Bound(0.0, shown)
    exact = gaussian_curve.epsilon(mu, delta)
    if shown == 'analytic_gaussian' or math.isinf(exact):
        return Bound(exact, shown)
    epsilon = _CONVERSIONS[shown](mu, delta)
    if not math.isfinite(epsilon):
        return Bound(exact, 'analytic_gaussian')
    # A value below the exact one is a rounding error.
    return Bound(max(epsilon, exact), shown)


@functools.lru_cache
def _by_pld(mu: float, delta: float) -> float:
    """Takes up to a fifth of a second; a run asks for its own value several times."""
    if mu > _PLD_MOST_MU:
        return math.inf
    mu = max(mu, _PLD_LEAST_MU)
    # Nearly all of the normal distribution is within 10 standard deviations.
    step = max(_PLD_INTERVAL, (mu**2 + 20 * mu) / _PLD_POINTS)
    # `pld.PLDAccountant` does the same, bit for bit, but takes the points of the grid one by one.
    loss = privacy_loss_mechanism.GaussianPrivacyLoss(1 / mu)
    bounds = loss.connect_dots_bounds()
    first, last = math.floor(bounds.epsilon_lower / step), math.ceil(bounds.epsilon_upper / step)
    epsilons = np.arange(first, last + 1) * step
    # The loss is at least epsilon below this output.
    outputs = loss.inverse_privacy_loss(epsilons)
    deltas = loss.mu_upper_cdf(outputs) - np.exp(epsilons + loss.mu_lower_log_cdf(outputs))
    masses = pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(
        step, first, last, np.clip(deltas, 0, 1)
    )
    # Composition cuts tails.
    nothing = privacy_loss_distribution.identity(value_discretization_interval=step)
    whole = nothing.compose(privacy_loss_distribution.PrivacyLossDistribution(masses))
    return float(whole.get_epsilon_for_delta(delta))


def _by_rdp(mu: float, delta: float) -> float:
    # The divergence of a Gaussian release of order a is a mu^2 / 2 ([Mironov17], proposition 7).
    orders = rdp.RdpAccountant()._orders
    return float(rdp.compute_epsilon(orders, orders * mu**2 / 2, delta)[0])


def _by_moments(mu: float, delta: float) -> float:
    return moments.epsilon(moments.gaussian(mu), delta)


_CONVERSIONS: dict[str, Callable[[float, float], float]] = {
    'pld': _by_pld,
    'rdp': _by_rdp,
    'moments': _by_moments,
}
