"""Samplers of cohorts: what holds of each, their laws, and plans that they do not fit."""

import dataclasses

import numpy as np
import pytest

from dpfl import Participation, ParticipationLog, accounting, mechanisms
from dpfl.simulation import population, sampling
from dpfl.simulation.bin_sampling import BinSampler
from dpfl.simulation.min_sep_sampling import MinSepSampler

_ROUNDS, _POPULATION, _CLIENTS = 20, 60, 5
_SIZES = (_ROUNDS, _POPULATION, _CLIENTS)
_APART = Participation(_ROUNDS, 4, 2)
_SAMPLERS = {
    'min_separation': sampling.MinSeparationSampler(_APART, _POPULATION, _CLIENTS),
    'without_replacement': sampling.FixedSizeSampler(*_SIZES),
    'uniform': sampling.FixedSizeSampler(*_SIZES, amplification='none'),
    'poisson': sampling.PoissonSampler(*_SIZES),
    'truncated_poisson': sampling.PoissonSampler(*_SIZES, cohort_cap=6),
    'cyclic_poisson': sampling.CyclicPoissonSampler(*_SIZES, 7),
    'balls_in_bins': BinSampler(*_SIZES, 12),
    'random_allocation': BinSampler(*_SIZES, 12, picks_once=False),
    'b_min_sep': MinSepSampler(*_SIZES, 4),
}


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


def test_no_client_is_twice_in_a_cohort_and_all_are_of_the_population(sampler):
    for cohort in _cohorts(sampler):
        assert np.unique(cohort).size == cohort.size
        assert cohort.min(initial=0) >= 0 and cohort.max(initial=0) < _POPULATION


def test_the_schema_holds_over_the_whole_run(sampler):
    seen = {}
    for t, cohort in enumerate(_cohorts(sampler)):
        for client in cohort.tolist():
            seen.setdefault(client, []).append(t)
    assert all(sampler.participation.admits(rounds) for rounds in seen.values())
    assert len(seen) > _CLIENTS


def test_the_mean_cohort_has_the_planned_size(sampler):
    sizes = [
        cohort.size
        for seed in range(20)
        for cohort in _cohorts(dataclasses.replace(sampler, seed=seed))
    ]
    # 400 cohorts with a variance of at most 5; a seed that is fixed.
    assert abs(np.mean(sizes) - _CLIENTS) < 0.6
    has_fixed_size = isinstance(sampler, sampling.MinSeparationSampler | sampling.FixedSizeSampler)
    assert (np.var(sizes) == 0) == has_fixed_size


