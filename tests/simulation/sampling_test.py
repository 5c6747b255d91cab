import numpy as np
import pytest

from dpfl import Participation, ParticipationLog, accounting, mechanisms
from dpfl.simulation import population, sampling
from dpfl.simulation.bin_sampling import BinSampler


@pytest.mark.parametrize(
    'schema, population, clients',
    [
        (Participation(30, 30, 1), 300, 10),
        (Participation(50, 7), 71, 10),
        (Participation(50, 1), 10, 10),
        (Participation(40, 9, 5), 100, 11),
        (Participation(3, 100), 30, 10),
        (Participation(200, 33, 7), 1000, 30),
    ],
)
def test_the_schema_holds_over_the_whole_run(schema, population, clients):
    sampler = sampling.MinSeparationSampler(schema, population, clients, seed=3)
    log = ParticipationLog(sampler.cohort(t) for t in range(schema.rounds))
    seen = {}
    for t in range(schema.rounds):
        for client in log.cohort(t):
            seen.setdefault(int(client), []).append(t)
    assert all(schema.admits(rounds) for rounds in seen.values())
    assert (log.cohort_sizes == clients).all()
    assert set(seen) <= set(range(population))


def test_cohorts_are_a_pure_function_of_seed_and_round():
    schema = Participation(20, 5)
    first, second = (sampling.MinSeparationSampler(schema, 100, 7, seed=1) for _ in range(2))
    for t in (13, 2, 19, 2):
        np.testing.assert_array_equal(first.cohort(t), second.cohort(t))
    other = sampling.MinSeparationSampler(schema, 100, 7, seed=2)
    assert any((first.cohort(t) != other.cohort(t)).any() for t in range(20))


def test_everyone_has_a_turn_before_anyone_has_two():
    sampler = sampling.MinSeparationSampler(Participation(40, 10), 105, 10, seed=0)
    firsts = np.concatenate([sampler.cohort(t) for t in range(10)])
    assert np.unique(firsts).size == 100


@pytest.mark.parametrize(
    'schema, population, clients, message',
    [
        (Participation(30, 11), 100, 10, 'population=100: must be at least 110'),
        (Participation(30, 1, 2), 100, 10, 'population=100: must be at least 150'),
        (Participation(30), 5, 10, 'population=5: must be an integer >= 10'),
        (Participation(30), 5, 0, 'clients_per_round=0: must be an integer >= 1'),
    ],
)
def test_a_population_that_cannot_keep_the_schema_is_refused(schema, population, clients, message):
    with pytest.raises(ValueError, match=message):
        sampling.MinSeparationSampler(schema, population, clients)


@pytest.mark.parametrize('t', [-1, 30])
def test_rounds_outside_the_run_are_refused(t):
    with pytest.raises(ValueError, match=f'round={t}: must be'):
        sampling.MinSeparationSampler(Participation(30), 100, 10).cohort(t)


@pytest.mark.parametrize('kind', [sampling.FixedSizeSampler, sampling.PoissonSampler])
def test_random_cohorts_are_pure_in_seed_and_round(kind):
    one, again, other = (kind(20, 1000, 30, seed) for seed in (3, 3, 4))
    for t in (19, 0, 7):
        np.testing.assert_array_equal(one.cohort(t), again.cohort(t))
        assert sorted(one.cohort(t)) != sorted(other.cohort(t))
    assert sorted(one.cohort(0)) != sorted(one.cohort(1))
    for cohort in map(one.cohort, range(20)):
        assert np.unique(cohort).size == cohort.size
        assert cohort.min() >= 0 and cohort.max() < 1000


def test_fixed_size_cohorts_are_uniform():
    # Each client's count over 4000 rounds is binomial(4000, 3/10): chi-square over 10 clients.
    sampler = sampling.FixedSizeSampler(4000, 10, 3)
    counts = np.bincount(np.concatenate([sampler.cohort(t) for t in range(4000)]), minlength=10)
    assert counts.sum() == 12_000
    assert ((counts - 1200) ** 2).sum() / (4000 * 0.3 * 0.7) < 30  # 9 degrees of freedom: 1e-4


def test_poisson_cohorts_have_binomial_sizes_and_independent_clients():
    sampler = sampling.PoissonSampler(4000, 20, 5)
    taken = np.zeros((4000, 20))
    for t in range(4000):
        taken[t, sampler.cohort(t)] = 1
    sizes = taken.sum(axis=1)
    assert abs(sizes.mean() - 5) < 4 * np.sqrt(20 * 0.25 * 0.75 / 4000)
    assert abs(sizes.var() / (20 * 0.25 * 0.75) - 1) < 0.1  # a fixed size would have none
    correlation = np.corrcoef(taken.T) - np.eye(20)
    assert np.abs(correlation).max() < 5 / np.sqrt(4000)


