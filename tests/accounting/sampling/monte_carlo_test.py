"""Samplings with estimated guarantees: their mixtures, proposals and epsilon, by brute force."""

import collections
import dataclasses
import functools
import itertools
import math

import numpy as np
import pytest
from scipy import stats

from dpfl import accounting, mechanisms
from dpfl.accounting import gaussian
from dpfl.accounting.evidence import separated
from dpfl.accounting.sampling import balls_in_bins, monte_carlo
from dpfl.accounting.sampling.b_min_sep import Release, Separated
from dpfl.simulation.sampling import RandomSampler
from tests import sampling_oracles
from tests.sizes import standard

_SAMPLES = 50_000


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


def _strategy(rounds, bands=None):
    entries = np.random.default_rng(rounds).uniform(0, 0.7, (rounds, rounds))
    matrix = np.tril(entries) + np.eye(rounds)
    return matrix if bands is None else matrix - np.tril(matrix, -bands)


def _exact(matrix, patterns, stddev, delta):
    points = 40 if len(matrix) < 4 else 60
    curve = sampling_oracles.curve_of_patterns(matrix, patterns, stddev, points)
    return sampling_oracles.epsilon_of(curve, delta)


def _estimate(mixtures, stddev, delta, samples=_SAMPLES, **options):
    return monte_carlo.epsilon(mixtures, stddev, delta, samples=samples, **options)


# --- Epsilon by brute force.


def _bins(rounds, groups):
    matrix = _strategy(rounds)
    patterns = sampling_oracles.bin_patterns(rounds, groups)
    return balls_in_bins.of_bins(matrix, groups), matrix, patterns


def _slots(rounds, groups, below=0.0):
    """Random allocation; noise is correlated between epochs by an entry below the diagonal."""
    matrix = np.eye(rounds) + np.diag(np.full(rounds - 1, below), -1)
    return balls_in_bins.of_epochs(matrix, groups), matrix, _allocations(rounds, groups)


def _waits(rounds, separation, bands, probability):
    matrix = _strategy(rounds, bands)
    patterns = sampling_oracles.separated_patterns(rounds, separation, probability)
    return Separated(matrix, separation, probability), matrix, patterns


@pytest.mark.parametrize(
    'make, arguments, stddev, delta, most',
    [
        (_bins, (2, 2), 1.0, 1e-3, 1.05),
        (_bins, (3, 2), 3.0, 1e-6, 1.05),
        (_bins, (3, 3), 3.0, 1e-3, 1.05),
        standard(_bins, (4, 2), 2.0, 1e-5, 1.05),
        standard(_bins, (4, 3), 4.0, 1e-4, 1.05),
        (_slots, (3, 2), 1.5, 1e-4, 1.03),
        standard(_slots, (4, 2), 2.0, 1e-4, 1.03),
        # With noise that is correlated between epochs it is a bound.
        (_slots, (3, 2, 0.3), 1.5, 1e-4, 1.3),
        standard(_slots, (4, 2, 0.3), 2.0, 1e-4, 1.3),
        (_waits, (2, 1, 1, 0.3), 1.5, 1e-4, 1.08),
        (_waits, (3, 2, 2, 0.4), 2.0, 1e-4, 1.08),
        standard(_waits, (3, 1, 1, 0.1), 1.0, 1e-3, 1.08),
        (_waits, (3, 3, 2, 0.5), 2.0, 1e-6, 1.08),
    ],
)
def test_estimates_are_never_below_brute_force(make, arguments, stddev, delta, most):
    mixtures, matrix, patterns = make(*arguments)
    exact = _exact(matrix, patterns, stddev, delta)
    found = _estimate(mixtures, stddev, delta)
    assert exact <= found.epsilon <= most * exact and found.is_amplified
    assert exact < 0.9 * found.unamplified


def test_one_bin_is_the_mechanism_without_amplification():
    matrix = _strategy(5)
    mu = np.linalg.norm(matrix.sum(axis=1)) / 3
    for mixtures in (balls_in_bins.of_bins(matrix, 1), balls_in_bins.of_epochs(matrix, 1)):
        found = _estimate(mixtures, 3.0, 1e-5)
        assert found.epsilon == found.unamplified and not found.is_amplified
        assert found.epsilon == pytest.approx(gaussian.exact_epsilon(mu, 1e-5), rel=1e-6)


