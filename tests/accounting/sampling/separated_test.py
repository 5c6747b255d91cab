"""Tests of b-min-sep sampling: likelihoods, proposals and epsilon against all sets of rounds."""

import collections
import dataclasses
import math

import numpy as np
import pytest
from scipy import optimize, special
from scipy.stats import qmc

from dpfl import accounting
from dpfl.accounting.sampling import bins, monte_carlo, separated
from dpfl.accounting.sampling.separated import Release, Separated
from dpfl.simulation.sampling import RandomSampler
from tests import sampling_oracles
from tests.accounting import plans

_STDDEV = 1.3
# Rounds, separation, bands, probability.
_CASES = [(7, 3, 3, 0.4), (6, 2, 1, 0.3), (5, 1, 1, 0.2), (7, 3, 2, 1.0), (4, 6, 3, 0.5)]


def _strategy(rounds, bands, most=0.7):
    matrix = np.random.default_rng(rounds).uniform(0, most, (rounds, rounds)) + np.eye(rounds)
    return np.tril(matrix) - np.tril(matrix, -bands)


def _all_sets(rounds, separation, bands, probability):
    """The mixture, all weights, and all means in units of the noise."""
    matrix = _strategy(rounds, bands)
    patterns = sampling_oracles.separated_patterns(rounds, separation, probability)
    weights, updates = map(np.array, zip(*patterns, strict=True))
    assert weights.sum() == pytest.approx(1, rel=1e-12)
    release = Release(Separated(matrix, separation, probability), _STDDEV)
    return release, weights, updates @ matrix.T / _STDDEV, updates


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
    mean = weights @ means
    assert release._square_of_mean == pytest.approx(mean @ mean)
    assert release._mean_square == pytest.approx(weights @ squares)


@pytest.mark.parametrize('case', _CASES)
@pytest.mark.parametrize('tilt', [2.5, pytest.param(1.0, marks=pytest.mark.standard)])
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


@pytest.mark.parametrize(
    'rounds, separation, bands, probability, stddev, delta',
    [
        (2, 1, 1, 0.3, 1.5, 1e-4),
        (3, 2, 2, 0.4, 2.0, 1e-4),
        (3, 1, 1, 0.1, 1.0, 1e-3),
        (3, 3, 2, 0.5, 2.0, 1e-6),
    ],
)
def test_estimates_are_never_below_brute_force(
    rounds, separation, bands, probability, stddev, delta
):
    matrix = _strategy(rounds, bands)
    patterns = sampling_oracles.separated_patterns(rounds, separation, probability)
    exact = sampling_oracles.epsilon_of(
        sampling_oracles.curve_of_patterns(matrix, patterns, stddev, points=40), delta
    )
    mixed = Separated(matrix, separation, probability)
    found = monte_carlo.epsilon(mixed, stddev, delta, samples=50_000)
    assert exact <= found.epsilon <= 1.08 * exact and found.is_amplified


@pytest.mark.standard
def test_special_cases_agree_with_other_samplings():
    # Without separation it is Poisson sampling, by privacy loss distributions.
    poisson = plans.independent(20, sampling='poisson', population=100)
    exact = poisson.epsilon(1e-4)
    found = monte_carlo.epsilon(Separated(np.eye(20), 1, 0.1), 2.0, 1e-4, samples=100_000)
    assert exact <= found.epsilon <= 1.1 * exact
    # A client that always takes part as soon as it may is in a bin.
    matrix = _strategy(9, 3)
    mixtures = bins.balls_in_bins(matrix, 3)
    binned = monte_carlo.epsilon(mixtures, 3.0, 1e-4, samples=100_000)
    found = monte_carlo.epsilon(Separated(matrix, 3, 1.0), 3.0, 1e-4, samples=100_000)
    assert found.epsilon == pytest.approx(binned.epsilon, rel=0.02)
    assert found.unamplified == pytest.approx(binned.unamplified, rel=1e-6)


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


@pytest.mark.parametrize(
    'rounds, separation, bands, chance, stddev',
    [(5, 2, 2, 0.3, 1.5), (6, 3, 3, 0.4, 1.5), (6, 2, 2, 0.2, 2.0)],
)
def test_epsilon_is_just_above_that_of_more_rounds_by_quasi_monte_carlo(
    rounds, separation, bands, chance, stddev
):
    """The divergences of all sets are integrated with scrambled Sobol points."""
    delta, matrix = 1e-2, _strategy(rounds, bands)
    patterns = sampling_oracles.separated_patterns(rounds, separation, chance)
    points = qmc.Sobol(rounds, scramble=True, seed=0).random_base2(18)
    y = special.ndtri(np.clip(points, 1e-15, 1 - 1e-15))
    ratios = np.zeros(len(y))
    for weight, update in patterns:
        mean = matrix @ np.asarray(update) / stddev
        ratios += weight * np.exp(y @ mean - mean @ mean / 2)

    def excess(epsilon):
        factor = math.exp(epsilon)
        removed = np.maximum(ratios - factor, 0).mean()
        added = np.maximum(1 - factor * ratios, 0).mean()
        return max(removed, added) - delta

    truth = optimize.brentq(excess, 0.0, 10.0)
    release = Separated(matrix, separation, chance)
    found = monte_carlo.epsilon(release, stddev, delta, samples=100_000)
    # The points give delta within a percent, and epsilon within a third of a percent.
    assert truth * 0.997 < found.epsilon < truth * 1.04
