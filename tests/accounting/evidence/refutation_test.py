"""Logs that break a plan's sampling are refuted, honest ones are not."""

import collections
import itertools
import math

import numpy as np
import pytest

from dpfl import ParticipationLog, accounting
from dpfl.accounting.evidence import refutation
from tests.accounting.evidence import dishonest_logs
from tests.accounting.evidence.dishonest_logs import CASES

_LARGE = 'poisson, 10,000 clients'
_SMALL = [case for case in CASES if case != _LARGE]


def _require_refuted(case):
    cases = CASES[case]
    for name, draw in cases.dishonest.items():
        if name not in cases.weak:
            log = draw(np.random.default_rng(1))
            assert refutation.refutations(cases.plan, log), name


@pytest.mark.parametrize('case', _SMALL)
def test_dishonest_logs_are_refuted(case):
    _require_refuted(case)


@pytest.mark.standard
def test_dishonest_logs_of_many_clients_are_refuted():
    _require_refuted(_LARGE)


@pytest.mark.parametrize('seeds', [3, pytest.param(50, marks=pytest.mark.standard)])
@pytest.mark.parametrize('case', _SMALL)
def test_honest_logs_are_not_refuted(case, seeds):
    for seed in range(seeds):
        log = CASES[case].honest(seed)
        assert refutation.refutations(CASES[case].plan, log) == ()


def _poisson_rounds(clients, rate):
    """Every subset of some clients with its probability."""
    for size in range(len(clients) + 1):
        for cohort in itertools.combinations(clients, size):
            yield cohort, rate**size * (1 - rate) ** (len(clients) - size)


def _capped_rounds(clients, rate, cap):
    law = collections.Counter()
    for cohort, chance in _poisson_rounds(clients, rate):
        kept = list(itertools.combinations(cohort, min(cap, len(cohort))))
        for each in kept:
            law[each] += chance / len(kept)
    return list(law.items())


def _logs(rounds):
    """Every log of independent rounds with its probability."""
    for choices in itertools.product(*rounds):
        yield [cohort for cohort, _ in choices], math.prod(chance for _, chance in choices)


_POISSON = list(_poisson_rounds(range(3), 1 / 3))
_GROUPS = [list(_poisson_rounds(range(first, 5, 2), 0.4)) for first in (0, 1)]
_PAIRS = [(cohort, 1 / 6) for cohort in itertools.combinations(range(4), 2)]


@pytest.mark.parametrize(
    'plan, logs',
    [
        (dishonest_logs.plan('poisson', 3, clients_per_round=1, population=3), [_POISSON] * 3),
        (
            dishonest_logs.plan(
                'cyclic_poisson', 3, 2, clients_per_round=1, population=5, groups=2
            ),
            [*_GROUPS, _GROUPS[0]],
        ),
        (
            dishonest_logs.plan(
                'truncated_poisson', 2, clients_per_round=1, population=3, cohort_cap=2
            ),
            [_capped_rounds(range(3), 1 / 3, 2)] * 2,
        ),
        (
            dishonest_logs.plan('without_replacement', 3, clients_per_round=2, population=4),
            [_PAIRS] * 3,
        ),
    ],
    ids=lambda value: value.sampling if isinstance(value, accounting.PrivacyPlan) else '',
)
def test_p_values_hold_over_all_logs_of_small_plans(plan, logs):
    """P(p-value <= x) <= x for each test; tests of one exact tail attain it."""
    chances = collections.defaultdict(collections.Counter)
    whole = 0.0
    for cohorts, chance in _logs(logs):
        whole += chance
        for test in refutation.log_tests(plan, ParticipationLog(cohorts)):
            chances[test.name][round(test.p_value, 12)] += chance
    assert whole == pytest.approx(1)
    for name, law in chances.items():
        below = 0.0
        for p_value in sorted(law):
            below += law[p_value]
            assert below <= p_value + 1e-8
            assert name != 'participations in all' or below == pytest.approx(p_value)


