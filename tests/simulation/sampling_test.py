"""Samplers of cohorts: what holds of each, their laws, and plans that they do not fit."""

import collections
import dataclasses
import itertools
import math
import tracemalloc

import numpy as np
import pytest

from dpfl import Participation, ParticipationLog, accounting, mechanisms
from dpfl.accounting.evidence import separated
from dpfl.accounting.sampling import kinds
from dpfl.simulation import population, sampling
from tests import sampling_oracles
from tests.accounting import plans

_ROUNDS, _POPULATION, _CLIENTS = 20, 60, 5
_APART = Participation(_ROUNDS, 4, 2)


def _random(kind, rounds=_ROUNDS, population=_POPULATION, clients=_CLIENTS, **fields):
    settings = {name: fields.pop(name) for name in ('groups', 'cohort_cap') if name in fields}
    return sampling.RandomSampler(
        kind(population=population, **settings), rounds, clients, **fields
    )


_apart = sampling.MinSeparationSampler
_SAMPLERS = {
    'min_separation': _apart(_APART, _POPULATION, _CLIENTS),
    'without_replacement': _random(accounting.WithoutReplacement),
    'uniform': _random(accounting.WithoutReplacement, is_relied_on=False),
    'poisson': _random(accounting.Poisson),
    'truncated_poisson': _random(accounting.TruncatedPoisson, cohort_cap=6),
    'cyclic_poisson': _random(accounting.CyclicPoisson, groups=7),
    'balls_in_bins': _random(accounting.BallsInBins, groups=12),
    'random_allocation': _random(accounting.RandomAllocation, groups=12),
    'b_min_sep': _random(accounting.BMinSep, groups=4),
}


_IN_BINS = ('balls_in_bins', 'random_allocation')


@pytest.fixture(name='sampler', params=_SAMPLERS.values(), ids=_SAMPLERS)
def _sampler(request):
    return request.param


def _cohorts(sampler, rounds=_ROUNDS):
    return [sampler.cohort(t) for t in range(rounds)]


def test_cohorts_are_a_pure_function_of_seed_and_round(sampler):
    again, other = (dataclasses.replace(sampler, seed=seed) for seed in (0, 1))
    for t in (13, 2, 19, 2):
        np.testing.assert_array_equal(sampler.cohort(t), again.cohort(t))
    assert any(sorted(sampler.cohort(t)) != sorted(other.cohort(t)) for t in range(_ROUNDS))


def test_every_cohort_has_each_client_once_and_the_schema_holds(sampler):
    seen = {}
    for t, cohort in enumerate(_cohorts(sampler)):
        assert np.unique(cohort).size == cohort.size
        for client in cohort.tolist():
            seen.setdefault(client, []).append(t)
    assert all(sampler.participation.admits(rounds) for rounds in seen.values())
    assert len(seen) > _CLIENTS and min(seen) >= 0 and max(seen) < _POPULATION
    for t in (-1, _ROUNDS):
        with pytest.raises(ValueError, match=f'round={t}: must be an integer >= 0 and <='):
            sampler.cohort(t)


