"""The exact curve against 120 digits: a true upper bound, and a close one."""

import itertools

import mpmath
import numpy as np
import pytest

from dpfl.accounting import gaussian_curve

_MUS = (1e-15, 1e-12, 1e-9, 1e-6, 1e-3, 0.03, 0.0999, 0.1, 0.5, 2.0, 3.0, 20.0, 17.9, 100.0, 1e3)
_DELTAS = (
    1e-300,
    1e-200,
    1e-100,
    1e-30,
    1e-15,
    1e-12,
    1e-10,
    1e-5,
    0.01,
    0.3,
    0.6827,
    0.9,
    0.99,
    1 - 1e-12,
    1 - 2**-53,
)


def _exact_delta(mu, epsilon):
    """Balle and Wang 2018, theorem 8."""
    with mpmath.workdps(120):
        mu, epsilon = mpmath.mpf(mu), mpmath.mpf(epsilon)
        return mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * mpmath.ncdf(
            -mu / 2 - epsilon / mu
        )


def _check(mu, delta):
    epsilon = gaussian_curve.epsilon(mu, delta)
    assert _exact_delta(mu, epsilon) <= mpmath.mpf(delta), (mu, delta)
    less = epsilon * (1 - 1e-12) - 1e-12 * mu
    assert less <= 0 or _exact_delta(mu, less) > mpmath.mpf(delta), (mu, delta)


@pytest.mark.parametrize('mu', _MUS)
def test_it_is_an_upper_bound_and_close_over_the_whole_range(mu):
    for delta in _DELTAS:
        _check(mu, delta)


def test_it_is_an_upper_bound_for_random_numbers():
    rng = np.random.default_rng(0)
    for case in range(400):
        least = -300 if case % 2 else -15
        _check(10 ** rng.uniform(-15, 3), 10 ** rng.uniform(least, -0.005))


def test_log_delta_is_the_curve_and_not_below_it():
    for mu, epsilon in itertools.product((1e-12, 1e-3, 0.5, 4.0, 30.0), (0.0, 1e-9, 0.1, 5.0)):
        if epsilon / mu > 35:
            continue
        with mpmath.workdps(60):
            exact = mpmath.log(_exact_delta(mu, epsilon))
            assert 0 <= gaussian_curve.log_delta(mu, epsilon) - exact < 1e-10


def test_numbers_without_a_normal_float_have_an_upper_bound_too():
    assert gaussian_curve.epsilon(5e-324, 5e-324) >= 0
    assert gaussian_curve.epsilon(1e-300, 1e-10) == 0
    assert gaussian_curve.epsilon(1e160, 1e-10) == gaussian_curve.epsilon(float('inf'), 0.5)


def test_the_mills_ratio_has_the_digits_that_are_claimed():
    with mpmath.workdps(60):
        for t in np.concatenate([np.linspace(-1, 39, 600), np.geomspace(1e-9, 39, 200)]):
            exact = mpmath.ncdf(-mpmath.mpf(t)) / mpmath.npdf(mpmath.mpf(t))
            assert abs(gaussian_curve._mills(float(t)) / exact - 1) < gaussian_curve._OF_MILLS