@pytest.mark.parametrize(
    'case, cohorts, name',
    [
        ('poisson', [range(1001)], 'population'),
        ('cyclic_poisson', [[0], [0]], 'turns'),
        ('cyclic_poisson', [range(101)], 'group size'),
        ('truncated_poisson', [range(111)], 'cohort sizes'),
        ('without_replacement', [range(49)], 'cohort sizes'),
        ('without_replacement', [[]], 'cohort sizes'),
    ],
)
def test_what_the_sampling_cannot_produce_has_p_value_0(case, cohorts, name):
    (test,) = refutation.refutations(CASES[case].plan, ParticipationLog(cohorts))
    assert (test.name, test.p_value) == (name, 0)


@pytest.mark.parametrize(
    'case, log, name',
    [
        ('balls_in_bins', 'bins by id', 'bins of clients 1 apart'),
        ('balls_in_bins', 'id mod 10', 'slots of clients at any distance'),
        ('balls_in_bins', 'bins of both halves', 'slots of clients at any distance'),
        ('balls_in_bins', 'bins of equal size', 'cohorts of too equal sizes'),
        ('balls_in_bins', 'all in one bin', 'largest cohort'),
        ('balls_in_bins', 'other bins in each pass', 'turns'),
        ('balls_in_bins', 'half the population', 'clients of a pass'),
        (
            'random_allocation',
            'the same slots in all epochs',
            'slots of a client in successive epochs',
        ),
        (
            'random_allocation',
            'the next slot in each epoch',
            'slots of a client in successive epochs',
        ),
        (
            'random_allocation',
            'slots of the neighbours',
            'slots of earlier epochs',
        ),
        ('random_allocation', 'slots by id', 'slots of clients by distance'),
        ('random_allocation', 'slots of both halves', 'slots of clients by distance'),
        (
            'random_allocation, 12 epochs',
            'the slots of three epochs before',
            'slots of earlier epochs',
        ),
        (
            'random_allocation, 12 epochs',
            'one client always in the same slot',
            'client most often in the same slot',
        ),
        ('b_min_sep', 'rate 1.5 p', 'participations in total'),
        ('b_min_sep', 'rate 1.5 p', 'participations given the rounds before'),
        ('b_min_sep', 'cold start', 'clients of the first rounds'),
        ('b_min_sep', 'in turn', 'overlap with the cohort 5 rounds before'),
        ('b_min_sep', 'the same cohorts in turn', 'overlap with the cohort 5 rounds before'),
        ('b_min_sep', 'the same cohort always', 'separation'),
        ('b_min_sep', 'fixed size', 'spread of the sizes of cohorts'),
        ('b_min_sep', 'fewer clients', 'new clients given the rounds before'),
    ],
)
def test_each_statistic_sees_what_it_is_for(case, log, name):
    cases = CASES[case]
    tests = refutation.refutations(cases.plan, cases.dishonest[log](np.random.default_rng(1)))
    assert name in [test.name for test in tests]


@pytest.mark.parametrize('case', _SMALL)
def test_logs_of_any_length_and_with_repeats(case):
    """Stopped, longer than the plan, empty, one client in all rounds or listed twice."""
    cases = CASES[case]
    honest = cases.honest(0)
    cohorts = [honest.cohort(t) for t in range(honest.rounds)]
    assert refutation.log_tests(cases.plan, ParticipationLog()) == ()
    for rounds in (cohorts[:1], cohorts[:2], cohorts + cohorts, [[]], [[], []]):
        assert refutation.log_tests(cases.plan, ParticipationLog(rounds))
    for strange in ([[]] * 9, [[], [7], []], [[7]] * 5, [[1, 1], [2, 3, 4, 5], [0], [1]]):
        tests = refutation.log_tests(cases.plan, ParticipationLog(strange))
        assert all(0 <= test.p_value <= 1 for test in tests)
    repeated = ParticipationLog([np.append(cohorts[0], cohorts[0][:1]), *cohorts[1:]])
    assert refutation.log_tests(cases.plan, repeated) == refutation.log_tests(cases.plan, honest)


@pytest.mark.parametrize('case', _SMALL)
def test_the_false_alarm_is_split_over_all_tests(case):
    cases = CASES[case]
    log = cases.honest(1)
    tests = refutation.log_tests(cases.plan, log)
    assert len(tests) <= refutation.MOST_TESTS
    least = min(test.p_value for test in tests)
    assert len(refutation.refutations(cases.plan, log, refutation.MOST_TESTS * least)) >= 1
    assert refutation.refutations(cases.plan, log, refutation.MOST_TESTS * least * 0.99) == ()
