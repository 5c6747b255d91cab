"""Logs that break a plan's sampling are refuted, honest ones as rarely as their p-values say."""

import collections
import itertools
import math

import numpy as np
import pytest

from dpfl import Participation, ParticipationLog
from dpfl.accounting.evidence import bins, refutation
from tests import sampling_oracles
from tests.accounting.evidence import dishonest_logs
from tests.accounting.evidence.dishonest_logs import CASES
from tests.sizes import standard

_LARGE = 'poisson, 10,000 clients'
_SMALL = [case for case in CASES if case != _LARGE]
_KINDS = [case for case in _SMALL if ',' not in case]  # A case of each sampling.
# Statistics by the dishonest logs that each is there for.
_SEEN_BY = {
    'poisson': {'a quarter back after 3 rounds': {'overlaps with earlier cohorts'}},
    'without_replacement': {'pairs in sync': {'overlaps with earlier cohorts'}},
    'cyclic_poisson, 30 turns': {'2 parts by a schedule': {'overlaps with earlier cohorts'}},
    'balls_in_bins': {
        'bins by id': {'bins of clients 1 apart'},
        'id mod 10': {'slots of clients at any distance'},
        'bins of both halves': {'slots of clients at any distance'},
        'bins of equal size': {'cohorts of too equal sizes'},
        'all in one bin': {'largest cohort'},
        'other bins in each pass': {'turns'},
        'half the population': {'clients of a pass'},
    },
    'random_allocation': {
        'the same slots in all epochs': {'slots of a client in successive epochs'},
        'the next slot in each epoch': {'slots of a client in successive epochs'},
        'slots of the neighbours': {'slots of earlier epochs'},
        'slots by id': {'slots of clients by distance'},
        'slots of both halves': {'slots of clients by distance'},
    },
    'random_allocation, 12 epochs': {
        'the slots of three epochs before': {'slots of earlier epochs'},
        'one client always in the same slot': {'client most often in the same slot'},
    },
    'b_min_sep': {
        'rate 1.5 p': {'participations in total', 'participations given the rounds before'},
        'cold start': {'clients of the first rounds'},
        'in turn': {'overlap with the cohort 5 rounds before'},
        'the same cohorts in turn': {'overlap with the cohort 5 rounds before'},
        'the same cohort always': {'separation'},
        'fixed size': {'spread of the sizes of cohorts'},
        'fewer clients': {'new clients given the rounds before'},
    },
}


def _refuting(plan, log, *level):
    return {test.name for test in refutation.refutations(plan, log, *level)}


@pytest.mark.parametrize('case', [*_SMALL, standard(_LARGE)])
def test_dishonest_logs_are_refuted_by_the_statistic_for_them(case):
    cases, seen_by = CASES[case], _SEEN_BY.get(case, {})
    assert seen_by.keys() <= cases.dishonest.keys()
    for name, draw in cases.dishonest.items():
        found = _refuting(cases.plan, draw(np.random.default_rng(1)))
        assert found or name in cases.weak, name
        assert found >= seen_by.get(name, set()), name


@pytest.mark.parametrize('seeds', [2, standard(50)])
@pytest.mark.parametrize('case', _SMALL)
def test_honest_logs_are_not_refuted(case, seeds):
    for seed in range(seeds):
        assert not _refuting(CASES[case].plan, CASES[case].honest(seed))


