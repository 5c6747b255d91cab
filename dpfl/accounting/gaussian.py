"""One Gaussian release: its epsilon from rho or mu, its moments, and the noise for a target.

A whole run of a mechanism is one Gaussian release of `C x`. Its guarantee depends only on
`mu = sensitivity / noise_multiplier`, and `rho = mu^2 / 2` (zCDP; [Bun16], proposition 1.6).

The exact curve is computed so that rounding never lowers it ([Balle18], theorem 8): a release with
sensitivity / standard deviation = mu has

    delta(epsilon) = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu).

For small mu both terms are nearly equal. With `t = epsilon/mu - mu/2`, the density phi of the
normal distribution and its Mills ratio `R(t) = Phi(-t) / phi(t)`, this is

    delta = phi(t) (R(t) - R(t + mu)) = phi(t) * integral of Q over [t, t + mu],  Q(s) = 1 - s R(s).

R is the Laplace transform of `exp(-u^2/2)` for u > 0, so every even derivative of `Q = -R'` is
positive, and a Gauss-Lobatto rule never gives less than the integral.

The moments accountant has integer moments and the classic conversion to epsilon, as in [McMahan18],
appendix A, and [Augenstein20], table 3, after [Abadi16]. Renyi DP with the conversion of
dp_accounting is tighter; this one recomputes published numbers.
"""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy

from dpfl import _validate, errors
from dpfl.accounting import dp
from dpfl.mechanisms import rounding

ACCOUNTANTS = ('pld', 'rdp', 'analytic_gaussian', 'moments', 'best')
"""'best' is the smallest epsilon of all others; which one gives it depends on the numbers."""

# Grid step of the privacy loss distribution; larger where the grid would have too many points.
_PLD_INTERVAL = 1e-4
_PLD_POINTS = 2**19
# With a larger mu the values of the grid no longer fit into floats.
_PLD_MOST_MU = 1e4
# A smaller mu counts as this one: the square of its inverse has to fit, too.
_PLD_LEAST_MU = 1e-100
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
# A smaller mu is counted as this one: its product with t may be too small for a float.
_LEAST_MU = 1e-290
_LOG_DENSITY = math.log(2 * math.pi) / 2
# Largest moment that [McMahan18] uses; larger ones would give a smaller epsilon at high noise.
_MAX_MOMENT = 32
# Absolute rounding error of one logarithm near 0, as for a rare sample under much noise.
_MOMENT_ROUNDING = 1e-13
_MOMENTS = np.arange(1, _MAX_MOMENT + 1)
# With so much noise, epsilon is only what the method itself adds; more noise does not lower it.
_NEGLIGIBLE_MU = 1e-9
# Publishing all data of a random hundredth of the clients is (0, 0.01)-DP.
USUAL_MOST_DELTA = 0.01
# A delta of 1 / population that is written with three digits gives no warning.
_ROUNDED = 1.01


class Bound(NamedTuple):
    """An upper bound of epsilon, and the accountant that showed it, which is never 'best'."""

    epsilon: float
    accountant: str


def mu_from_rho(rho: float) -> float:
    """`mu = sqrt(2 rho)`, rounded up; infinity (no noise) gives infinity.

    Example:
      >>> mu_from_rho(0.5)
      1.0
    """
    if rho != math.inf:
        _validate.number('rho', rho, minimum=0)
    return rounding.root_up(2.0 * rho)


def epsilon_from_rho(rho: float, delta: float, method: str = 'pld') -> float:
    """Epsilon at `delta` of a Gaussian release with zCDP parameter `rho`; see `epsilon_from_mu`.

    Example:
      >>> round(epsilon_from_rho(0.5, 1e-6, 'analytic_gaussian'), 3)
      4.887
    """
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

    Example:
      >>> round(epsilon_from_mu(1.0, 1e-6, 'analytic_gaussian'), 3)
      4.887
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
    exact = exact_epsilon(mu, delta)
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
    loss = dp.pld.privacy_loss_mechanism.GaussianPrivacyLoss(1 / mu)
    bounds = loss.connect_dots_bounds()
    first, last = math.floor(bounds.epsilon_lower / step), math.ceil(bounds.epsilon_upper / step)
    epsilons = np.arange(first, last + 1) * step
    # The loss is at least epsilon below this output.
    outputs = loss.inverse_privacy_loss(epsilons)
    deltas = loss.mu_upper_cdf(outputs) - np.exp(epsilons + loss.mu_lower_log_cdf(outputs))
    masses = dp.pld.pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(
        step, first, last, np.clip(deltas, 0, 1)
    )
    # Composition cuts tails.
    nothing = dp.pld.privacy_loss_distribution.identity(value_discretization_interval=step)
    whole = nothing.compose(dp.pld.privacy_loss_distribution.PrivacyLossDistribution(masses))
    return float(whole.get_epsilon_for_delta(delta))


