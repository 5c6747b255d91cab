import dataclasses
import math

import numpy as np
import pytest

from dpfl import Participation, ParticipationLog, accounting, mechanisms
from dpfl.accounting import planning
from dpfl.mechanisms.discretization import Discretization

_ES_ES = planning.Deployment(population=4_210_000, clients_per_round=6500, rounds=1900)
_TREE = planning.Planner(mechanism=mechanisms.BinaryTree(4000))
_SIMULATION = planning.Simulation(7.0, 6500)


def test_the_population_limits_the_separation_as_in_document_000():
    # Section 2.2: es-ES at most 647; with a population of 10^6, MinS (b - 1) below 153.
    assert _ES_ES.participation.min_separation == 647
    small = dataclasses.replace(_ES_ES, population=10**6, rounds=3000)
    assert small.participation.min_separation == 153
    assert small.separation_limit == 'population'
    assert small.participation.count == math.ceil(3000 / 153)


def test_consecutive_rounds_can_have_different_clients_up_to_the_limit():
    # 3 cohorts of 4 of the 14 clients in turn: nobody is back before 3 rounds have passed. A
    # separation of 4 would need 16.
    deployment = planning.Deployment(population=14, clients_per_round=4, rounds=9)
    b = deployment.population_separation
    assert b == 3 and b * 4 <= 14 < (b + 1) * 4
    turns = [[(t * 4 + i) % 12 for i in range(4)] for t in range(9)]
    assert ParticipationLog(turns).observed().min_separation == b


def test_availability_lowers_the_limit():
    half = dataclasses.replace(_ES_ES, availability=0.5)
    assert half.reporting_clients == 2_105_000
    assert half.participation.min_separation == 323


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


def test_the_rounds_are_the_last_limit():
    short = dataclasses.replace(_ES_ES, rounds=100)
    assert short.participation == Participation(100, 100)
    assert short.separation_limit == 'rounds' and short.participation.count == 1


def test_a_given_separation_is_kept():
    given = dataclasses.replace(_ES_ES, min_separation=527, max_participations=3)
    assert given.participation == Participation(1900, 527, 3)
    assert given.separation_limit == 'min_separation'


def test_plan_with_noise_is_that_of_the_library():
    # [Xu23], table 1, es-ES: MinS 526, MaxP 3, z = 7: rho 0.35.
    deployment = dataclasses.replace(_ES_ES, min_separation=527, max_participations=3)
    plan = _TREE.with_noise(deployment, 7.0)
    direct = accounting.PrivacyPlan(
        mechanism=mechanisms.BinaryTree(1900),
        participation=Participation(1900, 527, 3),
        clip_norm=1.0,
        noise_multiplier=7.0,
        clients_per_round=6500,
    )
    assert plan == direct
    assert round(plan.rho, 2) == 0.35


def test_noise_of_a_simulation_grows_with_the_cohort():
    # [Xu23], section 2.2: 0.54 with 500 clients goes with about 7 with 6500.
    assert planning.Simulation(0.54, 500).scaled(6500) == pytest.approx(7.02)
    assert planning.Simulation(7.0, 6500).scaled(6500) == 7.0


@pytest.mark.parametrize(
    'target',
    [
        planning.Target(rho=0.3),
        planning.Target(rho=1e-9),
        planning.Target(rho=1e4),
        planning.Target(epsilon=2.0, delta=1e-8, accountant='analytic_gaussian'),
        planning.Target(epsilon=0.5, delta=1e-6, accountant='rdp'),
        planning.Target(epsilon=8.0, delta=1e-10, accountant='pld'),
    ],
    ids=str,
)
@pytest.mark.parametrize('adjacency', ['zero_out', 'replace_one'])
def test_a_target_is_met_with_the_least_noise(target, adjacency):
    planner = dataclasses.replace(_TREE, adjacency=adjacency)
    plan = planner.with_target(_ES_ES, target)
    less = dataclasses.replace(plan, noise_multiplier=plan.noise_multiplier * (1 - 1e-6))
    if target.rho is not None:
        assert plan.rho <= target.rho < less.rho
    else:
        assert plan.epsilon(target.delta, target.accountant) <= target.epsilon
        assert less.epsilon(target.delta, target.accountant) > target.epsilon