def test_the_worst_means_have_the_absolute_values_of_the_strategy():
    matrix = np.array([[1.0, 0, 0], [-0.5, 1, 0], [0.25, -0.5, 1]])
    (gram,) = balls_in_bins.of_bins(np.abs(matrix), 2).grams
    first, second = np.array([1.0, 0.5, 1.25]), np.array([0.0, 1.0, 0.5])
    expected = [[first @ first, first @ second], [first @ second, second @ second]]
    np.testing.assert_allclose(gram, expected, rtol=1e-9)
    assert (gram >= expected).all()
    found = _estimate(balls_in_bins.Mixtures((gram,)), 2.0, 1e-4).epsilon
    for x, y, z in itertools.product((-1.0, 1.0), repeat=3):
        updates = np.array([[x, 0, z], [0, y, 0]])
        if (updates[0] @ matrix.T) @ (updates[1] @ matrix.T) >= 0:  # As the oracle needs.
            assert _exact(matrix, zip((0.5, 0.5), updates, strict=True), 2.0, 1e-4) <= found


def test_mixtures_of_a_mechanism():
    toeplitz = mechanisms.BandedToeplitz(6, [1.0, 0.5])
    matrix = toeplitz.strategy_matrix()
    found = balls_in_bins.of_epochs(np.abs(matrix), 4)
    sizes = [gram.shape for gram in found.grams]
    assert sizes == [(4, 4), (4, 4), (1, 1)]  # The last one is what epochs have in common.
    assert found.grams[2] == pytest.approx(2 * 0.5)
    # Only two rounds are left of the second epoch.
    assert not found.grams[1][2:].any() and found.grams[1][1, 1] == pytest.approx(1)
    assert found.squared_norm >= max(
        ((matrix @ updates) ** 2).sum() for _, updates in _allocations(6, 4)
    )
    restarted = mechanisms.Restarted(mechanisms.BandedToeplitz(4, [1.0, 0.5]), (4,), 6)
    assert len(balls_in_bins.of_epochs(restarted.strategy_matrix(), 4).grams) == 2


@pytest.mark.parametrize('tilts', [(1.0, 0.0), (2.5, 0.0), (1.0, 3.0), (4.0, 9.0)])
def test_weights_keep_expectations_and_ranges(tilts):
    release = balls_in_bins.of_bins(_strategy(4), 3).release(3.0)
    generator = np.random.default_rng(5)
    (loss, weight), (gain, counterweight) = release.samples(generator, 100_000, tilts)
    # Both proposals give the divergences of the plain samples, within four standard errors.
    plain = release.samples(np.random.default_rng(6), 100_000, (1.0, 0.0))
    for (losses, weights), (others, _), payoffs in (
        ((loss, weight), plain[0], release.removed_range(tilts[0])),
        ((gain, counterweight), plain[1], release.added_range(tilts[1])),
    ):
        for epsilon in (0.0, 0.3):
            values = np.exp(weights) * -np.expm1(np.minimum(epsilon - losses, 0))
            expected = -np.expm1(np.minimum(epsilon - others, 0))
            error = math.hypot(values.std(), expected.std()) / math.sqrt(100_000)
            assert abs(values.mean() - expected.mean()) < 4 * error
            assert np.log(values.max()) <= payoffs.log_largest(epsilon)


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


def test_results_are_the_same_again_and_depend_on_the_seed():
    estimate = functools.partial(
        _estimate, balls_in_bins.of_bins(_strategy(4), 4), 3.0, 1e-4, 20_000
    )
    shares = []
    first = estimate(on_progress=shares.append)
    assert first == estimate() and shares[-1] == 1
    other = estimate(seed=1)
    assert other.seed == 1 and other.epsilon != first.epsilon
    assert other.epsilon == pytest.approx(first.epsilon, rel=0.05)
    assert dataclasses.replace(first, epsilon=0, tilts=()) == monte_carlo.Estimate(
        0, 1e-4, monte_carlo.FAILURE, 20_000, monte_carlo.SEED, first.unamplified, ()
    )


def test_too_few_samples_fall_back_to_the_bound_without_amplification():
    found = _estimate(balls_in_bins.of_bins(np.eye(3), 3), 0.3, 1e-9, samples=3)
    assert found.epsilon == found.unamplified and not found.is_amplified
    assert found.unamplified == pytest.approx(gaussian.exact_epsilon(1 / 0.3, 1e-9), rel=1e-6)
    silent = _estimate(balls_in_bins.of_bins(np.eye(3), 3), 1e9, 1e-6)
    assert 0 <= silent.epsilon < 1e-6


# --- The sets of rounds of b-min-sep sampling.

_STDDEV = 1.3
# Rounds, separation, bands, probability.
_CASES = [(7, 3, 3, 0.4), (6, 2, 1, 0.3), (5, 1, 1, 0.2), (7, 3, 2, 1.0), (4, 60, 3, 0.5)]


def _all_sets(*case):
    """The mixture, all weights, and all means in units of the noise."""
    mixed, matrix, patterns = _waits(*case)
    weights, updates = map(np.array, zip(*patterns, strict=True))
    assert weights.sum() == pytest.approx(1, rel=1e-12)
    return Release(mixed, _STDDEV), weights, updates @ matrix.T / _STDDEV, updates


