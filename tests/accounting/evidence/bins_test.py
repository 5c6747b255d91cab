"""Tests of logs against balls in bins and random allocation, over all outcomes of small cases."""

import collections
import itertools

import numpy as np
import pytest

from dpfl import Participation, ParticipationLog, accounting, mechanisms
from dpfl.accounting.evidence import refutation
from dpfl.simulation.bin_sampling import BinSampler


def _plan(sampling, rounds, population, groups):
    once = Participation(rounds, 1, -(-rounds // groups))
    return accounting.PrivacyPlan(
        mechanism=mechanisms.Identity(rounds),
        participation=Participation(rounds, groups) if sampling == 'balls_in_bins' else once,
        clip_norm=1.0,
        noise_multiplier=1.0,
        clients_per_round=population // groups,
        sampling=sampling,
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
        ('random_allocation', 5, 3, 3),
        ('random_allocation', 2, 5, 3),
        ('random_allocation', 5, 3, 2),
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
@pytest.mark.parametrize('rounds', [1, 7, 20, 25])
def test_samplers_are_not_refuted(sampling, rounds):
    for seed in range(20):
        sampler = BinSampler(rounds, 300, 30, 10, seed, sampling == 'balls_in_bins')
        log = ParticipationLog(map(sampler.cohort, range(rounds)))
        assert not refutation.refutations(_plan(sampling, rounds, 300, 10), log, 1e-4)


_UNIFORM = np.random.default_rng(5).integers(10, size=(12, 1000))
_ONE_ALWAYS = np.where(np.arange(1000) == 17, 4, _UNIFORM)
_ONE_MISSING = np.stack([np.maximum(_UNIFORM[0], 1), np.maximum(_UNIFORM[0], 1)])
_ONE_MISSING[1, np.argmin(_ONE_MISSING[0])] = -1
_SHIFTED = (_UNIFORM[0] + np.arange(12)[:, None]) % 10
_ROLLED = np.stack([np.roll(_UNIFORM[0], t) for t in range(3)])
_EQUAL = np.random.default_rng(1).permutation(1000) % 10


@pytest.mark.parametrize(
    'sampling, slots, rounds, name',
    [
        ('balls_in_bins', [np.arange(1000) // 100], 30, 'bins of clients 1 apart'),
        ('balls_in_bins', [np.arange(1000) % 10], 30, 'bins of clients 10 apart'),
        ('balls_in_bins', [np.arange(1000) % 10], 8, 'bins of clients 8 apart'),
        ('balls_in_bins', [_EQUAL], 30, 'cohorts of too equal sizes'),
        ('balls_in_bins', [np.full(1000, 3)], 30, 'largest cohort'),
        ('balls_in_bins', _UNIFORM[:1, :500], 7, 'smallest cohort'),
        ('balls_in_bins', _UNIFORM[:1, :900], 30, 'clients of a pass'),
        ('balls_in_bins', _UNIFORM, 30, 'turns'),
        ('balls_in_bins', _ONE_MISSING, 20, 'clients of a pass'),
        ('balls_in_bins', _ONE_MISSING, 15, 'clients of a bin'),
        ('random_allocation', _ONE_MISSING, 20, 'clients of a pass'),
        ('random_allocation', _UNIFORM[:1], 15, 'slots of a client in successive epochs'),
        ('random_allocation', _SHIFTED, 30, 'slots of a client in successive epochs'),
        ('random_allocation', _ROLLED, 30, 'slots of neighbouring clients in successive epochs'),
        ('random_allocation', np.sort(_UNIFORM), 30, 'slots of neighbouring clients'),
        ('random_allocation', np.zeros((3, 1000)), 30, 'largest cohort'),
        ('random_allocation', _ONE_ALWAYS, 120, 'client most often in the same slot'),
        ('random_allocation', _UNIFORM[:, :900], 30, 'clients of a pass'),
    ],
)
def test_other_choices_are_refuted(sampling, slots, rounds, name):
    tests = refutation.refutations(_plan(sampling, rounds, 1000, 10), _log(slots, rounds, 10))
    assert name in [test.name for test in tests]


@pytest.mark.parametrize('sampling', ['balls_in_bins', 'random_allocation'])
def test_logs_of_any_shape_are_judged(sampling):
    # No client at all, more rounds than planned, a client in every round, one listed twice.
    plan = _plan(sampling, 4, 6, 3)
    for cohorts in ([[]], [[]] * 9, [[], [7], []], [[7]] * 5, [[1, 1], [2, 3, 4, 5], [0], [1]]):
        tests = refutation.log_tests(plan, ParticipationLog(cohorts))
        assert all(0 <= test.p_value <= 1 for test in tests)
    for in_two in ([[0, 1], [1, 2, 3, 4, 5], []], [[0, 1, 2], [0], [3]]):
        (test,) = refutation.log_tests(plan, ParticipationLog(in_two))
        assert test.p_value == 0
    assert not refutation.refutations(plan, ParticipationLog([[0, 0, 1], [2, 3], [4, 5]]))