def _by_rdp(mu: float, delta: float) -> float:
    # The divergence of a Gaussian release of order a is a mu^2 / 2 ([Mironov17], proposition 7).
    orders = dp.rdp.RdpAccountant()._orders
    return float(dp.rdp.compute_epsilon(orders, orders * mu**2 / 2, delta)[0])


_CONVERSIONS: dict[str, Callable[[float, float], float]] = {
    'pld': _by_pld,
    'rdp': _by_rdp,
    'moments': lambda mu, delta: epsilon_from_moments(moments_of_gaussian(mu), delta),
}


def exact_epsilon(mu: float, delta: float) -> float:
    """Least epsilon of the curve at `delta`, rounded up: never below the truth.

    For mu within [1e-15, 1e3] and delta within [1e-300, 0.99] it exceeds the true value by a
    relative error of less than 1e-12, plus 1e-12 times mu.

    Args:
      mu: above 0; infinity gives infinity, and so does a mu whose square overflows.
      delta: strictly between 0 and 1.
    """
    if math.isinf(mu * mu):
        return math.inf
    mu = max(mu, _LEAST_MU)
    from_below = delta > 0.5
    # Where delta is at most 1/2, t is at least -1: phi(t) (R(t) - R(t + mu)) grows with mu, and is
    # 0.68 for t = -1 and mu = 2.
    lowest = max(-mu / 2, _LEAST_T if from_below else -1.0)
    if lowest == -mu / 2 and _excess(mu, lowest, delta)[0] <= 0:
        return 0.0
    # delta(t) <= Phi(-t) <= exp(-t^2/2) / 2 for t >= 0.
    t = lowest if from_below else math.sqrt(-2 * math.log(delta)) + 1e-3
    excess, slope = _excess(mu, t, delta)
    while abs(excess) > -slope * 1e-15 * max(1.0, abs(t)) and (excess > 0) == from_below:
        t -= excess / slope
        excess, slope = _excess(mu, t, delta)
    step = 1e-15
    while excess > 0:  # The root may be off by rounding: end on its safe side.
        t += step * max(1.0, abs(t))
        step *= 2
        excess, _ = _excess(mu, t, delta)
    return mu * (t + mu / 2) * (1 + 1e-15)


def _excess(mu: float, t: float, delta: float) -> tuple[float, float]:
    """Positive unless delta(t) <= delta is certain; and its slope, which is below 0.

    Both delta(epsilon), the integral of `P[loss > epsilon + s] exp(-s)` over s > 0, and
    `1 - delta(epsilon) = E[min(1, exp(epsilon - loss))]` are convolutions of log-concave functions,
    so their logarithms are concave in t. Newton's method therefore goes to the root from one side:
    with log delta from above, and with `-log(1 - delta)` from below.
    """
    right = _mills(t + mu)
    if delta > 0.5:
        # This difference is exact.
        total = _mills(-t) + right
        least = total * math.exp(-t * t / 2 - _LOG_DENSITY) * (1 - _LOG_ERROR * 100)
        return math.log(1 - delta) - math.log(least) + _LOG_ERROR * 40, -mu * right / total
    square = t * t / 2
    if mu < _SMALL_MU:
        integral = math.fsum(weight * _most_slope(t + mu * node) for weight, node in _RULE)
        log_difference = math.log(mu) + math.log(integral)
        slope, size = -right / integral, abs(math.log(mu))
    else:
        left = _mills(t)
        difference = left - right + _MILLS_ERROR * (left + right)
        log_difference = math.log(difference)
        slope, size = -mu * right / difference, 0.0
    # The logarithms of delta and of its parts are below 800 in size, or as large as that of mu.
    size += square + abs(log_difference)
    log_delta = log_difference - square - _LOG_DENSITY + _LOG_ERROR * (size + 10)
    return log_delta - math.log(delta), slope


def _most_slope(s: float) -> float:
    """Q(s), rounded up."""
    product = s * _mills(s)
    return 1 - product + _MILLS_ERROR * (1 + abs(product))


def _mills(t: float) -> float:
    """R(t), for t >= -1."""
    return math.sqrt(math.pi / 2) * float(scipy.special.erfcx(t / math.sqrt(2)))