@pytest.mark.parametrize('case', _CASES)
def test_likelihoods_and_moments_are_those_of_all_sets(case):
    release, weights, means, _ = _all_sets(*case)
    rounds, _, bands, _ = case
    y = np.random.default_rng(1).standard_normal((9, rounds))
    squares = (means**2).sum(axis=1)
    products = _strategy(rounds, bands).T @ y.T / _STDDEV
    logs = products - release._norms[:, None] / 2
    for power in (1.0, 2.5):
        terms = power * (y @ means.T - squares / 2)
        expected = np.log((weights * np.exp(terms)).sum(axis=1))
        np.testing.assert_allclose(release._log_ratio(power * logs), expected, atol=1e-12)
        total = np.log((weights * np.exp(power * (power - 1) / 2 * squares)).sum())
        assert release._log_total(power) == pytest.approx(total, abs=1e-12)
    assert release.largest == pytest.approx(squares.max())
    assert release._log_waits.size <= rounds + 1  # Entries of memory that a sample takes.
    mean = weights @ means
    assert release.square_of_mean == pytest.approx(mean @ mean)
    assert release.mean_square == pytest.approx(weights @ squares)


@pytest.mark.parametrize('case', _CASES)
@pytest.mark.parametrize('tilt', [2.5, standard(1.0)])
def test_samples_have_the_law_of_the_proposals(case, tilt):
    release, weights, means, updates = _all_sets(*case)
    count, rounds = 20_000, case[0]
    expected = weights * np.exp(tilt * (tilt - 1) / 2 * (means**2).sum(axis=1))
    expected *= count / expected.sum()
    found = np.zeros((count, rounds + 1), int)
    for chosen in release._sets(np.random.default_rng(2), count, tilt):
        found[np.arange(count), np.minimum(chosen, rounds)] = 1
    seen = collections.Counter(map(tuple, found[:, :rounds].tolist()))
    counts = np.array([seen.pop(tuple(map(int, row)), 0) for row in updates])
    assert not seen  # Nothing but sets that keep the separation.
    # A Chernoff bound for each set, with 1e-8 of failure.
    allowed = np.sqrt(2 * expected * math.log(2e8)) + math.log(2e8)
    assert (np.abs(counts - expected) <= allowed).all()


@pytest.mark.parametrize('case', _CASES[:3])
def test_weighted_samples_integrate_to_one(case):
    # E_R A / B = E_P 1 = 1 and E_R 1 / B = E_Q 1 = 1, for every tilt.
    release = _all_sets(*case)[0]
    for tilts in ((1.4, 0.7), (1.1, 0.3)):
        removed, added = release.samples(np.random.default_rng(3), 50_000, tilts)
        for _, log_weights in (removed, added):
            weights = np.exp(log_weights)
            assert abs(weights.mean() - 1) < 6 * weights.std() / math.sqrt(weights.size)
        # Payoffs are at most what the range says, at any epsilon.
        for (losses, logs), reach in (
            (removed, release.removed_range(tilts[0])),
            (added, release.added_range(tilts[1])),
        ):
            for epsilon in (0.0, 0.5, 2.0):
                payoffs = np.exp(logs) * np.maximum(-np.expm1(epsilon - losses), 0)
                assert payoffs.max() <= math.exp(reach.log_largest(epsilon))
                assert epsilon or payoffs.max() > 0


def test_losses_that_would_be_rounded_too_much_show_nothing():
    mixed = Separated(1e5 * np.eye(3), 1, 0.5)
    with pytest.raises(OverflowError):
        Release(mixed, 1.0).samples(np.random.default_rng(0), 10, (1.0, 0.0))


def test_the_sampler_has_the_law_of_the_accounting():
    rounds, groups, population = 4, 2, 30_000
    kind = accounting.BMinSep(population=population, groups=groups)
    sampler = RandomSampler(kind, rounds, 8_000, seed=5)
    chosen = np.zeros((population, rounds), int)
    for t in range(rounds):
        chosen[sampler.cohort(t), t] += 1
    seen = collections.Counter(map(tuple, chosen.tolist()))
    probability = separated.probability(population, 8_000, groups)
    assert probability == pytest.approx(8 / 22)
    for weight, updates in sampling_oracles.separated_patterns(rounds, groups, probability):
        expected = population * weight
        allowed = math.sqrt(2 * expected * math.log(2e8)) + math.log(2e8)
        assert abs(seen.pop(tuple(map(int, updates)), 0) - expected) <= allowed
    assert not seen
    # A round follows from the seed, whichever was asked for first.
    again = dataclasses.replace(sampler)
    np.testing.assert_array_equal(again.cohort(3), sampler.cohort(3))
    np.testing.assert_array_equal(again.cohort(0), sampler.cohort(0))
    other = dataclasses.replace(sampler, seed=6)
    assert not np.array_equal(other.cohort(3), again.cohort(3))
    with pytest.raises(ValueError, match='round=4'):
        sampler.cohort(4)
