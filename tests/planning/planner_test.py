import dataclasses

import numpy as np
import pytest

from dpfl import Participation, accounting, errors, mechanisms, planning
from dpfl.mechanisms.discretization import Discretization
from dpfl.participation import RoundTimes
from dpfl.planning.planner import prefix_noise
from tests.accounting import plans
from tests.sizes import standard

_ES_ES = planning.Deployment(population=4_210_000, clients_per_round=6500, rounds=1900)
_TREE = planning.Planner(mechanism=mechanisms.BinaryTree(4000))
_SIMULATION = planning.Simulation(7.0, 6500)


@pytest.mark.parametrize(
    'changes, schema, limit',
    [
        # Document 000, section 2.2: es-ES at most 647; with 10^6 clients MinS (b - 1) below 153.
        ({}, Participation(1900, 647), 'population'),
        ({'population': 10**6, 'rounds': 3000}, Participation(3000, 153), 'population'),
        ({'availability': 0.5}, Participation(1900, 323), 'population'),
        # Exactly 145 cohorts, though 0.29 * 3250000 is a little less in floats.
        ({'availability': 0.29, 'population': 3_250_000}, Participation(1900, 145), 'population'),
        ({'rounds': 100}, Participation(100, 100), 'rounds'),
        (
            {'min_separation': 527, 'max_participations': 3},
            Participation(1900, 527, 3),
            'min_separation',
        ),
        # 3 cohorts of 4 of the 14 clients in turn: nobody is back before 3 rounds have passed.
        (
            {'population': 14, 'clients_per_round': 4, 'rounds': 9},
            Participation(9, 3),
            'population',
        ),
    ],
)
def test_what_limits_the_separation(changes, schema, limit):
    deployment = dataclasses.replace(_ES_ES, **changes)
    assert (deployment.participation, deployment.separation_limit) == (schema, limit)


@pytest.mark.parametrize(
    'timer_hours, round_minutes, separation, limit',
    [
        (24, 4.6, 313, 'timer'),  # es-ES: a timer of 24 hours gave an observed MinS of 313.
        (24, 10, 144, 'timer'),
        (144, 4.6, 647, 'population'),
        (0.01, 10, 1, 'timer'),
        (10**6, 1, 647, 'population'),
    ],
)
def test_a_timer_separates_as_many_rounds_as_it_covers(
    timer_hours, round_minutes, separation, limit
):
    timed = dataclasses.replace(_ES_ES, timer_hours=timer_hours, round_minutes=round_minutes)
    assert timed.participation.min_separation == separation
    assert timed.separation_limit == limit
    if limit == 'timer' and separation > 1:
        assert separation * round_minutes <= timer_hours * 60 < (separation + 1) * round_minutes


def test_a_population_can_fill_all_cohorts_within_the_limits():
    """Also where rounds come in bursts, which few clients slow down: then times are no limit."""
    generator = np.random.default_rng(3)
    limited = 0
    for _ in range(300):
        starts = np.sort(generator.uniform(0, 100, size=40) ** generator.choice([1, 2]))
        deployment = planning.Deployment(
            population=int(generator.integers(4, 120)),
            clients_per_round=4,
            rounds=int(generator.integers(1, 42)),
            timer_hours=float(generator.uniform(1, 60)),
            pace=RoundTimes.from_hours(starts),
        )
        schema = deployment.participation
        assert schema.least_population(4) <= deployment.population
        limited += schema.max_participations is not None
    assert limited > 20


def test_the_least_cohort_keeps_the_most_participations():
    deployment = dataclasses.replace(_ES_ES, clients_per_round=1, max_participations=3)
    target = planning.Target(rho=1e-3)
    found, plan = _TREE.with_simulation(deployment, target, _SIMULATION, 100_000)
    assert found.clients_per_round == 3 * 4_210_000 // 1900 and plan.rho <= 1e-3


def test_plan_with_noise_is_that_of_the_library():
    # [Xu23], table 1, es-ES: MinS 526, MaxP 3, z = 7: rho 0.35.
    deployment = dataclasses.replace(_ES_ES, min_separation=527, max_participations=3)
    plan = _TREE.with_noise(deployment, 7.0)
    schema = Participation(1900, 527, 3)
    tree = mechanisms.BinaryTree(1900)
    assert plan == plans.production(mechanism=tree, participation=schema, clip_norm=1.0)
    assert round(plan.rho, 2) == 0.35


@pytest.mark.parametrize(
    'target',
    [
        planning.Target(rho=0.3),
        planning.Target(rho=1e-9),
        planning.Target(rho=1e4),
        planning.Target(epsilon=2.0, delta=1e-8, accountant='analytic_gaussian'),
        planning.Target(epsilon=0.5, delta=1e-6, accountant='rdp'),
        standard(planning.Target(epsilon=8.0, delta=1e-10, accountant='pld')),
    ],
    ids=str,
)
def test_a_target_is_met_with_the_least_noise(target):
    planner = dataclasses.replace(_TREE, adjacency='replace_one')
    plan = planner.with_target(_ES_ES, target)
    assert plan.adjacency == 'replace_one'
    less = dataclasses.replace(plan, noise_multiplier=plan.noise_multiplier * (1 - 1e-6))
    if target.rho is not None:
        assert plan.rho <= target.rho < less.rho
    else:
        assert plan.epsilon(target.delta, target.accountant) <= target.epsilon
        assert less.epsilon(target.delta, target.accountant) > target.epsilon