def moments_of_gaussian(mu: float) -> np.ndarray:
    """Log moments of a Gaussian release, `lambda (lambda + 1) mu^2 / 2`, float64 [MAX_MOMENT].

    The moment of order lambda is `E[exp(lambda loss)]` of the privacy loss.
    """
    return _MOMENTS * (_MOMENTS + 1) * mu**2 / 2


def moments_of_poisson_sample(sampling_probability: float, mu: float) -> np.ndarray:
    """Log moments of one Gaussian release on a Poisson sample, float64 [MAX_MOMENT].

    The likelihood ratio of the mixture `(1 - q) N(0, 1) + q N(mu, 1)` to `N(0, 1)` is a sum of two
    terms: the binomial theorem gives its moments. The other direction is never larger ([Mironov19],
    section 3).

    Args:
      sampling_probability: q, within (0, 1].
      mu: shift of the sum divided by the standard deviation of the noise.
    """
    if sampling_probability == 1:
        return moments_of_gaussian(mu)
    q = sampling_probability
    log_moments = np.empty(_MAX_MOMENT)
    for moment in _MOMENTS:
        order = moment + 1
        j = np.arange(order + 1)
        log_binomial = (
            scipy.special.gammaln(order + 1)
            - scipy.special.gammaln(j + 1)
            - scipy.special.gammaln(order - j + 1)
        )
        terms = log_binomial + j * math.log(q) + (order - j) * math.log1p(-q)
        log_moments[moment - 1] = scipy.special.logsumexp(terms + j * (j - 1) * mu**2 / 2)
    return np.maximum(log_moments, 0.0) + _MOMENT_ROUNDING


def moments_of_fixed_sample(event: dp.Event) -> np.ndarray:
    """Log moments of one Gaussian release on a sample of fixed size, float64 [MAX_MOMENT].

    An upper bound: [Wang19], theorem 27, as dp_accounting implements it.
    """
    accountant = dp.rdp.RdpAccountant(
        orders=_MOMENTS + 1,
        neighboring_relation=dp.NeighboringRelation.REPLACE_ONE,
    ).compose(event)
    # dp_accounting publishes the divergences only after its own conversion.
    return _MOMENTS * (np.maximum(accountant._rdp, 0.0) + _MOMENT_ROUNDING)


def epsilon_from_moments(log_moments: np.ndarray, delta: float) -> float:
    """`min over lambda of (log moment(lambda) + log(1 / delta)) / lambda` ([McMahan18])."""
    return float(max(0.0, np.min((log_moments - math.log(delta)) / _MOMENTS)))


def mu_from_epsilon(epsilon: float, delta: float, method: str = 'pld') -> float:
    """Largest `mu = sensitivity / noise_multiplier` whose epsilon at `delta` is at most `epsilon`.

    Args:
      epsilon: target, above 0.
      delta: strictly between 0 and 1.
      method: as in `gaussian.epsilon_from_mu`; the result meets the target by this method.

    Raises:
      ValueError: if an argument is out of its range, or no noise meets the target by that method.

    Example:
      >>> round(mu_from_epsilon(1.0, 1e-6, 'analytic_gaussian'), 3)
      0.237
    """
    _validate.number('epsilon', epsilon, above=0)
    _refuse_unreachable(epsilon, epsilon_from_mu(_NEGLIGIBLE_MU, delta, method), delta, method)

    def log_ratio(log_mu: float) -> float:
        return _log_ratio(epsilon_from_mu(math.exp(log_mu), delta, method), epsilon)

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
        log_mu = scipy.optimize.brentq(log_ratio, lower, upper, xtol=1e-12)
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
        return _log_ratio(epsilon_of(math.exp(log_noise)), epsilon)

    upper = math.log(start)
    while excess(upper) > 0:
        upper += 1.0
        if upper > math.log(start / _NEGLIGIBLE_MU):
            _refuse_unreachable(epsilon, epsilon_of(math.exp(upper)), delta, method)
    lower = upper - 1.0
    while excess(lower) <= 0:
        lower, upper = lower - 1.0, lower
    log_noise, step = scipy.optimize.brentq(excess, lower, upper, xtol=1e-9), 1e-9
    while excess(log_noise) > 0:
        log_noise += step
        step *= 2
    return math.exp(log_noise)


def _log_ratio(reached: float, epsilon: float) -> float:
    """How far an epsilon, which may be 0, is above a target of any size."""
    return math.log(min(max(reached / epsilon, 1e-300), 1e300))


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