def _grouped(kind, rounds, population, clients, groups):
    """A small plan whose clients have turns, bins, slots or waits."""
    epochs = -(-rounds // groups)
    once = dict(participation=Participation(rounds, 1, epochs))
    return dishonest_logs.plan(
        kind,
        rounds,
        groups,
        clients_per_round=clients,
        population=population,
        groups=groups,
        **(once if kind == 'random_allocation' else {}),
    )


# --- The law of p-values over all outcomes: the rounds of each client, and their probability.

_IDS = [3, 4, 6, 2**62, 2**62 + 1, 2**62 + 7, 2**63 - 2, 2**63 - 1]


def _log(patterns, rounds):
    """The log of clients that take part in these rounds."""
    return ParticipationLog(
        [_IDS[client] for client, pattern in enumerate(patterns) if t in pattern]
        for t in range(rounds)
    )


def _subsets(clients, rate):
    """Every subset of some clients with its probability."""
    for size in range(len(clients) + 1):
        for cohort in itertools.combinations(clients, size):
            yield cohort, rate**size * (1 - rate) ** (len(clients) - size)


def _capped(clients, rate, cap):
    for cohort, chance in _subsets(clients, rate):
        kept = list(itertools.combinations(cohort, min(cap, len(cohort))))
        yield from ((each, chance / len(kept)) for each in kept)


def _of_rounds(clients, *rounds):
    """Outcomes of independent rounds; those that differ in the order of clients count as one."""
    found = collections.Counter()
    for choices in itertools.product(*map(list, rounds)):
        patterns = [
            tuple(t for t, (cohort, _) in enumerate(choices) if client in cohort)
            for client in range(clients)
        ]
        found[tuple(sorted(patterns))] += math.prod(chance for _, chance in choices)
    return found.items()


def _of_slots(rounds, population, groups, passes):
    """Outcomes of equally likely slots, of all clients in all passes."""
    count = groups ** (passes * population)
    for slots in itertools.product(
        itertools.product(range(groups), repeat=passes), repeat=population
    ):
        patterns = [
            tuple(t for t in range(rounds) if own[t // groups % passes] == t % groups)
            for own in slots
        ]
        yield patterns, 1 / count


def _of_waits(rounds, population, clients, groups):
    """Outcomes of b-min-sep sampling, without the order of clients."""
    p = clients / (population - (groups - 1) * clients)
    law = {
        tuple(np.flatnonzero(updates)): share
        for share, updates in sampling_oracles.separated_patterns(rounds, groups, p)
    }
    for patterns in itertools.combinations_with_replacement(law, population):
        repeats = math.prod(map(math.factorial, collections.Counter(patterns).values()))
        ways = math.factorial(population) / repeats
        yield patterns, ways * math.prod(law[pattern] for pattern in patterns)


def _independent(kind, rounds, population, clients, law, **settings):
    plan = dishonest_logs.plan(
        kind, rounds, clients_per_round=clients, population=population, **settings
    )
    return plan, _of_rounds(population, *[list(law)] * rounds)


def _turns():
    even, odd = (list(_subsets(range(first, 5, 2), 0.4)) for first in (0, 1))
    return _grouped('cyclic_poisson', 3, 5, 1, 2), _of_rounds(5, even, odd, even)


def _slots(kind, rounds, population, groups):
    passes = 1 if kind == 'balls_in_bins' else -(-rounds // groups)
    plan = _grouped(kind, rounds, population, population // groups, groups)
    return plan, _of_slots(rounds, population, groups, passes)


def _waits(*sizes):
    return _grouped('b_min_sep', *sizes), _of_waits(*sizes)


_SETS_OF_TWO = [(cohort, 1 / 6) for cohort in itertools.combinations(range(4), 2)]


@pytest.mark.parametrize(
    'make, arguments',
    [
        (_independent, ('poisson', 3, 3, 1, _subsets(range(3), 1 / 3))),
        (_independent, ('without_replacement', 3, 4, 2, _SETS_OF_TWO)),
        (
            lambda law: _independent('truncated_poisson', 2, 3, 1, law, cohort_cap=2),
            (_capped(range(3), 1 / 3, 2),),
        ),
        (_turns, ()),
        (_slots, ('balls_in_bins', 7, 4, 3)),
        (_slots, ('balls_in_bins', 2, 5, 3)),
        (_slots, ('balls_in_bins', 1, 4, 3)),
        (_slots, ('balls_in_bins', 2, 8, 2)),
        (_slots, ('random_allocation', 4, 4, 2)),
        (_slots, ('random_allocation', 2, 5, 3)),
        standard(_slots, ('random_allocation', 5, 3, 3)),
        standard(_slots, ('random_allocation', 5, 3, 2)),
        (_waits, (4, 3, 1, 2)),
        (_waits, (2, 4, 1, 3)),
        (_waits, (3, 3, 2, 1)),
        (_waits, (1, 4, 1, 2)),
        standard(_waits, (5, 4, 1, 3)),
        standard(_waits, (4, 3, 1, 3)),
    ],
)
def test_p_values_are_valid_over_all_outcomes(make, arguments):
    """P(p-value <= x) <= x for each test; tests of one exact tail attain it."""
    plan, outcomes = make(*arguments)
    chances = collections.defaultdict(collections.Counter)
    whole = 0.0
    for patterns, chance in outcomes:
        whole += chance
        for test in refutation.log_tests(plan, _log(patterns, plan.participation.rounds)):
            chances[test.name][round(test.p_value, 12)] += chance
    assert whole == pytest.approx(1) and chances
    for name, law in chances.items():
        below = 0.0
        for p_value in sorted(law):
            below += law[p_value]
            assert below <= p_value * (1 + 1e-6) + 1e-8, name
            assert name != 'participations in all' or below == pytest.approx(p_value)


def test_a_client_with_many_rounds_of_b_min_sep_has_its_exact_probability():
    plan, law = (
        _grouped('b_min_sep', 7, 1000, 2, 3),
        sampling_oracles.separated_patterns(7, 3, 2 / 996),
    )
    for times in (2, 3):
        exact = sum(share for share, updates in law if updates.sum() >= times)
        log = _log([tuple(range(0, 3 * times, 3))], 7)
        tests = {test.name: test.p_value for test in refutation.log_tests(plan, log)}
        assert tests['client with the most rounds'] == pytest.approx(1000 * exact, rel=1e-8)


def test_equal_sizes_have_the_exact_multinomial_probability():
    # 6! / 2!^3 of 3^6 outcomes have two clients in each bin, and their squares in two passes.
    log = _log([(slot, slot + 3) for slot in [0, 1, 2] * 2], 6)
    for kind, passes in (('balls_in_bins', 1), ('random_allocation', 2)):
        tests = refutation.log_tests(_grouped(kind, 6, 6, 2, 3), log)
        exact = {test.name: test.p_value for test in tests}['cohorts of too equal sizes']
        assert exact == pytest.approx((90 / 3**6) ** passes, rel=1e-6)


# --- Logs that are impossible, cut off or strange.


@pytest.mark.parametrize(
    'plan, cohorts, names',
    [
        (CASES['poisson'].plan, [range(1001)], {'population'}),
        (CASES['cyclic_poisson'].plan, [[0], [0]], {'turns'}),
        (CASES['cyclic_poisson'].plan, [range(101)], {'group size'}),
        (CASES['truncated_poisson'].plan, [range(111)], {'cohort sizes'}),
        (CASES['without_replacement'].plan, [range(49)], {'cohort sizes'}),
        (CASES['without_replacement'].plan, [[]], {'cohort sizes'}),
        *(
            (_grouped(kind, 4, 6, 2, 3), in_two, {name})
            for kind, name in (
                ('balls_in_bins', 'turns'),
                ('random_allocation', 'rounds of an epoch'),
            )
            for in_two in ([[0, 1], [1, 2, 3, 4, 5], []], [[0, 1, 2], [0], [3]])
        ),
        # With population = groups * clients_per_round everybody returns after `groups` rounds.
        (_grouped('b_min_sep', 5, 6, 2, 3), [[0, 1], [2, 3], [4, 5], [0, 1], [2]], None),
    ],
)
def test_what_the_sampling_cannot_produce_has_p_value_0(plan, cohorts, names):
    tests = refutation.log_tests(plan, ParticipationLog(cohorts))
    impossible = {test.name for test in tests if test.p_value == 0}
    assert impossible and (names is None or impossible == names and len(tests) == 1)


@pytest.mark.parametrize(
    'plan, cohorts',
    [
        (_grouped('b_min_sep', 5, 6, 2, 3), [[0, 1], [2, 3], [4, 5], [0, 1], [2, 3]]),
        (_grouped('balls_in_bins', 4, 6, 2, 3), [[0, 0, 1], [2, 3], [4, 5]]),
        (_grouped('random_allocation', 4, 6, 2, 3), [[0, 0, 1], [2, 3], [4, 5]]),
        # Any of the groups may be the larger one.
        (_grouped('cyclic_poisson', 6, 7, 2, 3), [[0, 3], [1, 4, 6], [2, 5]] * 2),
    ],
)
def test_what_the_sampling_may_produce_is_not_refuted(plan, cohorts):
    assert not _refuting(plan, ParticipationLog(cohorts))


_SLOTS = np.random.default_rng(5).integers(10, size=(1, 1000))
_ONE_MISSING = np.vstack([_SLOTS, np.where(np.arange(1000) == np.argmin(_SLOTS), -1, _SLOTS)])


@pytest.mark.parametrize(
    'kind, slots, rounds, name',
    [
        ('balls_in_bins', np.arange(1000)[None] % 10, 8, 'slots of clients at any distance'),
        ('balls_in_bins', _SLOTS % 9, 9, 'clients of the last pass'),
        ('random_allocation', _SLOTS % 9, 9, 'clients of the last pass'),
        (
            'random_allocation',
            np.vstack([_SLOTS, _SLOTS[:, ::-1] % 9]),
            19,
            'clients of the last pass',
        ),
        ('balls_in_bins', _SLOTS[:, :500], 7, 'smallest cohort'),
        ('balls_in_bins', _ONE_MISSING, 15, 'clients of a bin'),
        ('balls_in_bins', _ONE_MISSING, 20, 'clients of a pass'),
        ('random_allocation', _ONE_MISSING, 20, 'clients of a pass'),
        ('random_allocation', _SLOTS, 15, 'slots of a client in successive epochs'),
    ],
)
def test_a_pass_that_is_cut_off_counts(kind, slots, rounds, name):
    log = dishonest_logs.of_slots(rounds, 10, lambda _: slots)(np.random.default_rng(0))
    assert name in _refuting(_grouped(kind, rounds, 1000, 100, 10), log)


@pytest.mark.parametrize('case', _KINDS)
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
    tests = refutation.log_tests(cases.plan, honest)
    assert refutation.log_tests(cases.plan, repeated) == tests
    # The false alarm is split over all tests.
    assert len(tests) <= refutation.MOST_TESTS
    level = refutation.MOST_TESTS * min(test.p_value for test in tests)
    assert _refuting(cases.plan, honest, level)
    assert not _refuting(cases.plan, honest, level * 0.99)


def test_one_client_as_often_as_it_may_is_seen_after_many_rounds():
    rounds = 150
    others = dishonest_logs.logged(dishonest_logs.sampler('b_min_sep', rounds, 999, 100, groups=5))
    log = dishonest_logs.with_client_always(others, range(0, rounds, 5), client=999)
    plan = _grouped('b_min_sep', rounds, 1000, 100, 5)
    assert _refuting(plan, log) == {'client with the most rounds'}


# --- Pairs of slots.


@pytest.mark.parametrize('clients, options', [(2, 1), (9, 3), (40, 4)])
def test_pairs_at_all_distances_by_their_definition(monkeypatch, clients, options):
    slots = np.random.default_rng(clients).integers(options, size=clients, dtype=np.int32)
    same = bins._same_at_all(slots, options)
    for distance in range(1, clients):
        assert same[distance] == (slots[distance:] == slots[:-distance]).sum()
    # A large population is tested at few distances, with those of whole passes among them.
    repeating = np.arange(clients, dtype=np.int32) % options
    monkeypatch.setattr(bins, '_BUDGET', clients)
    at_few = bins.any_distance(repeating, options, options)
    assert clients < 40 or at_few.p_value < 1e-9


def test_bets_on_many_epochs_compare_few(monkeypatch):
    monkeypatch.setattr(bins, '_COMPARISONS', 1)
    bets = bins.EarlierEpochs(100, 30, 10)
    drawn = np.random.default_rng(1).integers(10, size=(4, 100), dtype=np.int32)
    for epoch in range(30):
        bets.add(drawn[epoch % 4], 10)
    assert bets.test().p_value < 1e-9
    assert len(bets._earlier) == 4
