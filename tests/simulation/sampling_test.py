"""Samplers of cohorts: what holds of each, their laws, and plans that they do not fit."""

import dataclasses
import tracemalloc

import numpy as np
import pytest

from dpfl import Participation, ParticipationLog, accounting, mechanisms
from dpfl.simulation import population, sampling

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


def test_the_mean_cohort_has_the_planned_size(sampler):
    sizes = [
        cohort.size
        for seed in range(20)
        for cohort in _cohorts(dataclasses.replace(sampler, seed=seed))
    ]
    # 400 cohorts with a variance of at most 5; a seed that is fixed.
    assert abs(np.mean(sizes) - _CLIENTS) < 0.6
    kind = getattr(sampler, 'kind', None)
    has_fixed_size = kind is None or kind.has_one_size
    assert (np.var(sizes) == 0) == has_fixed_size


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


def _taken(sampler, clients):
    """Who takes part in which round: [rounds, clients]."""
    taken = np.zeros((sampler.rounds, clients))
    for t in range(sampler.rounds):
        taken[t, sampler.cohort(t)] = 1
    return taken


def test_fixed_size_cohorts_are_uniform():
    # Each client's count over 4000 rounds is binomial(4000, 3/10): chi-square over 10 clients.
    counts = _taken(_random(accounting.WithoutReplacement, 4000, 10, 3), 10).sum(axis=0)
    assert counts.sum() == 12_000
    assert ((counts - 1200) ** 2).sum() / (4000 * 0.3 * 0.7) < 30  # 9 degrees of freedom: 1e-4


def _assert_independent(taken, probability):
    """Sizes are binomial, and clients and rounds do not depend on each other."""
    rounds, clients = taken.shape
    sizes, variance = taken.sum(axis=1), clients * probability * (1 - probability)
    assert abs(sizes.mean() - clients * probability) < 4 * np.sqrt(variance / rounds)
    assert abs(sizes.var() / variance - 1) < 0.12  # A fixed size would have none.
    both = np.concatenate([taken[:-1], taken[1:]], axis=1)
    correlation = np.corrcoef(both.T) - np.eye(2 * clients)
    assert np.abs(correlation).max() < 5 / np.sqrt(rounds)


def test_poisson_cohorts_have_binomial_sizes_and_independent_clients():
    _assert_independent(_taken(_random(accounting.Poisson, 4000, 20, 5), 20), 0.25)
    assert _random(accounting.Poisson, 1, 5, 5).cohort(0).size == 5
    assert min(map(len, _cohorts(_random(accounting.Poisson, 200, 50, 1), 200))) == 0


def test_cohorts_of_groups_have_binomial_sizes_and_independent_clients():
    # 20 clients in each of two groups, each taking part with probability 10 / 40.
    taken = _taken(_random(accounting.CyclicPoisson, 6000, 40, 5, groups=2), 40)
    for index in range(2):
        group = np.flatnonzero(taken[index::2].any(axis=0))
        assert group.size == 20
        assert not np.delete(taken[index::2], group, axis=1).any()
        _assert_independent(taken[index::2][:, group], 0.25)
    # Everyone of the group.
    assert _random(accounting.CyclicPoisson, 3, 6, 2, groups=3).cohort(1).size == 2


def test_groups_take_turns_and_clients_stay_in_their_group():
    sampler = _random(accounting.CyclicPoisson, 400, 103, 5, groups=7, seed=2)
    cohorts = _cohorts(sampler, 400)
    groups = [set(np.concatenate(cohorts[index::7]).tolist()) for index in range(7)]
    assert sorted(client for group in groups for client in group) == list(range(103))
    assert {len(group) for group in groups} == {14, 15}
    longer = dataclasses.replace(sampler, rounds=600)
    for t in (39, 3, 20):
        np.testing.assert_array_equal(sampler.cohort(t), longer.cohort(t))


@pytest.mark.parametrize('kind', [accounting.BallsInBins, accounting.RandomAllocation])
def test_bins_partition_the_clients_of_an_epoch(kind):
    cohorts = _cohorts(_random(kind, 10, 50, 12, groups=4, seed=3), 10)
    for first in (0, 4):
        assert sorted(np.concatenate(cohorts[first : first + 4])) == list(range(50))
    assert (kind is accounting.BallsInBins) == (cohorts[0].tolist() == cohorts[4].tolist())


@pytest.mark.parametrize('kind', [accounting.BallsInBins, accounting.RandomAllocation])
def test_bins_are_uniform_and_clients_independent(kind):
    # Sizes are binomial, so bins are not shuffled into equal parts.
    cohorts = [_random(kind, 8, 40, 10, groups=4, seed=seed).cohort(5) for seed in range(400)]
    sizes = np.array([cohort.size for cohort in cohorts])
    assert abs(sizes.mean() - 10) < 0.7 and 5 < sizes.var() < 10.5
    counts = np.bincount(np.concatenate(cohorts), minlength=40)
    assert counts.min() > 60 and counts.max() < 145
    both = sum(0 in cohort and 1 in cohort for cohort in cohorts)
    assert 10 < both < 45  # A sixteenth of 400 on average.


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
