"""Tests of logs against b-min-sep sampling, over all outcomes of small cases."""

import collections
import itertools
import math

import numpy as np
import pytest

from dpfl import ParticipationLog
from dpfl.accounting.evidence import refutation
from tests.accounting.evidence import dishonest_logs


def _plan(rounds, population, clients, groups):
    return dishonest_logs.plan(
        'b_min_sep',
        rounds,
        groups,
        clients_per_round=clients,
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
    'sizes',
    [
        (4, 3, 1, 2),
        (2, 4, 1, 3),
        (3, 4, 2, 1),
        (1, 4, 1, 2),
        pytest.param((5, 4, 1, 3), marks=pytest.mark.standard),
        pytest.param((4, 3, 1, 3), marks=pytest.mark.standard),
    ],
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


@pytest.mark.parametrize('groups, rounds', [(1, 30), (5, 1), (5, 4), (10, 30)])
def test_samplers_are_not_refuted(groups, rounds):
    for seed in range(8):
        sampler = dishonest_logs.sampler('b_min_sep', rounds, 300, 30, seed, groups=groups)
        log = ParticipationLog(map(sampler.cohort, range(rounds)))
        assert not refutation.refutations(_plan(rounds, 300, 30, groups), log, 1e-4)


def test_one_client_as_often_as_it_may_is_seen_after_many_rounds():
    rounds = 150
    sampler = dishonest_logs.sampler('b_min_sep', rounds, 999, 100, groups=5)
    others = dishonest_logs.logged(sampler)
    log = dishonest_logs.with_client_always(others, range(0, rounds, 5), client=999)
    tests = refutation.refutations(_plan(rounds, 1000, 100, 5), log)
    assert [test.name for test in tests] == ['client with the most rounds']


def test_whoever_is_sure_to_return_does():
    # With population = groups * clients_per_round everybody returns after `groups` rounds.
    plan = _plan(5, 6, 2, 3)
    kept = ParticipationLog([[0, 1], [2, 3], [4, 5], [0, 1], [2, 3]])
    assert not refutation.refutations(plan, kept)
    missed = ParticipationLog([[0, 1], [2, 3], [4, 5], [0, 1], [2]])
    assert 0 in [test.p_value for test in refutation.log_tests(plan, missed)]
