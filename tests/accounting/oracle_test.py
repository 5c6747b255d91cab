"""Epsilon of Gaussian releases against the exact curve in high precision: nothing understates."""

import fractions
import itertools
import math

import mpmath
import numpy as np
import pytest

from dpfl import accounting
from dpfl.accounting import gaussian
from tests.sizes import standard

_MUS = (1e-15, 1e-9, 1e-6, 1e-3, 0.0999, 0.1, 0.5, 1.27, 3.0, 17.9, 20.0, 100.0, 1e3)
_DELTAS = (1e-300, 1e-100, 1e-30, 1e-15, 1e-10, 1e-5, 0.01, 0.3, 0.6827, 0.99, 1 - 2**-53)
_FAST = ('rdp', 'analytic_gaussian', 'moments')
# A privacy loss distribution takes up to a second.
_PLD_CASES = [
    (1e-3, 1e-5),
    (0.1, 1e-3),
    (1.0, 1e-15),
    (30.0, 1e-10),
    *(standard(*case) for case in ((1e-3, 1e-15), (1.0, 1e-2), (3.0, 1e-10))),
]


def _exact_delta(mu, epsilon):
    """Balle and Wang 2018, theorem 8."""
    with mpmath.workdps(120):
        mu, epsilon = mpmath.mpf(mu), mpmath.mpf(epsilon)
        return mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * mpmath.ncdf(
            -mu / 2 - epsilon / mu
        )


def _check(mu, delta):
    epsilon = gaussian.exact_epsilon(mu, delta)
    assert _exact_delta(mu, epsilon) <= mpmath.mpf(delta), (mu, delta)
    less = epsilon * (1 - 1e-12) - 1e-12 * mu
    assert less <= 0 or _exact_delta(mu, less) > mpmath.mpf(delta), (mu, delta)


@pytest.mark.parametrize('mu', _MUS)
def test_the_curve_is_an_upper_bound_and_close_over_the_whole_range(mu):
    for delta in _DELTAS:
        _check(mu, delta)


@pytest.mark.parametrize('cases', [60, standard(1000)])
def test_the_curve_is_an_upper_bound_for_random_numbers(cases):
    rng = np.random.default_rng(0)
    for case in range(cases):
        least = -300 if case % 2 else -15
        _check(10 ** rng.uniform(-15, 3), 10 ** rng.uniform(least, -0.005))


def test_numbers_without_a_normal_float_have_an_upper_bound_too():
    assert gaussian.exact_epsilon(5e-324, 5e-324) >= 0
    assert gaussian.exact_epsilon(1e-300, 1e-10) == 0
    assert gaussian.exact_epsilon(1e160, 1e-10) == gaussian.exact_epsilon(float('inf'), 0.5)


def test_the_mills_ratio_has_the_digits_that_are_claimed():
    with mpmath.workdps(60):
        for t in np.concatenate([np.linspace(-1, 39, 120), np.geomspace(1e-9, 39, 40)]):
            exact = mpmath.ncdf(-mpmath.mpf(t)) / mpmath.npdf(mpmath.mpf(t))
            assert abs(gaussian._mills(float(t)) / exact - 1) < gaussian._MILLS_ERROR


@pytest.mark.parametrize('delta', _DELTAS)
def test_no_method_understates_and_methods_have_their_order(delta):
    for mu in (*_MUS, 1e5, 1e100):
        found = {method: gaussian.bound(mu, delta, method) for method in _FAST}
        assert all(math.isfinite(bound.epsilon) for bound in found.values())
        exact, renyi, moments = (
            found[name].epsilon for name in ('analytic_gaussian', 'rdp', 'moments')
        )
        assert gaussian.exact_epsilon(mu, delta) == exact <= renyi * (1 + 1e-12)
        assert renyi <= moments * (1 + 1e-12)


@pytest.mark.parametrize('mu, delta', _PLD_CASES)
def test_the_privacy_loss_distribution_lies_between_the_exact_value_and_renyi(mu, delta):
    epsilon = accounting.epsilon_from_mu(mu, delta, 'pld')
    assert _exact_delta(mu, epsilon) <= delta
    assert epsilon <= accounting.epsilon_from_mu(mu, delta, 'rdp') * (1 + 1e-9)
    # Cut tails show at the smallest deltas, the grid at the smallest epsilons.
    most = 1.02 if delta < 1e-12 else 1.002
    assert epsilon <= most * gaussian.exact_epsilon(mu, delta)


@pytest.mark.parametrize('mu, delta', [(1e-6, 1e-300), (1.0, 1e-16), (1e6, 1e-10), (1e100, 0.1)])
def test_where_the_privacy_loss_distribution_has_no_value_the_exact_one_is_given(mu, delta):
    found = gaussian.bound(mu, delta, 'pld')
    exact = accounting.epsilon_from_mu(mu, delta, 'analytic_gaussian')
    assert math.isfinite(found.epsilon) and found.epsilon >= exact
    if mu >= 1:
        assert found == (exact, 'analytic_gaussian')


def test_the_best_accountant_is_named_and_is_the_least():
    best = gaussian.bound(0.3, 1e-5, 'best')
    assert best.accountant == 'analytic_gaussian'
    assert best.epsilon == min(
        accounting.epsilon_from_mu(0.3, 1e-5, method) for method in accounting.ACCOUNTANTS
    )


@pytest.mark.parametrize(
    'method, delta',
    [
        *itertools.product(_FAST, (1e-3, 1e-15)),
        standard('pld', 1e-6),
    ],
)
def test_noise_to_epsilon_and_back(method, delta):
    for noise_multiplier in (2.0,) if method == 'pld' else (0.05, 1.0, 20.0):
        epsilon = accounting.epsilon_from_mu(1 / noise_multiplier, delta, method)
        mu = accounting.mu_from_epsilon(epsilon, delta, method)
        assert accounting.epsilon_from_mu(mu, delta, method) <= epsilon
        assert 1 / mu == pytest.approx(noise_multiplier, rel=1e-6)


def test_a_published_number():
    # Document 002, section 3.2; tests/published has the others.
    for method in ('analytic_gaussian', 'pld'):
        assert accounting.epsilon_from_mu(1.0, 1e-7, method) == pytest.approx(5.3493, abs=1e-4)
    assert accounting.mu_from_rho(0.5) == 1.0
    for rho in np.random.default_rng(0).random(20):
        assert fractions.Fraction(accounting.mu_from_rho(rho)) ** 2 >= 2 * fractions.Fraction(rho)
    assert accounting.epsilon_from_rho(0.5, 1e-7) == accounting.epsilon_from_mu(1.0, 1e-7)


def test_extreme_noise():
    for method in accounting.ACCOUNTANTS:
        assert accounting.epsilon_from_mu(0.0, 1e-10, method) == 0.0
        for mu in (1e200, math.inf):  # No finite square.
            assert accounting.epsilon_from_mu(mu, 1e-10, method) == math.inf