def test_rounds_outside_of_the_run_are_refused(sampler):
    for t in (-1, _ROUNDS):
        with pytest.raises(ValueError, match=f'round={t}: must be an integer >= 0 and <='):
            sampler.cohort(t)


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
    sampler = sampling.MinSeparationSampler(schema, clients, 10, seed=3)
    log = ParticipationLog(_cohorts(sampler, schema.rounds))
    seen = log.observed()
    assert seen.min_separation >= schema.min_separation or seen.count == 1
    assert seen.count <= schema.count and (log.cohort_sizes == 10).all()
    turns = min(schema.rounds, clients // 10)
    assert np.unique(np.concatenate([log.cohort(t) for t in range(turns)])).size == 10 * turns


@pytest.mark.parametrize(
    'schema, clients, per_round, message',
    [
        (Participation(30, 11), 100, 10, 'population=100: must be at least 110'),
        (Participation(30, 1, 2), 100, 10, 'population=100: must be at least 150'),
        (Participation(30), 5, 10, 'population=5: must be an integer >= 10'),
    ],
)
def test_a_population_that_cannot_keep_the_schema_is_refused(schema, clients, per_round, message):
    with pytest.raises(ValueError, match=message):
        sampling.MinSeparationSampler(schema, clients, per_round)


def _taken(sampler, clients):
    """Who takes part in which round: [rounds, clients]."""
    taken = np.zeros((sampler.rounds, clients))
    for t in range(sampler.rounds):
        taken[t, sampler.cohort(t)] = 1
    return taken


def test_fixed_size_cohorts_are_uniform():
    # Each client's count over 4000 rounds is binomial(4000, 3/10): chi-square over 10 clients.
    counts = _taken(sampling.FixedSizeSampler(4000, 10, 3), 10).sum(axis=0)
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
    _assert_independent(_taken(sampling.PoissonSampler(4000, 20, 5), 20), 0.25)
    assert sampling.PoissonSampler(1, 5, 5).cohort(0).size == 5
    assert min(map(len, _cohorts(sampling.PoissonSampler(200, 50, 1), 200))) == 0


def test_cohorts_of_groups_have_binomial_sizes_and_independent_clients():
    # 20 clients in each of two groups, each taking part with probability 10 / 40.
    sampler = sampling.CyclicPoissonSampler(6000, 40, 5, 2)
    taken = _taken(sampler, 40)
    for index in range(2):
        group = sampler.group(index)
        assert not np.delete(taken[index::2], group, axis=1).any()
        _assert_independent(taken[index::2][:, group], 0.25)
    assert sampling.CyclicPoissonSampler(3, 6, 2, 3).cohort(1).size == 2  # Everyone of the group.


def test_groups_take_turns_and_clients_stay_in_their_group():
    sampler = sampling.CyclicPoissonSampler(40, 103, 5, 7, seed=2)
    groups = [set(sampler.group(index).tolist()) for index in range(7)]
    assert sorted(client for group in groups for client in group) == list(range(103))
    assert {len(group) for group in groups} == {14, 15}
    longer = dataclasses.replace(sampler, rounds=60)
    for t in (39, 3, 20):
        assert set(sampler.cohort(t).tolist()) <= groups[t % 7]
        np.testing.assert_array_equal(sampler.cohort(t), longer.cohort(t))


@pytest.mark.parametrize('picks_once', [True, False])
def test_bins_partition_the_clients_of_an_epoch(picks_once):
    cohorts = _cohorts(BinSampler(10, 50, 12, 4, seed=3, picks_once=picks_once), 10)
    for first in (0, 4):
        assert sorted(np.concatenate(cohorts[first : first + 4])) == list(range(50))
    assert picks_once == (cohorts[0].tolist() == cohorts[4].tolist())


@pytest.mark.parametrize('picks_once', [True, False])
def test_bins_are_uniform_and_clients_independent(picks_once):
    # Sizes are binomial, so bins are not shuffled into equal parts.
    cohorts = [
        BinSampler(8, 40, 10, 4, seed=seed, picks_once=picks_once).cohort(5) for seed in range(400)
    ]
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
    if sampler.amplification != 'none':
        amplified = dict(sampling=sampler.amplification, population=_POPULATION)
        for name in ('groups', 'cohort_cap'):
            amplified[name] = getattr(sampler, name, None)
        fields |= amplified
    return accounting.PrivacyPlan(**{**fields, **changes})


def test_a_sampler_fits_its_own_plan_and_no_other_kind(sampler):
    sampling.check(sampler, _plan(sampler))
    for other in _SAMPLERS.values():
        if other.amplification != sampler.amplification:
            with pytest.raises(ValueError, match=f'sampling={other.amplification}: must be'):
                sampling.check(sampler, _plan(other))


@pytest.mark.parametrize(
    'name, changes, message',
    [
        ('poisson', dict(population=50), 'population=50: must be 60'),
        ('poisson', dict(clients_per_round=4), 'with clients_per_round=5, as the sampler'),
        ('truncated_poisson', dict(cohort_cap=7), 'cohort_cap=7: must be 6, as the sampler has it'),
        ('cyclic_poisson', dict(groups=8), 'groups=8: must be 7, as the sampler has it'),
        ('balls_in_bins', dict(groups=13), 'groups=13: must be 12, as the sampler has it'),
        ('uniform', dict(participation=_APART), 'min_separation=4: must be kept by the sampler'),
        (
            'min_separation',
            dict(participation=Participation(_ROUNDS, 5, 2)),
            'min_separation=5: must be kept',
        ),
        (
            'min_separation',
            dict(participation=Participation(21, 4, 2), mechanism=mechanisms.Identity(21)),
            'min_separation=4: must be kept',
        ),
    ],
)
def test_a_sampler_that_the_guarantee_does_not_rest_on_is_refused(name, changes, message):
    sampler = _SAMPLERS[name]
    with pytest.raises(ValueError, match=message):
        sampling.check(sampler, _plan(sampler, **changes))


@pytest.mark.parametrize(
    'kind, fields, message',
    [
        (sampling.PoissonSampler, (0, 5, 1), 'rounds=0: must be an integer >= 1'),
        (sampling.PoissonSampler, (1, 5, 6), 'population=5: must be an integer >= 6'),
        (sampling.FixedSizeSampler, (1, 5, 0), 'clients_per_round=0: '),
        (sampling.FixedSizeSampler, (1, 5, 1, -1), 'seed=-1: '),
        (sampling.FixedSizeSampler, (1, 5, 1, 0, 'poisson'), 'amplification=poisson'),
        (sampling.CyclicPoissonSampler, (20, 9, 5, 2), 'population=9: must be an integer >= 10'),
        (sampling.CyclicPoissonSampler, (20, 9, 5, 0), 'groups=0: must be an integer >= 1'),
        (BinSampler, (20, 50, 5, 0), 'groups=0: '),
    ],
)
def test_bad_samplers_are_refused(kind, fields, message):
    with pytest.raises(ValueError, match=message):
        kind(*fields)
