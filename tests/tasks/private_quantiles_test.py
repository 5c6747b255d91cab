"""Quantiles that are found privately: their accuracy, and their privacy by brute force."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from dpfl.accounting.losses.dominating_pairs import Neighbours
from dpfl.tasks import before_training
from dpfl.tasks.before_training import CANDIDATES, QuantileRelease


class _NoNoise:
    def standard_normal(self):
        return 0.0


def _exact(values, candidates, share):
    """The least candidate with a share of the values at or below it, by looking at all of them."""
    known = values[~np.isnan(values)]
    for candidate in candidates:
        if (known <= candidate).sum() >= share * known.size:
            return candidate
    return candidates[-1]


@pytest.mark.parametrize('measure', sorted(CANDIDATES))
@pytest.mark.parametrize('share', [0.05, 0.25, 0.5, 0.9])
def test_without_noise_a_search_finds_the_quantile(measure, share):
    candidates = CANDIDATES[measure]
    random = np.random.default_rng(5)
    values = random.choice(candidates[:-1], 301) + random.choice([0.0, 1e-4], 301)
    values[:20] = np.nan
    found = QuantileRelease({'x': share}, 1.0).find({'x': values}, {'x': candidates}, _NoNoise())
    assert found == {'x': _exact(values, candidates, share)}


def test_values_beyond_the_candidates_and_no_values():
    release, candidates = QuantileRelease({'x': 0.5}, 1.0), {'x': CANDIDATES['accuracy']}
    assert release.find({'x': np.full(9, 7.0)}, candidates, _NoNoise()) == {'x': 1.0}
    assert release.find({'x': np.full(9, -7.0)}, candidates, _NoNoise()) == {'x': 0.0}
    noise = np.random.default_rng(0)
    found = release.find({'x': np.full(9, np.nan)}, candidates, noise)
    assert 0 <= found['x'] <= 1


def _outcomes(values, share, release, candidates):
    """The probability of each result of a search, from the definition."""
    values, found = np.asarray(values, float), {}
    known = values[~np.isnan(values)]
    stddev = release.noise_multiplier * max(share, 1 - share)

    def walk(low, high, chance):
        if low == high:
            found[candidates[low]] = found.get(candidates[low], 0) + chance
            return
        middle = (low + high) // 2
        count = sum((value <= candidates[middle]) - share for value in known)
        down = stats.norm.cdf(count / stddev)
        walk(low, middle, chance * down)
        walk(middle + 1, high, chance * (1 - down))

    walk(0, len(candidates) - 1, 1.0)
    return np.array([found[each] for each in candidates])


_NAN = math.nan


@pytest.mark.parametrize('share', [0.2, 0.5])
@pytest.mark.parametrize('adjacency', ['zero_out', 'replace_one'])
def test_a_search_keeps_its_privacy_profile(share, adjacency, monkeypatch):
    """All data of three clients on four candidates, and all their neighbours."""
    monkeypatch.setattr(before_training, 'STEPS', 2)
    release = QuantileRelease.of_guarantee(1.0, 0.1, {'x': share}, adjacency)
    mu = release.before().mu(Neighbours(adjacency))
    candidates = np.array([0.0, 1.0, 2.0, 3.0])
    worst = 0.0
    for others in itertools.combinations_with_replacement((0.0, 1.0, 2.0, 3.0), 2):
        outcomes = {
            own: _outcomes([*others, own], share, release, candidates)
            for own in (0.0, 1.0, 2.0, 3.0, _NAN)
        }
        assert all(each.sum() == pytest.approx(1) for each in outcomes.values())
        for one, other in itertools.permutations(outcomes, 2):
            if adjacency == 'zero_out' and not (math.isnan(one) or math.isnan(other)):
                continue
            p, q = outcomes[one], outcomes[other]
            for epsilon in (0.0, 0.3, 1.0):
                allowed = stats.norm.cdf(mu / 2 - epsilon / mu) - math.exp(
                    epsilon
                ) * stats.norm.cdf(-mu / 2 - epsilon / mu)
                reached = np.maximum(p - math.exp(epsilon) * q, 0).sum()
                assert reached <= allowed + 1e-12
                worst = max(worst, reached / allowed)
    assert worst > 0.3


def test_the_search_draws_as_the_outcomes_say():
    """The result for given noise follows the path of its counts."""
    values = np.array([0.1, 0.4, 0.4, 0.8, np.nan])
    candidates = CANDIDATES['accuracy']
    noise = np.random.default_rng(3)
    drawn = np.random.default_rng(3).standard_normal(10)
    release = QuantileRelease({'x': 0.3}, 2.0)
    low, high = 0, 1023
    for each in drawn:
        middle = (low + high) // 2
        count = sum(value <= candidates[middle] for value in values[:4]) - 0.3 * 4
        low, high = (low, middle) if count + 2.0 * 0.7 * each >= 0 else (middle + 1, high)
    assert release.find({'x': values}, {'x': candidates}, noise) == {'x': candidates[low]}


def test_the_cost_is_that_of_all_counts():
    one = QuantileRelease.of_guarantee(1.0, 1e-6, {'x': 0.25})
    two = QuantileRelease.of_guarantee(1.0, 1e-6, {'x': 0.25, 'y': 0.9})
    assert two.noise_multiplier == pytest.approx(math.sqrt(2) * one.noise_multiplier)
    before = two.before()
    assert before.noise_multiplier == pytest.approx(two.noise_multiplier / math.sqrt(20))
    assert before.noise_multiplier <= two.noise_multiplier / math.sqrt(20)
    # A client that is replaced moves a count by 1, which adds 0.75 or 0.9 at most.
    assert before.replaced == pytest.approx(1 / 0.75) and before.delta == 0
    replaced = QuantileRelease.of_guarantee(1.0, 1e-6, {'x': 0.25}, 'replace_one')
    assert replaced.noise_multiplier == pytest.approx(one.noise_multiplier / 0.75)
