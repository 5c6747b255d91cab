"""The exact privacy curve of two normal distributions."""

import math

import numpy as np
import pytest
from scipy import stats

from dpfl.accounting import gaussian_curve
from dpfl.accounting.measured import gaussian_pair


@pytest.mark.parametrize('mu', [0.1, 0.2370, 1.0, 5.0])
@pytest.mark.parametrize('delta', [1e-10, 1e-3])
def test_equal_spreads_give_the_curve_of_a_gaussian_mechanism(mu, delta):
    expected = gaussian_curve.epsilon(mu, delta)
    assert gaussian_pair.epsilon(mu, 1.0, delta) == pytest.approx(expected, rel=1e-8)
    # Next to equal spreads the quadratic has a root that is far away.
    assert gaussian_pair.epsilon(mu, 1 + 1e-12, delta) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    'epsilon, mean, deviation',
    [(0.5, 1.0, 1.2), (1.0, -2.0, 0.7), (2.0, 0.3, 1.5), (0.1, 0.0, 1.1), (0.1, 0.0, 0.8)],
)
def test_delta_is_that_of_the_definition(epsilon, mean, deviation):
    y = np.linspace(-30, 30, 2_000_001)
    p, q = stats.norm.pdf(y, mean, deviation), stats.norm.pdf(y)
    step = y[1] - y[0]
    both = [
        np.maximum(one - math.exp(epsilon) * other, 0).sum() * step
        for one, other in ((p, q), (q, p))
    ]
    assert gaussian_pair.delta(epsilon, mean, deviation) == pytest.approx(max(both), abs=1e-8)


def test_both_orders_count_and_mirror_images_are_alike():
    delta = gaussian_pair.delta(0.7, 1.3, 0.6)
    # The same pair in the units of the other one.
    assert gaussian_pair.delta(0.7, -1.3 / 0.6, 1 / 0.6) == pytest.approx(delta, rel=1e-9)
    assert gaussian_pair.delta(0.7, -1.3, 0.6) == pytest.approx(delta, rel=1e-12)


def test_equal_distributions_are_private_and_points_are_not():
    assert gaussian_pair.epsilon(0.0, 1.0, 1e-9) == 0.0
    assert gaussian_pair.epsilon(1e-9, 1.0, 1e-6) == 0.0
    assert gaussian_pair.epsilon(1.0, 0.0, 1e-6) == math.inf
    assert gaussian_pair.epsilon(1e6, 1.0, 1e-6) == math.inf


def test_epsilon_is_the_inverse_of_delta():
    found = gaussian_pair.epsilon(0.8, 1.3, 1e-5)
    assert gaussian_pair.delta(found, 0.8, 1.3) == pytest.approx(1e-5, rel=1e-6)


@pytest.mark.parametrize('deviation', [0.1, 0.01, 1e-3])
def test_outside_of_a_narrow_distribution_the_other_one_gives_itself_away(deviation):
    # The loss of Q against P is log(deviation) + (y - m)^2 / (2 deviation^2) - y^2 / 2. Delta is
    # the mean of 1 - e^(epsilon - loss) under Q where that is above 0.
    mean, delta = 2.0, 1e-3
    y = np.linspace(-9, 9, 2_000_001)
    loss = math.log(deviation) + ((y - mean) / deviation) ** 2 / 2 - y**2 / 2
    found = gaussian_pair.epsilon(mean, deviation, delta)
    gain = -np.expm1(np.minimum(found - loss, 0))
    assert (stats.norm.pdf(y) * gain).sum() * (y[1] - y[0]) == pytest.approx(delta, rel=1e-2)


def test_a_distribution_without_spread_hides_nothing():
    assert gaussian_pair.epsilon(2.0, 1e-8, 1e-3) == math.inf
    assert gaussian_pair.epsilon(20.0, 2e-15, 1e-3) == math.inf