def test_a_poisson_cohort_may_be_empty_or_everyone():
    assert sampling.PoissonSampler(1, 5, 5).cohort(0).size == 5
    sizes = [sampling.PoissonSampler(200, 50, 1).cohort(t).size for t in range(200)]
    assert min(sizes) == 0


def _population(**changes):
    fields = dict(population=400, clients_per_round=8, timer_hours=24.0, seed=1)
    return population.Population(**{**fields, **changes})


def test_timer_cohorts_keep_the_schema_that_they_are_checked_against():
    seen = ParticipationLog(
        closed.clients for _, closed in zip(range(60), _population().rounds(), strict=False)
    ).observed()
    sampler = sampling.TimerSampler(Participation(60, seen.min_separation), _population())
    log = ParticipationLog(map(sampler.cohort, range(60)))
    assert log.observed() == seen and seen.min_separation > 1
    with pytest.raises(ValueError, match=f'must be at most {seen.min_separation}, which timer_'):
        sampling.TimerSampler(Participation(60, seen.min_separation + 1), _population())
    with pytest.raises(ValueError, match='max_participations=1: must be at least'):
        sampling.TimerSampler(Participation(60, 1, 1), _population())


def _plan(participation, **changes):
    return accounting.PrivacyPlan(
        mechanism=mechanisms.Identity(20),
        participation=participation,
        clip_norm=1.0,
        noise_multiplier=1.0,
        clients_per_round=5,
        **changes,
    )


_FREE = Participation(20)
_APART = Participation(20, 4, 2)


@pytest.mark.parametrize(
    'sampler, plan, refused',
    [
        (sampling.PoissonSampler(20, 50, 5), _plan(_FREE, sampling='poisson', population=50), None),
        (
            sampling.PoissonSampler(20, 60, 5),
            _plan(_FREE, sampling='poisson', population=50),
            'population=50: must be 60',
        ),
        (
            sampling.PoissonSampler(20, 50, 4),
            _plan(_FREE, sampling='poisson', population=50),
            'with clients_per_round=4, as the sampler',
        ),
        (sampling.PoissonSampler(20, 50, 5), _plan(_FREE), 'sampling=none: must be poisson'),
        (
            sampling.FixedSizeSampler(20, 50, 5),
            _plan(_FREE, sampling='poisson', population=50),
            'sampling=poisson: must be without_replacement',
        ),
        (sampling.FixedSizeSampler(20, 50, 5, amplification='none'), _plan(_FREE), None),
        (
            sampling.FixedSizeSampler(20, 50, 5, amplification='none'),
            _plan(_APART),
            'min_separation=4: must be kept by the sampler',
        ),
        (sampling.MinSeparationSampler(_APART, 50, 5), _plan(_APART), None),
        (sampling.MinSeparationSampler(_APART, 50, 5), _plan(_FREE), None),
        (
            sampling.MinSeparationSampler(_APART, 50, 5),
            _plan(_FREE, sampling='poisson', population=50),
            'sampling=poisson: must be none',
        ),
        (
            sampling.MinSeparationSampler(Participation(20, 3, 2), 50, 5),
            _plan(_APART),
            'min_separation=4: must be kept',
        ),
        (
            sampling.MinSeparationSampler(Participation(10, 4, 2), 50, 5),
            _plan(_APART),
            'min_separation=4: must be kept',
        ),
    ],
)
def test_a_sampler_that_the_guarantee_does_not_rest_on_is_refused(sampler, plan, refused):
    if refused is None:
        sampling.check(sampler, plan)
    else:
        with pytest.raises(ValueError, match=refused):
            sampling.check(sampler, plan)


@pytest.mark.parametrize(
    'make, message',
    [
        (lambda: sampling.PoissonSampler(0, 5, 1), 'rounds=0: must be an integer >= 1'),
        (lambda: sampling.PoissonSampler(1, 5, 6), 'population=5: must be an integer >= 6'),
        (lambda: sampling.FixedSizeSampler(1, 5, 0), 'clients_per_round=0: '),
        (lambda: sampling.FixedSizeSampler(1, 5, 1, -1), 'seed=-1: '),
        (
            lambda: sampling.FixedSizeSampler(1, 5, 1, amplification='poisson'),
            'amplification=poisson',
        ),
        (
            lambda: sampling.PoissonSampler(2, 5, 1).cohort(2),
            'round=2: must be an integer >= 0 and <=',
        ),
    ],
)
def test_bad_samplers_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_groups_take_turns_and_clients_stay_in_their_group():
    sampler = sampling.CyclicPoissonSampler(40, 103, 5, 7, seed=2)
    groups = [set(sampler.group(index).tolist()) for index in range(7)]
    assert sorted(client for group in groups for client in group) == list(range(103))
    assert {len(group) for group in groups} == {14, 15}
    for t in (39, 3, 20, 3):
        cohort = sampler.cohort(t)
        assert np.unique(cohort).size == cohort.size and set(cohort.tolist()) <= groups[t % 7]
    again, longer, other = (
        sampling.CyclicPoissonSampler(rounds, 103, 5, 7, seed)
        for rounds, seed in ((40, 2), (60, 2), (40, 3))
    )
    for t in (31, 0, 7):
        np.testing.assert_array_equal(sampler.cohort(t), again.cohort(t))
        np.testing.assert_array_equal(sampler.cohort(t), longer.cohort(t))
    assert any(sorted(sampler.group(0)) != sorted(other.group(index)) for index in range(7))
    log = ParticipationLog(map(sampler.cohort, range(40)))
    assert log.observed().min_separation % 7 == 0


