"""Estimates and bounds from cosines of canaries whose distribution is known."""

import math

import numpy as np
import pytest
from scipy import special, stats

from dpfl.accounting import gaussian
from dpfl.accounting.measured import estimate as estimate_lib
from tests import oracles

_DIMENSION = 10**6
_DELTA = 1e-6


def _quantiles(count: int, mean: float = 0.0, deviation: float = 1.0) -> np.ndarray:
    """Cosines whose scores are spread exactly as a normal distribution."""
    scores = stats.norm.ppf((np.arange(count) + 0.5) / count)
    scores *= 1 / scores.std(ddof=1)
    return (mean + deviation * scores) / math.sqrt(_DIMENSION)


def _estimate(observed, delta=_DELTA, *, is_gaussian=True, dimension=_DIMENSION):
    null = _quantiles(1000)
    return estimate_lib.estimate(observed, null, dimension, delta, is_gaussian=is_gaussian)


@pytest.mark.parametrize('sigma, epsilon', [(4.22, 1.0), (1.54, 3.0), (0.541, 10.0)])
def test_the_estimate_of_a_known_gaussian_mechanism(sigma, epsilon):
    found = _estimate(_quantiles(1000, 1 / sigma))
    assert found.has_null_spread
    assert found.epsilon == pytest.approx(epsilon, rel=0.01)
    assert found.epsilon_fitted == pytest.approx(found.epsilon, rel=1e-6)
    margin = 1.959964 / math.sqrt(1000)
    ends = [gaussian.exact_epsilon(1 / sigma + each, _DELTA) for each in (-margin, margin)]
    assert (found.epsilon_low, found.epsilon_high) == pytest.approx(ends, rel=1e-5)
    assert found.epsilon_low < epsilon < found.epsilon_high
    assert found.mu_lower < 1 / sigma < found.mu_lower + 0.2
    assert found.epsilon_lower == pytest.approx(gaussian.exact_epsilon(found.mu_lower, _DELTA))


def test_canaries_that_change_nothing_show_nothing():
    found = _estimate(_quantiles(1000))
    assert found.epsilon == 0.0
    assert found.mu_lower == 0.0
    assert found.epsilon_lower == 0.0
    assert (found.null_mean, found.null_deviation) == pytest.approx((0.0, 1.0), abs=1e-9)


def test_another_spread_is_used_if_it_is_significant():
    found = _estimate(_quantiles(1000, 1.0, 1.5))
    assert not found.has_null_spread
    assert found.epsilon == found.epsilon_fitted > gaussian.exact_epsilon(1.0, _DELTA)
    assert found.epsilon_low < found.epsilon < found.epsilon_high


def test_canaries_without_noise_give_an_unbounded_estimate():
    found = _estimate(np.ones(500))
    assert found.epsilon == math.inf
    # No test against a null can be sure: the bound stays finite, at the least rate it counts.
    assert 35 < found.mu_lower < 40


def test_the_null_is_that_of_a_sphere():
    # In three dimensions the cosine is uniform (Archimedes).
    cosines = np.array([-1.0, -0.4, 0.0, 0.3, 1.0])
    assert estimate_lib.null_tail(cosines, 3) == pytest.approx((1 - cosines) / 2)
    tail = estimate_lib.null_tail(np.array([0.003]), _DIMENSION)
    assert tail == pytest.approx(stats.norm.sf(3.0), rel=1e-4)


def test_lower_bounds_by_hand():
    # Of 100 cosines in three dimensions, 60 are at 0.9 and 40 at -0.9.
    cosines = np.repeat([0.9, -0.9], [60, 40])
    slack = math.sqrt(math.log(20) / 200)
    mu, epsilon = estimate_lib.lower_bounds(cosines, 3, 1e-3, is_gaussian=True)
    assert mu == pytest.approx(special.ndtri(0.6 - slack) - special.ndtri(0.05))
    assert epsilon == pytest.approx(gaussian.exact_epsilon(mu, 1e-3), rel=1e-9)
    none, epsilon = estimate_lib.lower_bounds(cosines, 3, 1e-3, is_gaussian=False)
    assert none is None
    assert epsilon == pytest.approx(math.log((0.6 - slack - 1e-3) / 0.05))


def test_the_lower_bound_fails_as_rarely_as_it_says():
    random = np.random.default_rng(1)
    mu, count, runs = 1.0, 200, 400
    scores = (mu + random.standard_normal((runs, count))) / math.sqrt(_DIMENSION)
    bounds = [
        estimate_lib.lower_bounds(each, _DIMENSION, _DELTA, is_gaussian=True)[0] for each in scores
    ]
    # The probability of more than 45 failures among 400 is below 1e-6 if each has 5 %.
    assert sum(bound > mu for bound in bounds) <= 45
    assert np.median(bounds) > 0.7


@pytest.mark.parametrize('mu', [0.1, 0.2370, 1.0, 5.0])
@pytest.mark.parametrize('delta', [1e-10, 1e-3])
def test_equal_spreads_give_the_curve_of_a_gaussian_mechanism(mu, delta):
    expected = gaussian.exact_epsilon(mu, delta)
    assert estimate_lib.epsilon(mu, 1.0, delta) == pytest.approx(expected, rel=1e-8)
    # Next to equal spreads the quadratic has a root that is far away.
    assert estimate_lib.epsilon(mu, 1 + 1e-12, delta) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    'epsilon, mean, deviation',
    [(0.5, 1.0, 1.2), (1.0, -2.0, 0.7), (2.0, 0.3, 1.5), (0.1, 0.0, 1.1), (0.1, 0.0, 0.8)],
)
def test_delta_is_that_of_the_definition(epsilon, mean, deviation):
    y = np.linspace(-30, 30, 300_001)
    p, q = stats.norm.pdf(y, mean, deviation), stats.norm.pdf(y)
    exact = oracles.hockey_stick(p, q, epsilon, y[1] - y[0])
    assert estimate_lib.delta(epsilon, mean, deviation) == pytest.approx(exact, abs=1e-8)


def test_equal_distributions_are_private_and_points_are_not():
    for arguments in ((0.0, 1.0, 1e-9), (1e-9, 1.0, 1e-6)):
        assert estimate_lib.epsilon(*arguments) == 0.0
    for arguments in ((1.0, 0.0, 1e-6), (1e6, 1.0, 1e-6), (2.0, 1e-8, 1e-3), (20.0, 2e-15, 1e-3)):
        assert estimate_lib.epsilon(*arguments) == math.inf
    epsilon = estimate_lib.epsilon(0.8, 1.3, 1e-5)
    assert estimate_lib.delta(epsilon, 0.8, 1.3) == pytest.approx(1e-5, rel=1e-6)


@pytest.mark.parametrize('deviation', [0.1, 0.01, 1e-3])
def test_outside_of_a_narrow_distribution_the_other_one_gives_itself_away(deviation):
    # The loss of Q against P is log(deviation) + (y - m)^2 / (2 deviation^2) - y^2 / 2. Delta is
    # the mean of 1 - e^(epsilon - loss) under Q where that is above 0.
    mean, delta = 2.0, 1e-3
    y = np.linspace(-9, 9, 300_001)
    loss = math.log(deviation) + ((y - mean) / deviation) ** 2 / 2 - y**2 / 2
    found = estimate_lib.epsilon(mean, deviation, delta)
    gain = -np.expm1(np.minimum(found - loss, 0))
    assert (stats.norm.pdf(y) * gain).sum() * (y[1] - y[0]) == pytest.approx(delta, rel=1e-2)
