"""Epsilon of Gaussian releases against the exact curve in high precision: nothing understates."""

import functools
import math

import mpmath
import numpy as np
import pytest

from dpfl import accounting

_MUS = (1e-3, 0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
_DELTAS = (1e-2, 1e-3, 1e-5, 1e-8, 1e-10, 1e-12, 1e-15)
# A privacy loss distribution takes up to a second.
_PLD_CASES = [
    (1e-3, 1e-5),
    (1e-3, 1e-15),
    (0.03, 1e-10),
    (0.1, 1e-3),
    (0.3, 1e-15),
    (1.0, 1e-2),
    (1.0, 1e-6),
    (1.0, 1e-15),
    (3.0, 1e-10),
    (5.0, 1e-12),
    (10.0, 1e-5),
    (30.0, 1e-10),
]
_FAST = ('rdp', 'analytic_gaussian', 'moments')


@functools.cache
def _exact_epsilon(mu: float, delta: float) -> mpmath.mpf:
    """Where the curve of the Gaussian mechanism (Balle and Wang 2018, theorem 8) meets delta."""
    with mpmath.workdps(50):
        m, target = mpmath.mpf(mu), mpmath.mpf(delta)

        def excess(epsilon):
            above = mpmath.ncdf(m / 2 - epsilon / m)
            return above - mpmath.exp(epsilon) * mpmath.ncdf(-m / 2 - epsilon / m) - target

        low, high = mpmath.mpf(0), m**2 / 2 + m * mpmath.sqrt(2 * mpmath.log(1 / target))
        if excess(low) <= 0:
            return low
        assert excess(high) < 0
        for _ in range(80):  # 80 halvings leave a relative error of about 1e-20.
            middle = (low + high) / 2
            low, high = (middle, high) if excess(middle) > 0 else (low, middle)
        return high


def _check(mu, delta, epsilon):
    exact = _exact_epsilon(mu, delta)
    assert epsilon >= exact * (1 - mpmath.mpf('1e-9')), (mu, delta, float(exact))
    return float(exact)


def test_the_oracle_itself():
    # [Xu23], appendix A: rho 0.25 and 1.86 correspond to epsilon 4.49 and 13.69.
    for rho, epsilon in ((0.25, 4.49), (1.86, 13.69)):
        assert round(float(_exact_epsilon(math.sqrt(2 * rho), 1e-10)), 2) == epsilon


@pytest.mark.parametrize('method', _FAST)
@pytest.mark.parametrize('delta', _DELTAS)
def test_no_method_understates(method, delta):
    for mu in _MUS:
        _check(mu, delta, accounting.epsilon_from_mu(mu, delta, method))


@pytest.mark.parametrize('delta', _DELTAS)
def test_the_analytic_value_is_exact(delta):
    for mu in np.geomspace(1e-3, 30, 25).tolist():
        epsilon = accounting.epsilon_from_mu(mu, delta, 'analytic_gaussian')
        assert epsilon == pytest.approx(_check(mu, delta, epsilon), rel=1e-9, abs=0)


@pytest.mark.parametrize('mu, delta', _PLD_CASES)
def test_the_privacy_loss_distribution_lies_between_the_exact_value_and_renyi(mu, delta):
    epsilon = accounting.epsilon_from_mu(mu, delta, 'pld')
    exact = _check(mu, delta, epsilon)
    assert epsilon <= accounting.epsilon_from_mu(mu, delta, 'rdp') * (1 + 1e-9)
    # Cut tails show at the smallest deltas, the grid at the smallest epsilons.
    assert epsilon <= exact * (1.02 if delta < 1e-12 else 1.002)


def test_order_of_the_methods():
    for mu in _MUS:
        for delta in _DELTAS:
            exact, renyi, moments = (
                accounting.epsilon_from_mu(mu, delta, method)
                for method in ('analytic_gaussian', 'rdp', 'moments')
            )
            assert exact <= renyi * (1 + 1e-12) and renyi <= moments * (1 + 1e-12)


def _round_trip(noise_multiplier, delta, method):
    """Noise multiplier -> epsilon -> least noise multiplier, for sensitivity 1."""
    epsilon = accounting.epsilon_from_mu(1 / noise_multiplier, delta, method)
    mu = accounting.mu_from_epsilon(epsilon, delta, method)
    assert accounting.epsilon_from_mu(mu, delta, method) <= epsilon
    return 1 / mu


@pytest.mark.parametrize('method', _FAST)
@pytest.mark.parametrize('delta', [1e-3, 1e-6, 1e-10, 1e-15])
def test_noise_to_epsilon_and_back(method, delta):
    for noise_multiplier in (0.05, 0.3, 1.0, 7.0, 20.0):
        back = _round_trip(noise_multiplier, delta, method)
        assert back == pytest.approx(noise_multiplier, rel=1e-6)


@pytest.mark.parametrize('noise_multiplier, delta', [(2.0, 1e-6), (1.0, 1e-10), (7.0, 1e-10)])
def test_noise_to_epsilon_and_back_by_the_privacy_loss_distribution(noise_multiplier, delta):
    back = _round_trip(noise_multiplier, delta, 'pld')
    assert back == pytest.approx(noise_multiplier, rel=1e-6)