def test_cohorts_of_groups_have_binomial_sizes_and_independent_clients():
    # 20 clients in each of two groups, each taking part with probability 10 / 40.
    sampler = sampling.CyclicPoissonSampler(6000, 40, 5, 2)
    taken = np.zeros((6000, 40))
    for t in range(6000):
        taken[t, sampler.cohort(t)] = 1
    for index in range(2):
        own = taken[index::2][:, sampler.group(index)]
        assert not np.delete(taken[index::2], sampler.group(index), axis=1).any()
        sizes = own.sum(axis=1)
        assert abs(sizes.mean() - 5) < 4 * np.sqrt(20 * 0.25 * 0.75 / 3000)
        assert abs(sizes.var() / (20 * 0.25 * 0.75) - 1) < 0.12
        both = np.concatenate([own[:-1], own[1:]], axis=1)  # Turns are independent as well.
        correlation = np.corrcoef(both.T) - np.eye(40)
        assert np.abs(correlation).max() < 5 / np.sqrt(3000)
    assert sampling.CyclicPoissonSampler(3, 6, 2, 3).cohort(1).size == 2  # Everyone of the group.


@pytest.mark.parametrize(
    'fields, message',
    [
        ((20, 9, 5, 2), 'population=9: must be an integer >= 10'),
        ((20, 9, 5, 0), 'groups=0: must be an integer >= 1'),
        ((20, 9, 5, 1, -1), 'seed=-1: '),
    ],
)
def test_groups_that_are_too_small_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        sampling.CyclicPoissonSampler(*fields)


def test_groups_of_the_plan_are_those_of_the_sampler():
    plan = _plan(_FREE, sampling='cyclic_poisson', population=50, groups=4)
    sampling.check(sampling.CyclicPoissonSampler(20, 50, 5, 4), plan)
    with pytest.raises(ValueError, match='groups=4: must be 5, as the sampler has it'):
        sampling.check(sampling.CyclicPoissonSampler(20, 50, 5, 5), plan)
    with pytest.raises(ValueError, match='sampling=cyclic_poisson: must be poisson'):
        sampling.check(sampling.PoissonSampler(20, 50, 5), plan)


def test_bins_are_kept_in_all_passes_and_partition_the_clients():
    sampler = BinSampler(10, 50, 12, 4, seed=3)
    cohorts = [sampler.cohort(t) for t in range(10)]
    assert sorted(np.concatenate(cohorts[:4])) == list(range(50))
    for t in range(4, 10):
        np.testing.assert_array_equal(cohorts[t], cohorts[t - 4])
    assert sampler.amplification == 'balls_in_bins'
    assert sampler.participation == Participation(10, 4)
    again = BinSampler(10, 50, 12, 4, seed=3).cohort(7)
    np.testing.assert_array_equal(again, cohorts[7])
    other = BinSampler(10, 50, 12, 4, seed=4).cohort(7)
    assert again.tolist() != other.tolist()


def test_random_allocation_picks_one_round_of_each_epoch():
    sampler = BinSampler(10, 50, 12, 4, seed=3, picks_once=False)
    cohorts = [sampler.cohort(t) for t in range(10)]
    for first in (0, 4):
        assert sorted(np.concatenate(cohorts[first : first + 4])) == list(range(50))
    assert cohorts[0].tolist() != cohorts[4].tolist()
    assert sampler.amplification == 'random_allocation'
    assert sampler.participation == Participation(10, 1, 3)


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


def test_bins_of_the_plan_are_those_of_the_sampler():
    plan = _plan(_FREE, sampling='balls_in_bins', population=50, groups=10)
    sampling.check(BinSampler(20, 50, 5, 10), plan)
    with pytest.raises(ValueError, match='groups=10: must be 9, as the sampler has it'):
        sampling.check(BinSampler(20, 50, 5, 9), plan)
    with pytest.raises(ValueError, match='sampling=balls_in_bins: must be random_allocation'):
        sampling.check(BinSampler(20, 50, 5, 10, picks_once=False), plan)
    with pytest.raises(ValueError, match='groups=0: '):
        BinSampler(20, 50, 5, 0)
    with pytest.raises(ValueError, match='round=20: '):
        BinSampler(20, 50, 5, 10).cohort(20)