def _rho(planner, deployment, simulation, cohort):
    candidate = dataclasses.replace(deployment, clients_per_round=cohort)
    return planner.with_noise(candidate, simulation.scaled(cohort)).rho


def _discretize(clients_per_round):
    return Discretization.for_bits(20, clients_per_round, 100_000, 1.0)


@pytest.mark.parametrize(
    'planner, deployment, rho',
    [
        (_TREE, _ES_ES, 0.5),
        (_TREE, dataclasses.replace(_ES_ES, timer_hours=48, round_minutes=10), 0.5),
        (planning.Planner(mechanism=mechanisms.Identity(4000), clip_norm=3.0), _ES_ES, 0.02),
        (
            planning.Planner(mechanism=mechanisms.BinaryTree(4000), discretize=_discretize),
            _ES_ES,
            0.5,
        ),
    ],
)
def test_least_cohort_is_the_first_that_meets_the_target(planner, deployment, rho):
    target = planning.Target(rho=rho)
    found = planner.least_cohort(deployment, target, _SIMULATION, 100_000)
    cohort = found.clients_per_round
    assert _rho(planner, deployment, _SIMULATION, cohort) <= rho
    # Every smaller one of a range, and a sample of the others, does not.
    smaller = {*range(max(1, cohort - 20), cohort), *range(1, cohort, max(1, cohort // 20))}
    assert all(_rho(planner, deployment, _SIMULATION, each) > rho for each in smaller)


def test_least_cohorts_over_a_range_of_targets():
    planner = planning.Planner(mechanism=mechanisms.Identity(2000))
    deployment = planning.Deployment(population=20_000, clients_per_round=1, rounds=2000)
    simulation = planning.Simulation(1.0, 70)
    by_cohort = [_rho(planner, deployment, simulation, cohort) for cohort in range(1, 1001)]
    for rho in np.geomspace(by_cohort[-1], by_cohort[0], 40).tolist():
        meeting = [cohort for cohort, each in enumerate(by_cohort, 1) if each <= rho]
        found = planner.least_cohort(deployment, planning.Target(rho=rho), simulation, 1000)
        assert (found and found.clients_per_round) == (meeting[0] if meeting else None)


def test_targets_are_met_to_the_last_digit():
    planner = planning.Planner(mechanism=mechanisms.Identity(3))
    deployment = planning.Deployment(population=10, clients_per_round=1, rounds=3)
    for rho in np.random.default_rng(0).uniform(0.01, 10, 100).tolist():
        target = planning.Target(rho=rho)
        plan = planner.with_target(deployment, target)
        assert plan.mu <= target.mu and plan.rho <= rho
        assert plan.mu >= target.mu * (1 - 1e-14)


def test_noise_in_a_sum_of_mean_updates():
    plan = dataclasses.replace(_TREE, clip_norm=2.0).with_noise(_ES_ES, 7.0)
    tree = mechanisms.BinaryTree(1900)
    assert prefix_noise(plan) == pytest.approx(2.0 * 7.0 * tree.max_error() / 6500)


def _small_run(**fields):
    schema = Participation(2000, 100, 20)
    sizes = dict(participation=schema, clients_per_round=500, noise_multiplier=7 * 500 / 6500)
    return plans.production(clip_norm=0.3, **sizes, **fields)


@pytest.mark.parametrize('kind', ['fixed', 'clipped'])
@pytest.mark.parametrize('weight', [None, 250.0])
def test_the_noise_on_the_mean_is_the_same_however_it_is_estimated(kind, weight):
    plan = _small_run(estimator=accounting.Estimator(kind, weight, 1600.0))
    large = planning.scaled(plan, 5000, population=10**7)
    of_run = plan.stddev / plan.denominator
    assert large.stddev / large.denominator == pytest.approx(of_run)
    assert large.estimator.example_cap == 1600.0
    assert large.participation == plan.participation


def test_a_population_that_cannot_keep_the_separation_is_refused():
    small = _small_run()
    assert planning.scaled(small, 6500, population=650_000).sensitivity == small.sensitivity
    with pytest.raises(errors.ArgumentError, match='population=649999: must be an integer >= 6500'):
        planning.scaled(small, 6500, population=649_999)


@pytest.mark.parametrize('count_stddev', [None, 25.0])
def test_the_share_of_the_noise_that_counts_have_stays(count_stddev):
    plan = _small_run(
        mechanism=mechanisms.Restarted.every(mechanisms.BinaryTree(2000), 128, 1024),
        adaptive_clip=accounting.AdaptiveClip(0.5, count_stddev=count_stddev),
    )
    large = planning.scaled(plan, 5000, population=10**7)
    assert large.count_stddev == pytest.approx(10 * plan.count_stddev)
    assert large.update_noise_multiplier == pytest.approx(10 * plan.update_noise_multiplier)
