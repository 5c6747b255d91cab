"""Tests of logs against balls in bins and random allocation, over all outcomes of small cases."""

import collections
import itertools

import numpy as np
import pytest

from dpfl import Participation, ParticipationLog
from dpfl.accounting.evidence import refutation, slot_pairs
from tests.accounting.evidence import dishonest_logs


def _plan(sampling, rounds, population, groups):
    epochs = -(-rounds // groups)
    once = Participation(rounds, 1, epochs)
    return dishonest_logs.plan(
        sampling,
        rounds,
        participation=once if sampling == 'random_allocation' else Participation(rounds, groups),
        clients_per_round=population // groups,
        population=population,
        groups=groups,
    )


def _log(slots, rounds, groups, ids=None):
    """The log of the slots of all clients in all passes, [passes, clients]."""
    slots = np.asarray(slots)
    ids = np.arange(slots.shape[1]) if ids is None else np.asarray(ids)
    return ParticipationLog(
        ids[slots[t // groups % len(slots)] == t % groups] for t in range(rounds)
    )


@pytest.mark.parametrize(
    'sampling, rounds, population, groups',
    [
        ('balls_in_bins', 7, 4, 3),
        ('balls_in_bins', 2, 5, 3),
        ('balls_in_bins', 1, 4, 3),
        ('balls_in_bins', 2, 8, 2),
        ('random_allocation', 4, 4, 2),
        ('random_allocation', 2, 5, 3),
        pytest.param('random_allocation', 5, 3, 3, marks=pytest.mark.standard),
        pytest.param('random_allocation', 5, 3, 2, marks=pytest.mark.standard),
    ],
)
def test_p_values_are_valid_over_all_outcomes(sampling, rounds, population, groups):
    plan = _plan(sampling, rounds, population, groups)
    passes = 1 if sampling == 'balls_in_bins' else -(-rounds // groups)
    ids = [3, 4, 6, 2**62, 2**62 + 1, 2**62 + 7, 2**63 - 2, 2**63 - 1][:population]
    p_values = collections.defaultdict(list)
    for choices in itertools.product(range(groups), repeat=passes * population):
        slots = np.reshape(choices, (passes, population))
        for test in refutation.log_tests(plan, _log(slots, rounds, groups, ids)):
            p_values[test.name].append(test.p_value)
    for name, values in p_values.items():
        values = np.sort(values)
        assert len(values) == groups ** (passes * population), name
        levels, firsts = np.unique(values, return_index=True)
        at_most = np.append(firsts[1:], values.size) / values.size
        assert (at_most <= levels * (1 + 1e-6)).all(), name


def test_equal_sizes_have_the_exact_multinomial_probability():
    # 6! / 2!^3 of 3^6 outcomes have two clients in each bin, and their squares in two passes.
    for sampling, passes in (('balls_in_bins', 1), ('random_allocation', 2)):
        plan = _plan(sampling, 6, 6, 3)
        log = _log([np.arange(6) % 3] * passes, 6, 3)
        tests = {test.name: test.p_value for test in refutation.log_tests(plan, log)}
        exact = (90 / 3**6) ** passes
        assert tests['cohorts of too equal sizes'] == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize('sampling', ['balls_in_bins', 'random_allocation'])
@pytest.mark.parametrize('rounds', [1, 7, 25])
def test_samplers_are_not_refuted(sampling, rounds):
    for seed in range(8):
        sampler = dishonest_logs.sampler(sampling, rounds, 300, 30, seed, groups=10)
        log = ParticipationLog(map(sampler.cohort, range(rounds)))
        assert not refutation.refutations(_plan(sampling, rounds, 300, 10), log, 1e-4)


_SLOTS = np.random.default_rng(5).integers(10, size=(1, 1000))
_ONE_MISSING = np.where(np.arange(1000) == np.argmin(_SLOTS), -1, _SLOTS)


@pytest.mark.parametrize(
    'sampling, slots, rounds, name',
    [
        ('balls_in_bins', [np.arange(1000) % 10], 8, 'slots of clients at any distance'),
        ('balls_in_bins', _SLOTS % 9, 9, 'clients of the last pass'),
        ('random_allocation', _SLOTS % 9, 9, 'clients of the last pass'),
        (
            'random_allocation',
            np.vstack([_SLOTS, _SLOTS[:, ::-1] % 9]),
            19,
            'clients of the last pass',
        ),
        ('balls_in_bins', _SLOTS[:, :500], 7, 'smallest cohort'),
        ('balls_in_bins', np.vstack([_SLOTS, _ONE_MISSING]), 15, 'clients of a bin'),
        ('balls_in_bins', np.vstack([_SLOTS, _ONE_MISSING]), 20, 'clients of a pass'),
        ('random_allocation', np.vstack([_SLOTS, _ONE_MISSING]), 20, 'clients of a pass'),
        ('random_allocation', _SLOTS, 15, 'slots of a client in successive epochs'),
    ],
)
def test_a_pass_that_is_cut_off_counts(sampling, slots, rounds, name):
    tests = refutation.refutations(_plan(sampling, rounds, 1000, 10), _log(slots, rounds, 10))
    assert name in [test.name for test in tests]


@pytest.mark.parametrize('sampling', ['balls_in_bins', 'random_allocation'])
def test_a_client_in_two_rounds_of_a_pass_is_impossible(sampling):
    plan = _plan(sampling, 4, 6, 3)
    for in_two in ([[0, 1], [1, 2, 3, 4, 5], []], [[0, 1, 2], [0], [3]]):
        (test,) = refutation.log_tests(plan, ParticipationLog(in_two))
        assert test.p_value == 0
    assert not refutation.refutations(plan, ParticipationLog([[0, 0, 1], [2, 3], [4, 5]]))


@pytest.mark.parametrize('clients, options', [(2, 1), (9, 3), (40, 4)])
def test_pairs_at_all_distances_by_their_definition(monkeypatch, clients, options):
    slots = np.random.default_rng(clients).integers(options, size=clients, dtype=np.int32)
    same = slot_pairs._same_at_all(slots, options)
    for distance in range(1, clients):
        assert same[distance] == (slots[distance:] == slots[:-distance]).sum()
    # A large population is tested at few distances, with those of whole passes among them.
    repeating = np.arange(clients, dtype=np.int32) % options
    monkeypatch.setattr(slot_pairs, '_BUDGET', clients)
    at_few = slot_pairs.any_distance(repeating, options, options)
    assert clients < 40 or at_few.p_value < 1e-9


def test_bets_on_many_epochs_compare_few(monkeypatch):
    monkeypatch.setattr(slot_pairs, '_COMPARISONS', 1)
    bets = slot_pairs.EarlierEpochs(100, 30, 10)
    drawn = np.random.default_rng(1).integers(10, size=(4, 100), dtype=np.int32)
    for epoch in range(30):
        bets.add(drawn[epoch % 4], 10)
    assert bets.test().p_value < 1e-9
    assert len(bets._earlier) == 4
