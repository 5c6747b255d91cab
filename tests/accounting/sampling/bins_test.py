"""Tests of balls in bins and random allocation: their mixtures, and epsilon from samples."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from scipy import stats

from dpfl import errors, mechanisms
from dpfl.accounting import gaussian_curve
from dpfl.accounting.sampling import bins, monte_carlo, tilted
from tests import sampling_oracles

_SAMPLES = 50_000


def _patterns(rounds, groups):
    """The rounds of each bin, with their probability."""
    found = []
    for first in range(groups):
        updates = np.zeros(rounds)
        updates[first::groups] = 1
        found.append((1 / groups, updates))
    return found


def _allocations(rounds, groups):
    """One round of each epoch, in all combinations, with their probability."""
    found = [(1.0, np.zeros(rounds))]
    for first in range(0, rounds, groups):
        longer = []
        for weight, updates in found:
            for place in range(groups):
                more = updates.copy()
                if first + place < rounds:
                    more[first + place] = 1
                longer.append((weight / groups, more))
        found = longer
    return found


def _strategy(rounds):
    return np.tril(np.random.default_rng(rounds).uniform(0, 0.7, (rounds, rounds))) + np.eye(rounds)


def _estimate(mixtures, stddev, delta, samples=_SAMPLES, **options):
    return monte_carlo.epsilon(mixtures, stddev, delta, samples=samples, **options)


@pytest.mark.parametrize(
    'rounds, groups, stddev, delta',
    [
        (2, 2, 1.0, 1e-3),
        (3, 2, 3.0, 1e-6),
        (3, 3, 3.0, 1e-3),
        pytest.param(4, 2, 2.0, 1e-5, marks=pytest.mark.standard),
        pytest.param(4, 3, 4.0, 1e-4, marks=pytest.mark.standard),
    ],
)
def test_balls_in_bins_are_never_below_brute_force(rounds, groups, stddev, delta):
    matrix = _strategy(rounds)
    exact = sampling_oracles.epsilon_of(
        sampling_oracles.curve_of_patterns(matrix, _patterns(rounds, groups), stddev), delta
    )
    found = _estimate(bins.balls_in_bins(matrix, groups), stddev, delta)
    assert exact <= found.epsilon <= 1.05 * exact and found.is_amplified
    assert exact < 0.9 * found.unamplified


@pytest.mark.parametrize(
    'rounds, groups, stddev',
    [(3, 2, 1.5), pytest.param(4, 2, 2.0, marks=pytest.mark.standard)],
)
def test_random_allocation_is_never_below_brute_force(rounds, groups, stddev):
    patterns, delta = _allocations(rounds, groups), 1e-4
    exact = sampling_oracles.epsilon_of(
        sampling_oracles.curve_of_patterns(np.eye(rounds), patterns, stddev), delta
    )
    found = _estimate(bins.allocation(np.eye(rounds), groups), stddev, delta)
    assert exact <= found.epsilon <= 1.03 * exact
    # With noise that is correlated between epochs it is a bound.
    matrix = np.eye(rounds) + np.diag(np.full(rounds - 1, 0.3), -1)
    exact = sampling_oracles.epsilon_of(
        sampling_oracles.curve_of_patterns(matrix, patterns, stddev), delta
    )
    found = _estimate(bins.allocation(matrix, groups), stddev, delta)
    assert exact <= found.epsilon <= 1.3 * exact


@pytest.mark.standard
def test_one_epoch_of_independent_noise_agrees_with_convolutions():
    # T A is a sum of T independent terms, whose rounded distributions are convolved. Rounding down
    # and up brackets the divergence of the removed client, which grows with A.
    terms, stddev, delta, step = 10, 2.0, 1e-4, 0.01
    normal = np.linspace(-8, 8, 400_001)
    masses = np.diff(stats.norm.cdf(normal))
    ratios = np.exp(normal / stddev - 1 / (2 * stddev**2))
    bounds = []
    for values in (np.floor(ratios[:-1] / step), np.ceil(ratios[1:] / step)):
        one = np.bincount(values.astype(int), masses)
        size = 2**17
        composed = np.fft.irfft(np.fft.rfft(one, size) ** terms, size).clip(0)
        means = np.arange(size) * step / terms

        def curve(epsilon, composed=composed, means=means):
            return float((composed * (means - math.exp(epsilon)).clip(0)).sum())

        bounds.append(sampling_oracles.epsilon_of(curve, delta))
    low, high = bounds
    found = _estimate(bins.allocation(np.eye(terms), terms), stddev, delta, 400_000)
    assert low < high < 1.02 * low
    assert low <= found.epsilon <= 1.05 * high
    assert found == _estimate(bins.balls_in_bins(np.eye(terms), terms), stddev, delta, 400_000)


def test_one_bin_is_the_mechanism_without_amplification():
    matrix = _strategy(5)
    mu = np.linalg.norm(matrix.sum(axis=1)) / 3
    for mixtures in (bins.balls_in_bins(matrix, 1), bins.allocation(matrix, 1)):
        found = _estimate(mixtures, 3.0, 1e-5)
        assert found.epsilon == found.unamplified and not found.is_amplified
        assert found.epsilon == pytest.approx(gaussian_curve.epsilon(mu, 1e-5), rel=1e-6)


def test_the_worst_means_have_the_absolute_values_of_the_strategy():
    matrix = np.array([[1.0, 0, 0], [-0.5, 1, 0], [0.25, -0.5, 1]])
    (gram,) = bins.balls_in_bins(np.abs(matrix), 2).grams
    first, second = np.array([1.0, 0.5, 1.25]), np.array([0.0, 1.0, 0.5])
    expected = [[first @ first, first @ second], [first @ second, second @ second]]
    np.testing.assert_allclose(gram, expected, rtol=1e-9)
    assert (gram >= expected).all()
    found = _estimate(bins.Mixtures((gram,)), 2.0, 1e-4).epsilon
    for x, y, z in itertools.product((-1.0, 1.0), repeat=3):
        updates = np.array([[x, 0, z], [0, y, 0]])
        if (updates[0] @ matrix.T) @ (updates[1] @ matrix.T) >= 0:  # As the oracle needs.
            curve = sampling_oracles.curve_of_patterns(
                matrix, zip((0.5, 0.5), updates, strict=True), 2.0
            )
            assert sampling_oracles.epsilon_of(curve, 1e-4) <= found


def test_mixtures_of_a_mechanism():
    toeplitz = mechanisms.BandedToeplitz(6, [1.0, 0.5])
    matrix = toeplitz.strategy_matrix()
    found = bins.allocation(np.abs(matrix), 4)
    sizes = [gram.shape for gram in found.grams]
    assert sizes == [(4, 4), (4, 4), (1, 1)]  # The last one is what epochs have in common.
    assert found.grams[2] == pytest.approx(2 * 0.5)
    # Only two rounds are left of the second epoch.
    assert not found.grams[1][2:].any() and found.grams[1][1, 1] == pytest.approx(1)
    assert found.squared_norm >= max(
        ((matrix @ updates) ** 2).sum() for _, updates in _allocations(6, 4)
    )
    restarted = mechanisms.Restarted(mechanisms.BandedToeplitz(4, [1.0, 0.5]), (4,), 6)
    assert len(bins.allocation(restarted.strategy_matrix(), 4).grams) == 2


@pytest.mark.parametrize('tilts', [(1.0, 0.0), (2.5, 0.0), (1.0, 3.0), (4.0, 9.0)])
def test_weights_keep_expectations_and_ranges(tilts):
    release = tilted.Release.of(bins.balls_in_bins(_strategy(4), 3), 3.0)
    generator = np.random.default_rng(5)
    (loss, weight), (gain, counterweight) = release.samples(generator, 200_000, tilts)
    # Both proposals give the divergences of the plain samples, within four standard errors.
    plain = release.samples(np.random.default_rng(6), 200_000, (1.0, 0.0))
    for (losses, weights), (others, _), payoffs in (
        ((loss, weight), plain[0], release.removed_range(tilts[0])),
        ((gain, counterweight), plain[1], release.added_range(tilts[1])),
    ):
        for epsilon in (0.0, 0.3):
            values = np.exp(weights) * -np.expm1(np.minimum(epsilon - losses, 0))
            expected = -np.expm1(np.minimum(epsilon - others, 0))
            error = math.hypot(values.std(), expected.std()) / math.sqrt(200_000)
            assert abs(values.mean() - expected.mean()) < 4 * error
            assert np.log(values.max()) <= payoffs.log_largest(epsilon)


def test_the_range_of_payoffs_is_attained_by_equal_means():
    # One component: the inequality of Jensen is an equality, and so is the bound of the payoff.
    release = tilted.Release.of(bins.Mixtures((np.array([[1.0]]),)), 1.0)
    losses = np.linspace(-1, 6, 100_001)
    for tilt in (1.5, 3.0):
        # A = e^loss and B = A^s exp(-s (s - 1) / 2).
        weights = np.exp((1 - tilt) * losses + tilt * (tilt - 1) / 2)
        most = (weights * -np.expm1(np.minimum(1.0 - losses, 0))).max()
        assert release.removed_range(tilt).log_largest(1.0) == pytest.approx(np.log(most), abs=1e-3)


def test_the_upper_bound_holds_for_coins_and_is_tight():
    # The probability of so few heads is at most, and for coins nearly, the failure probability.
    for heads, count in ((0, 1000), (7, 1000), (300, 1000)):
        bound = monte_carlo.upper_bound(heads / count, 1.0, count, 1e-3)
        assert 1e-5 < stats.binom.cdf(heads, count, bound) <= 1e-3
        exact = stats.beta.ppf(1 - 1e-3, heads + 1, count - heads)
        assert exact <= bound <= exact * 1.25 + 1e-3
    assert monte_carlo.upper_bound(0.02, 0.1, 500, 0.01) == pytest.approx(
        0.1 * monte_carlo.upper_bound(0.2, 1.0, 500, 0.01), rel=1e-9
    )
    assert monte_carlo.upper_bound(0.0, 1.0, 1000, 1e-3) == pytest.approx(
        1 - 1e-3 ** (1 / 1000), rel=1e-6
    )


@pytest.mark.standard
def test_estimates_fail_less_often_than_they_say():
    # With a failure probability of 0.3, a third of the estimates may be too small; with the exact
    # value by quadrature it shows that the bound is not trivially loose either.
    matrix = np.eye(2)
    exact = sampling_oracles.epsilon_of(
        sampling_oracles.curve_of_patterns(matrix, _patterns(2, 2), 1.0), 1e-2
    )
    found = [
        _estimate(bins.balls_in_bins(matrix, 2), 1.0, 1e-2, 2000, seed=seed, failure=0.3).epsilon
        for seed in range(20)
    ]
    assert sum(each < exact for each in found) <= 0.3 * 20
    assert np.median(found) < 1.1 * exact


def test_results_are_the_same_again_and_depend_on_the_seed():
    mixtures = bins.balls_in_bins(_strategy(4), 4)
    shares = []
    first = _estimate(mixtures, 3.0, 1e-4, on_progress=shares.append)
    assert first == _estimate(mixtures, 3.0, 1e-4) and shares[-1] == 1
    other = _estimate(mixtures, 3.0, 1e-4, seed=1)
    assert other.seed == 1 and other.epsilon != first.epsilon
    assert other.epsilon == pytest.approx(first.epsilon, rel=0.03)
    assert dataclasses.replace(first, epsilon=0, tilts=()) == monte_carlo.Estimate(
        0, 1e-4, monte_carlo.FAILURE, _SAMPLES, monte_carlo.SEED, first.unamplified, ()
    )


def test_too_few_samples_fall_back_to_the_bound_without_amplification():
    found = _estimate(bins.balls_in_bins(np.eye(3), 3), 0.3, 1e-9, samples=3)
    assert found.epsilon == found.unamplified and not found.is_amplified
    assert found.unamplified == pytest.approx(gaussian_curve.epsilon(1 / 0.3, 1e-9), rel=1e-6)
    silent = _estimate(bins.balls_in_bins(np.eye(3), 3), 1e9, 1e-6)
    assert 0 <= silent.epsilon < 1e-6


@pytest.mark.parametrize(
    'changes, message',
    [
        (dict(stddev=0.0), 'stddev=0.0: '),
        (dict(delta=1.0), 'delta=1.0: '),
        (dict(samples=0), 'samples=0: '),
        (dict(seed=-1), 'seed=-1: '),
        (dict(failure=0.0), 'failure=0.0: '),
    ],
)
def test_arguments_out_of_range_are_refused(changes, message):
    arguments = dict(stddev=1.0, delta=1e-5, samples=10) | changes
    with pytest.raises(errors.ArgumentError, match=message):
        monte_carlo.epsilon(bins.balls_in_bins(np.eye(2), 2), **arguments)
