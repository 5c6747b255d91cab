"""Tests of logs against b-min-sep sampling, over all outcomes of small cases."""

import collections
import itertools
import math

import numpy as np
import pytest

from dpfl import Participation, ParticipationLog, accounting, mechanisms
from dpfl.accounting.evidence import refutation
from dpfl.simulation.min_sep_sampling import MinSepSampler


def _plan(rounds, population, clients, groups):
    return accounting.PrivacyPlan(
        mechanism=mechanisms.Identity(rounds),
        participation=Participation(rounds, groups),
        clip_norm=1.0,
        noise_multiplier=1.0,
        clients_per_round=clients,
        sampling='b_min_sep',
        population=population,
        groups=groups,
    )


def _patterns(rounds, population, clients, groups):
    """The probability of each set of rounds of one client, from the waits and draws that it has."""
    p = clients / (population - (groups - 1) * clients)
    waits = [p / (1 + (groups - 1) * p)] * groups
    waits[0] = 1 - sum(waits[1:])
    found = collections.Counter()
    for wait, draws in itertools.product(range(groups), itertools.product((0, 1), repeat=rounds)):
        chosen, free = [], wait
        for t, draw in enumerate(draws):
            if draw and t >= free:
                chosen.append(t)
                free = t + groups
        drawn = sum(draws)
        found[tuple(chosen)] += waits[wait] * p**drawn * (1 - p) ** (rounds - drawn)
    return {pattern: share for pattern, share in found.items() if share}


def _outcomes(rounds, population, clients, groups):
    """Yields the patterns of all clients and their probability; the order of clients is left."""
    law = _patterns(rounds, population, clients, groups)
    for patterns in itertools.combinations_with_replacement(law, population):
        repeats = math.prod(map(math.factorial, collections.Counter(patterns).values()))
        ways = math.factorial(population) / repeats
        yield patterns, ways * math.prod(law[pattern] for pattern in patterns)


def _log(patterns, rounds):
    return ParticipationLog(
        [2**62 + 3 * client for client, pattern in enumerate(patterns) if t in pattern]
        for t in range(rounds)
    )


@pytest.mark.parametrize(
    'sizes', [(4, 3, 1, 2), (5, 4, 1, 3), (2, 4, 1, 3), (3, 4, 2, 1), (4, 3, 1, 3), (1, 4, 1, 2)]
)
def test_p_values_are_valid_over_all_outcomes(sizes):
    plan = _plan(*sizes)
    shares, p_values = [], collections.defaultdict(list)
    for patterns, share in _outcomes(*sizes):
        shares.append(share)
        for test in refutation.log_tests(plan, _log(patterns, sizes[0])):
            p_values[test.name].append(test.p_value)
    assert sum(shares) == pytest.approx(1)
    for name, values in p_values.items():
        values = np.array(values)
        for level in np.unique(values):
            at_most = np.dot(shares, values <= level * (1 + 1e-9))
            assert at_most <= level * (1 + 1e-6), (name, level)


def test_a_client_with_many_rounds_has_its_exact_probability():
    sizes = 7, 1000, 2, 3
    law = _patterns(*sizes)
    for times in (2, 3):
        exact = sum(share for pattern, share in law.items() if len(pattern) >= times)
        log = _log([tuple(range(0, 3 * times, 3))], 7)
        tests = {test.name: test.p_value for test in refutation.log_tests(_plan(*sizes), log)}
        assert tests['client with the most rounds'] == pytest.approx(1000 * exact, rel=1e-8)


@pytest.mark.parametrize('rounds', [1, 4, 30])
@pytest.mark.parametrize('groups', [1, 5, 10])
def test_samplers_are_not_refuted(groups, rounds):
    for seed in range(20):
        sampler = MinSepSampler(rounds, 300, 30, groups, seed)
        log = ParticipationLog(map(sampler.cohort, range(rounds)))
        assert not refutation.refutations(_plan(rounds, 300, 30, groups), log, 1e-4)


_TURNS = np.arange(100)


def _faster(rounds=30):
    """Cohorts at 1.5 times the rate."""
    return [MinSepSampler(rounds, 1000, 150, 5, seed=3).cohort(t) for t in range(rounds)]


def _cold():
    """Cohorts of which all clients are free in round 0."""
    generator, free = np.random.default_rng(1), np.zeros(1000)
    for t in range(30):
        cohort = np.flatnonzero((free <= t) & (generator.random(1000) < 1 / 6))
        free[cohort] = t + 5
        yield cohort


def _fixed_size(population=1000):
    """Cohorts of 100 random clients who are free."""
    generator, free = np.random.default_rng(2), np.zeros(population)
    for t in range(30):
        cohort = generator.choice(np.flatnonzero(free <= t), 100, replace=False)
        free[cohort] = t + 5
        yield cohort


@pytest.mark.parametrize(
    'cohorts, name',
    [
        (_faster(), 'participations in total'),
        (_faster(), 'participations given the rounds before'),
        (_cold(), 'first cohort'),
        ([(_TURNS + 100 * t) % 1000 for t in range(30)], 'overlap with the cohort 5 rounds before'),
        ([(_TURNS + 100 * t) % 500 for t in range(30)], 'overlap with the cohort 5 rounds before'),
        ([_TURNS[:50]] * 30, 'separation'),
        (_fixed_size(), 'spread of the sizes of cohorts'),
        (_fixed_size(600), 'new clients given the rounds before'),
    ],
)
def test_other_samplings_are_refuted(cohorts, name):
    log = ParticipationLog(np.asarray(cohort, int) for cohort in cohorts)
    tests = refutation.refutations(_plan(30, 1000, 100, 5), log)
    assert name in [test.name for test in tests]


@pytest.mark.parametrize('groups', [1, 3])
def test_logs_of_any_shape_are_judged(groups):
    for cohorts in ([[]], [[]] * 9, [[], [7], []], [[7]] * 5, [[1, 1], [2, 3, 4, 5], [0], [1]]):
        tests = refutation.log_tests(_plan(4, 6, 2, groups), ParticipationLog(cohorts))
        assert all(0 <= test.p_value <= 1 for test in tests)
