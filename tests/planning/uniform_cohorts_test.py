"""Bounds on what uniform cohorts do, against exact enumeration."""

import fractions
import itertools
import math

import pytest

from dpfl.planning import UniformCohorts


def _of_one(population, cohort, rounds, is_bad):
    """Exact probability that one client's pattern is bad."""
    share = fractions.Fraction(cohort, population)
    total = fractions.Fraction(0)
    for pattern in itertools.product((0, 1), repeat=rounds):
        if is_bad([t for t in range(rounds) if pattern[t]]):
            total += share ** sum(pattern) * (1 - share) ** (rounds - sum(pattern))
    return total


def _is_close(times, b):
    return any(j - i < b for i, j in itertools.pairwise(times))


@pytest.mark.parametrize('population, cohort', [(1000, 3), (50, 20)])
def test_bounds_are_those_of_one_client_times_all(population, cohort):
    cohorts = UniformCohorts(population=population, clients_per_round=cohort, rounds=9)
    for k in range(0, 10, 2):
        exact = _of_one(population, cohort, 9, lambda times, k=k: len(times) > k)
        assert cohorts.exceeds(k) == pytest.approx(min(1.0, float(population * exact)), rel=1e-8)
        assert cohorts.exceeds(k) >= min(1, population * exact)
    for b in range(1, 12, 3):
        exact = _of_one(population, cohort, 9, lambda times, b=b: _is_close(times, b))
        pairs = sum(min(b, 9) > j - i for i, j in itertools.combinations(range(9), 2))
        bound = cohorts.breaks(b)
        assert min(1, population * exact) <= bound
        assert bound == pytest.approx(min(1.0, population * pairs * (cohort / population) ** 2))


def test_bounds_hold_for_cohorts_of_fixed_size():
    # All sequences of four cohorts of two of the five clients.
    sets = list(itertools.combinations(range(5), 2))
    cohorts = UniformCohorts(population=5, clients_per_round=2, rounds=4)
    exceeded, close = [0] * 5, [0] * 6
    for sequence in itertools.product(sets, repeat=4):
        times = [[t for t in range(4) if c in sequence[t]] for c in range(5)]
        for k in range(5):
            exceeded[k] += any(len(each) > k for each in times)
        for b in range(1, 6):
            close[b] += any(_is_close(each, b) for each in times)
    for k in range(5):
        assert exceeded[k] / len(sets) ** 4 <= cohorts.exceeds(k)
    for b in range(1, 6):
        assert close[b] / len(sets) ** 4 <= cohorts.breaks(b)


def test_tails_far_below_one_are_not_lost():
    cohorts = UniformCohorts(population=10**6, clients_per_round=100, rounds=2000)
    share = fractions.Fraction(100, 10**6)
    for k in (5, 10, 20):
        tail = sum(
            math.comb(2000, i) * share**i * (1 - share) ** (2000 - i) for i in range(k + 1, k + 40)
        )
        assert float(tail * 10**6) <= cohorts.exceeds(k) <= float(tail * 10**6) * (1 + 1e-6)


@pytest.mark.parametrize('failure', [0.5, 1e-3, 1e-9])
def test_limits_for_a_probability_are_the_tightest(failure):
    cohorts = UniformCohorts(population=4000, clients_per_round=7, rounds=300)
    k, b = cohorts.most_participations(failure), cohorts.likely_separation(failure)
    assert cohorts.exceeds(k) <= failure < cohorts.exceeds(k - 1)
    assert cohorts.breaks(b) <= failure and (b == 300 or cohorts.breaks(b + 1) > failure)


def test_sentences_state_bounds_and_assumptions():
    cohorts = UniformCohorts(population=4_210_000, clients_per_round=6500, rounds=1900)
    text = ' '.join(cohorts.sentences(313, 7, 1e-6))
    assert f'in more than {cohorts.most_participations(1e-6)} rounds' in text
    assert 'If every cohort were' in text and 'the guarantee does not rely on this' in text
    small = UniformCohorts(population=10**6, clients_per_round=2, rounds=4).sentences(2, 3, 0.01)
    # 3 pairs of neighbouring rounds, a million clients, (2e-6)^2: 1.2e-5, never rounded down.
    assert 'less than 2 apart with a probability of at most 1.3e-05.' in small[0]
    # All 6 pairs: 2.4e-5 is below 0.01.
    assert 'no two rounds of a client would be less than 4 apart' in small[1]
    few = UniformCohorts(population=300, clients_per_round=10, rounds=60).sentences(30, 2, 1e-6)
    assert few[0].endswith('in two rounds less than 30 apart with a probability that may be 1.')
    assert 'in more than 14 rounds, and' in few[1] and 'come back in the next round' in few[1]