def _discretize(clients_per_round):
    return Discretization.for_bits(20, clients_per_round, 100_000, 1.0)


@pytest.mark.parametrize(
    'planner, deployment, rho',
    [
        (_TREE, _ES_ES, 0.5),
        (_TREE, _ES_ES, 0.2),
        (_TREE, dataclasses.replace(_ES_ES, timer_hours=48, round_minutes=10), 0.5),
        (_TREE, dataclasses.replace(_ES_ES, min_separation=300), 0.7),
        (_TREE, dataclasses.replace(_ES_ES, population=30_000, rounds=500), 100.0),
        (planning.Planner(mechanism=mechanisms.Blt(4000, [0.99, 0.8], [0.05, 0.2])), _ES_ES, 0.1),
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

    def reached(clients_per_round):
        candidate = dataclasses.replace(deployment, clients_per_round=clients_per_round)
        return planner.with_noise(candidate, _SIMULATION.scaled(clients_per_round)).rho

    assert reached(cohort) <= rho
    # Every smaller one of a range, and a sample of the others, does not.
    smaller = {*range(max(1, cohort - 100), cohort), *range(1, cohort, max(1, cohort // 100))}
    assert all(reached(each) > rho for each in smaller)


def test_least_cohorts_over_a_range_of_targets():
    planner = planning.Planner(mechanism=mechanisms.Identity(2000))
    deployment = planning.Deployment(population=20_000, clients_per_round=1, rounds=2000)
    simulation = planning.Simulation(1.0, 70)

    def reached(cohort):
        candidate = dataclasses.replace(deployment, clients_per_round=cohort)
        return planner.with_noise(candidate, simulation.scaled(cohort)).rho

    by_cohort = [reached(cohort) for cohort in range(1, 1001)]
    for rho in np.geomspace(by_cohort[-1], by_cohort[0], 200).tolist():
        meeting = [cohort for cohort, each in enumerate(by_cohort, 1) if each <= rho]
        found = planner.least_cohort(deployment, planning.Target(rho=rho), simulation, 1000)
        assert (found and found.clients_per_round) == (meeting[0] if meeting else None)


def test_targets_are_met_to_the_last_digit():
    planner = planning.Planner(mechanism=mechanisms.Identity(3))
    deployment = planning.Deployment(population=10, clients_per_round=1, rounds=3)
    for rho in np.random.default_rng(0).uniform(0.01, 10, 300).tolist():
        target = planning.Target(rho=rho)
        plan = planner.with_target(deployment, target)
        assert plan.mu <= target.mu and plan.rho <= rho
        assert plan.mu >= target.mu * (1 - 1e-14)


def test_no_cohort_may_be_enough():
    target = planning.Target(rho=1e-3)
    assert _TREE.least_cohort(_ES_ES, target, _SIMULATION, 20_000) is None
    # Not even all clients in every round.
    assert _TREE.least_cohort(_ES_ES, planning.Target(rho=1e-9), _SIMULATION, 10**9) is None


def test_privacy_improves_with_what_document_000_says_it_improves_with():
    def rho(noise_multiplier=7.0, **changes):
        return _TREE.with_noise(dataclasses.replace(_ES_ES, **changes), noise_multiplier).rho

    by_population = [rho(population=n, rounds=2000) for n in (10**6, 3 * 10**6, 10**7, 10**8)]
    assert by_population == sorted(by_population, reverse=True)
    by_rounds = [rho(rounds=n) for n in (500, 1000, 2000, 4000)]
    assert by_rounds == sorted(by_rounds)
    by_separation = [rho(min_separation=b) for b in (50, 100, 200, 400, 600)]
    assert by_separation == sorted(by_separation, reverse=True)
    # Figure 4a: a larger cohort with as much more noise.
    by_cohort = [rho(_SIMULATION.scaled(m), clients_per_round=m) for m in (500, 2000, 6500, 20_000)]
    assert by_cohort == sorted(by_cohort, reverse=True)


def test_inflation_by_rounding_counts():
    planner = dataclasses.replace(_TREE, discretize=_discretize)
    plan, plain = planner.with_noise(_ES_ES, 7.0), _TREE.with_noise(_ES_ES, 7.0)
    inflation = (_discretize(6500).inflated_norm / 1.0) ** 2
    assert plan.rho == pytest.approx(plain.rho * inflation, rel=1e-12) and inflation > 1.001


def test_noise_in_a_sum_of_mean_updates():
    plan = dataclasses.replace(_TREE, clip_norm=2.0).with_noise(_ES_ES, 7.0)
    tree = mechanisms.BinaryTree(1900)
    assert planning.prefix_noise(plan) == pytest.approx(2.0 * 7.0 * tree.max_error() / 6500)


@pytest.mark.parametrize(
    'changes, message',
    [
        ({'population': 0}, 'population=0: must be an integer >= 1'),
        ({'population': math.nan}, 'population=nan: must be an integer'),
        ({'population': 10**400}, 'must be an integer >= 1 and <= 1000000000000000'),
        ({'population': 6499}, 'clients_per_round=6500: must be <= 6499, the clients that report'),
        (
            {'availability': 0.001},
            'clients_per_round=6500: must be <= 4210, the clients that report',
        ),
        ({'availability': 0.0}, 'availability=0.0: must be a finite number > 0 and <= 1'),
        ({'availability': 1.5}, 'availability=1.5: must be'),
        ({'availability': math.nan}, 'availability=nan: must be'),
        ({'rounds': 0}, 'rounds=0: must be an integer >= 1'),
        ({'timer_hours': 24.0}, 'timer_hours, round_minutes: must be given together'),
        ({'round_minutes': 5.0}, 'timer_hours, round_minutes: must be given together'),
        (
            {'timer_hours': -1.0, 'round_minutes': 5.0},
            'timer_hours=-1.0: must be a finite number > 0',
        ),
        ({'timer_hours': 24.0, 'round_minutes': 0.0}, 'round_minutes=0.0: must be a finite number'),
        ({'timer_hours': math.inf, 'round_minutes': 5.0}, 'timer_hours=inf: must be'),
        (
            {'min_separation': 648},
            'min_separation=648: must be <= 647, what 4210000 reporting clients',
        ),
        ({'min_separation': 0}, 'min_separation=0: must be an integer >= 1 and <= 1900'),
        ({'min_separation': 1901}, 'min_separation=1901: must be an integer >= 1 and <= 1900'),
        (
            {'min_separation': 9, 'timer_hours': 1.0, 'round_minutes': 5.0},
            'min_separation=9: cannot be combined with timer_hours',
        ),
        ({'max_participations': 0}, 'max_participations=0: must be an integer >= 1'),
    ],
)
def test_deployments_that_cannot_be_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(_ES_ES, **changes)


@pytest.mark.parametrize(
    'fields, message',
    [
        ({}, 'rho, epsilon: exactly one of them must be given'),
        ({'rho': 1.0, 'epsilon': 1.0}, 'rho, epsilon: exactly one'),
        ({'rho': 0.0}, 'rho=0.0: must be a finite number > 0'),
        ({'rho': math.nan}, 'rho=nan: must be'),
        ({'epsilon': -1.0}, 'epsilon=-1.0: must be'),
        ({'epsilon': 1.0, 'delta': 0.0}, 'delta=0.0: must be a finite number > 0 and < 1'),
    ],
)
def test_targets_that_cannot_be_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        planning.Target(**fields)


@pytest.mark.parametrize(
    'noise_multiplier, clients_per_round, message',
    [
        (0.0, 100, 'simulated_noise_multiplier=0.0: must be a finite number > 0'),
        (math.nan, 100, 'simulated_noise_multiplier=nan: must be'),
        (1.0, 0, 'simulated_clients_per_round=0: must be an integer >= 1'),
    ],
)
def test_simulations_that_cannot_be_are_refused(noise_multiplier, clients_per_round, message):
    with pytest.raises(ValueError, match=message):
        planning.Simulation(noise_multiplier, clients_per_round)


def test_more_rounds_than_the_mechanism_has_are_refused():
    table = mechanisms.Banded.from_matrix(mechanisms.BinaryTree(8).strategy_matrix(), 2)
    with pytest.raises(ValueError, match='rounds=1900: must be at most 8'):
        planning.Planner(mechanism=table).with_noise(_ES_ES, 1.0)
