"""From rho or mu to epsilon for one Gaussian release.

A whole run of a mechanism is one Gaussian release of `C x`: its guarantee follows from
`mu = sensitivity / noise_multiplier` alone, with `rho = mu^2 / 2` (zCDP; Bun and Steinke 2016,
proposition 1.6).
"""

import math

import dp_accounting
import numpy as np
from dp_accounting import pld, rdp
from scipy import optimize, special

from dpfl import _validate
from dpfl.accounting import moments

# The tightest first, but for the exact one.
ACCOUNTANTS = ('pld', 'rdp', 'analytic_gaussian', 'moments')

# Grid of the privacy loss distribution; coarser for guarantees so weak that it would not fit.
_PLD_INTERVAL = 1e-4
_PLD_INTERVAL_PER_RHO = 2e-6


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
        conversion of dp_accounting, looser), 'analytic_gaussian' (the exact value; Balle and Wang
        2018, theorem 8), 'moments' (that of document 001, the loosest).

    Returns:
      An epsilon that is never below the truth, up to rounding in the last digits of float64.

    Raises:
      ValueError: if an argument is out of its range.
    """
    _validate.number('delta', delta, above=0, below=1)
    _validate.choice('method', method, ACCOUNTANTS)
    if math.isinf(mu) and mu > 0:
        return math.inf
    mu = _validate.number('mu', mu, minimum=0)
    if mu == 0:
        return 0.0
    if method == 'analytic_gaussian':
        return _analytic(mu, delta)
    if method == 'moments':
        return moments.epsilon(moments.gaussian(mu), delta)
    if method == 'pld':
        interval = max(_PLD_INTERVAL, _PLD_INTERVAL_PER_RHO * mu**2)
        accountant = pld.PLDAccountant(value_discretization_interval=interval)
    else:
        accountant = rdp.RdpAccountant()
    return float(accountant.compose(dp_accounting.GaussianDpEvent(1 / mu)).get_epsilon(delta))


def log_delta(mu: float, epsilon: float) -> float:
    """Logarithm of the exact delta of a Gaussian release (Balle and Wang 2018, theorem 8)."""
    above = special.log_ndtr(mu / 2 - epsilon / mu)
    below = epsilon + special.log_ndtr(-mu / 2 - epsilon / mu)
    if below >= above:
        return -math.inf
    return float(above + np.log1p(-np.exp(below - above)))


def _analytic(mu: float, delta: float) -> float:
    def excess(epsilon):
        return max(log_delta(mu, epsilon), -1e300) - math.log(delta)

    if excess(0.0) <= 0:
        return 0.0
    upper = mu**2 / 2 + mu * math.sqrt(2 * math.log(1 / delta)) + 1.0
    epsilon = optimize.brentq(excess, 0.0, upper, xtol=1e-14, rtol=1e-14)
    step = 1e-13
    while excess(epsilon) > 0:  # The root is found to rounding; end on the safe side of it.
        epsilon += step * max(1.0, epsilon)
        step *= 2
    return epsilon