def test_the_memory_of_a_cohort_does_not_depend_on_the_population(sampler):
    peaks = []
    for size in (20_000, 200_000):
        if isinstance(sampler, sampling.RandomSampler):
            fields = {'groups': size // 100} if sampler.kind.name in _IN_BINS else {}
            kind = dataclasses.replace(sampler.kind, population=size, **fields)
            drawn = dataclasses.replace(sampler, kind=kind, clients_per_round=100)
        else:
            drawn = dataclasses.replace(sampler, population=size, clients_per_round=100)
        drawn.cohort(0)
        tracemalloc.start()
        _cohorts(drawn)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 2 * peaks[0]


@pytest.mark.parametrize(
    'schema, clients',
    [
        (Participation(30, 30, 1), 300),
        (Participation(50, 7), 71),
        (Participation(50, 1), 10),
        (Participation(40, 9, 5), 100),
        (Participation(3, 100), 30),
    ],
)
def test_every_schema_holds_and_everyone_has_a_turn_before_anyone_has_two(schema, clients):
    sampler = _apart(schema, clients, 10, seed=3)
    log = ParticipationLog(_cohorts(sampler, schema.rounds))
    seen = log.observed()
    assert seen.min_separation >= schema.min_separation or seen.count == 1
    assert seen.count <= schema.count and (log.cohort_sizes == 10).all()
    turns = min(schema.rounds, clients // 10)
    assert np.unique(np.concatenate([log.cohort(t) for t in range(turns)])).size == 10 * turns


# --- The law of all cohorts of a run with three clients: the probability of each way it may go.


def _in_turn(rounds):
    """Rounds that draw their cohorts independently."""
    law = collections.Counter()
    for cohorts in itertools.product(*rounds):
        law[cohorts] += math.prod(of[cohort] for of, cohort in zip(rounds, cohorts, strict=True))
    return law


def _sample(members, probability, cap=3):
    """A Poisson sample, of which a random part is left if it has more members than the cap."""
    law = collections.Counter()
    for size in range(len(members) + 1):
        for chosen in itertools.combinations(members, size):
            weight = probability**size * (1 - probability) ** (len(members) - size)
            parts = [*itertools.combinations(chosen, min(size, cap))]
            law.update({part: weight / len(parts) for part in parts})
    return law


def _of_groups(probability):
    """Two clients in the first group and one in the other, in three rounds."""
    law = collections.Counter()
    for alone in range(3):
        first, other = (_sample(each, probability) for each in (_others(alone), (alone,)))
        law.update({each: p / 3 for each, p in _in_turn([first, other, first]).items()})
    return law


def _others(client):
    return tuple(each for each in range(3) if each != client)


def _apart_from_each_other(patterns):
    """Clients whose patterns are independent."""
    law = collections.Counter()
    for clients in itertools.product(patterns, repeat=3):
        weights, updates = zip(*clients, strict=True)
        cohorts = (tuple(np.flatnonzero(taken).tolist()) for taken in np.transpose(updates))
        law[(*cohorts,)] += math.prod(weights)
    return law


_PASSES = [
    (weight * other, np.append(updates, more))
    for weight, updates in sampling_oracles.bin_patterns(2, 2)
    for other, more in sampling_oracles.bin_patterns(1, 2)
]
_LAWS = [
    (
        accounting.WithoutReplacement(population=3),
        2,
        _in_turn([{_others(client): 1 / 3 for client in range(3)}] * 3),
    ),
    (accounting.Poisson(population=3), 1, _in_turn([_sample(range(3), 1 / 3)] * 2)),
    (
        accounting.TruncatedPoisson(population=3, cohort_cap=2),
        2,
        _in_turn([_sample(range(3), 2 / 3, 2)] * 2),
    ),
    (accounting.CyclicPoisson(population=3, groups=2), 1, _of_groups(2 / 3)),
    (
        accounting.BallsInBins(population=3, groups=2),
        1,
        _apart_from_each_other(sampling_oracles.bin_patterns(3, 2)),
    ),
    (accounting.RandomAllocation(population=3, groups=2), 1, _apart_from_each_other(_PASSES)),
    (
        accounting.BMinSep(population=3, groups=2),
        1,
        _apart_from_each_other(
            sampling_oracles.separated_patterns(3, 2, separated.probability(3, 1, 2))
        ),
    ),
]


@pytest.mark.parametrize('kind, clients, law', _LAWS, ids=[kind.name for kind, *_ in _LAWS])
def test_cohorts_have_the_law_of_their_sampling(kind, clients, law):
    count, rounds = 4000, len(next(iter(law)))
    seen = collections.Counter(
        tuple(tuple(sorted(cohort.tolist())) for cohort in _cohorts(sampler, rounds))
        for seed in range(count)
        for sampler in [sampling.RandomSampler(kind, rounds, clients, seed)]
    )
    assert seen.keys() <= law.keys() and sum(law.values()) == pytest.approx(1)
    statistic = sum((seen[way] - count * p) ** 2 / (count * p) for way, p in law.items())
    # Its mean and variance are exact; the seeds are fixed.
    ways, inverse = len(law), sum(1 / p for p in law.values())
    variance = 2 * (ways - 1) + (inverse - ways**2 - 2 * ways + 2) / count
    assert statistic <= ways - 1 + 4 * math.sqrt(variance)
    assert kind.has_one_size == (len({len(cohort) for way in law for cohort in way}) == 1)


def test_every_kind_has_its_law():
    assert {kind.name for kind, *_ in _LAWS} == {*kinds.KINDS}


@pytest.mark.parametrize('kind, clients, law', _LAWS, ids=[kind.name for kind, *_ in _LAWS])
@pytest.mark.standard
def test_epsilon_is_not_below_that_of_the_law(kind, clients, law):
    """By brute force, for a client whose others have updates of 0."""
    rounds, noise, delta = len(next(iter(law))), 2.0, 1e-3
    patterns = collections.Counter()
    for cohorts, weight in law.items():
        patterns[tuple(0 in cohort for cohort in cohorts)] += weight
    taking_part = [(weight, np.array(part, float)) for part, weight in patterns.items()]
    mechanism = mechanisms.Identity(rounds)
    if 'groups' in kinds.settings(type(kind)):
        mechanism = mechanisms.BandedToeplitz(rounds, [1.0, 0.5])
    plan = plans.independent(
        rounds,
        mechanism=mechanism,
        participation=kind.schema(rounds),
        sampling=kind,
        clients_per_round=clients,
        noise_multiplier=noise,
    )
    curve = sampling_oracles.curve_of_patterns(mechanism.strategy_matrix(), taking_part, noise)
    exact = sampling_oracles.epsilon_of(curve, delta)
    assert 0 < exact <= plan.epsilon(delta, 'best') * (1 + 1e-6)


def test_many_groups_have_clients_of_their_own():
    cohorts = _cohorts(_random(accounting.CyclicPoisson, 400, 103, 5, groups=7, seed=2), 400)
    groups = [set(np.concatenate(cohorts[index::7]).tolist()) for index in range(7)]
    assert sorted(client for group in groups for client in group) == list(range(103))
    assert {len(group) for group in groups} == {14, 15}


def test_timer_cohorts_keep_the_schema_that_they_are_checked_against():
    def devices():
        return population.Population(population=400, clients_per_round=8, timer_hours=24.0, seed=1)

    seen = ParticipationLog(
        closed.clients for _, closed in zip(range(60), devices().rounds(), strict=False)
    ).observed()
    sampler = sampling.TimerSampler(Participation(60, seen.min_separation), devices())
    assert ParticipationLog(_cohorts(sampler, 60)).observed() == seen and seen.min_separation > 1
    with pytest.raises(ValueError, match=f'must be at most {seen.min_separation}, which timer_'):
        sampling.TimerSampler(Participation(60, seen.min_separation + 1), devices())
    with pytest.raises(ValueError, match='max_participations=1: must be at least'):
        sampling.TimerSampler(Participation(60, 1, 1), devices())


def _plan(sampler, **changes):
    """A plan whose guarantee rests on a sampler."""
    fields = dict(
        mechanism=mechanisms.Identity(_ROUNDS),
        participation=sampler.participation,
        clip_norm=1.0,
        noise_multiplier=1.0,
        clients_per_round=_CLIENTS,
    )
    return accounting.PrivacyPlan(**{**fields, 'sampling': sampler.sampling, **changes})


def test_a_sampler_fits_its_own_plan_and_no_other_kind(sampler):
    sampling.check(sampler, _plan(sampler))
    for other in _SAMPLERS.values():
        if type(other.sampling) is not type(sampler.sampling):
            plan = _plan(other)
            with pytest.raises(ValueError, match=f'sampling={plan.sampling_name}: must be'):
                sampling.check(sampler, plan)


@pytest.mark.parametrize(
    'name, changes, message',
    [
        ('poisson', dict(sampling=accounting.Poisson(population=50)), 'population=50: must be 60'),
        ('poisson', dict(clients_per_round=4), 'clients_per_round=4: must be 5, as the sampler'),
        (
            'truncated_poisson',
            dict(sampling=accounting.TruncatedPoisson(population=60, cohort_cap=7)),
            'cohort_cap=7: must be 6, as the sampler has it',
        ),
        (
            'cyclic_poisson',
            dict(sampling=accounting.CyclicPoisson(population=60, groups=8)),
            'groups=8: must be 7, as the sampler has it',
        ),
        ('uniform', dict(participation=_APART), 'min_separation=4: must be kept by the sampler'),
        (
            'uniform',
            dict(participation=Participation(_ROUNDS, 1, 2)),
            'max_participations=2: must be kept by the sampler',
        ),
        (
            'min_separation',
            dict(participation=Participation(_ROUNDS, 5, 2)),
            'min_separation=5: must be kept',
        ),
        (
            'min_separation',
            dict(participation=Participation(21, 4, 2), mechanism=mechanisms.Identity(21)),
            'rounds=21: must be kept',
        ),
    ],
)
def test_a_sampler_that_the_guarantee_does_not_rest_on_is_refused(name, changes, message):
    sampler = _SAMPLERS[name]
    with pytest.raises(ValueError, match=message):
        sampling.check(sampler, _plan(sampler, **changes))


@pytest.mark.parametrize(
    'make, arguments, message',
    [
        (_random, (accounting.Poisson, 0, 5, 1), 'rounds=0: must be an integer >= 1'),
        (_random, (accounting.Poisson, 1, 5, 6), 'population=5: must be an integer >= 6'),
        (_random, (accounting.WithoutReplacement, 1, 5, 0), 'clients_per_round=0: '),
        (_apart, (Participation(30), 100, 10, -1), 'seed=-1: '),
        (_apart, (Participation(30, 11), 100, 10), 'population=100: must be at least 110'),
        (_apart, (Participation(30, 1, 2), 100, 10), 'population=100: must be at least 150'),
        (_apart, (Participation(30), 5, 10), 'population=5: must be an integer >= 10'),
    ],
)
def test_samplers_that_cannot_be_are_refused(make, arguments, message):
    with pytest.raises(ValueError, match=message):
        make(*arguments)
