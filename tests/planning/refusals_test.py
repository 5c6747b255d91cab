"""What planning refuses: one table of calls, arguments, and what is said of them."""

import functools
import math

import pytest

from dpfl import errors, planning

_deployed = functools.partial(
    planning.Deployment, population=4_210_000, clients_per_round=6500, rounds=1900
)
_uniform = functools.partial(planning.UniformCohorts, population=5, clients_per_round=5, rounds=1)
_TIMER = dict(timer_hours=1.0, round_minutes=5.0)


@pytest.mark.parametrize(
    'call, arguments, message',
    [
        (_deployed, dict(population=0), 'population=0: must be an integer >= 1'),
        (_deployed, dict(population=10**400), 'an integer >= 1 and <= 1000000000000000'),
        (_deployed, dict(population=6499), '=6500: must be <= 6499, the clients that report'),
        (_deployed, dict(availability=0.001), '=6500: must be <= 4210, the clients that report'),
        (_deployed, dict(availability=1.5), 'availability=1.5: must be a finite number > 0 and'),
        (_deployed, dict(rounds=0), 'rounds=0: must be an integer >= 1'),
        (_deployed, dict(timer_hours=-1.0, round_minutes=5.0), 'timer_hours=-1.0: must be a fi'),
        (_deployed, dict(timer_hours=24.0, round_minutes=0.0), 'round_minutes=0.0: must be a f'),
        (_deployed, dict(min_separation=648), '=648: must be <= 647, what 4210000 reporting'),
        (_deployed, dict(min_separation=1901), 'must be an integer >= 1 and <= 1900'),
        (_deployed, dict(min_separation=9, **_TIMER), '=9: cannot be combined with timer_hours'),
        (_deployed, dict(max_participations=0), 'max_participations=0: must be an integer >= 1'),
        (_deployed, dict(max_participations=2), 'max_participations=2: must be >= 3, for 4210000'),
        (planning.Target, dict(rho=math.nan), 'rho=nan: must be a finite number > 0'),
        (planning.Target, dict(epsilon=-1.0), 'epsilon=-1.0: must be'),
        (planning.Target, dict(epsilon=1.0, delta=0.0), 'delta=0.0: must be a finite number > 0'),
        (planning.Simulation, (0.0, 100), 'simulated_noise_multiplier=0.0: must be a finite'),
        (planning.Simulation, (1.0, 0), 'simulated_clients_per_round=0: must be an integer >= 1'),
        (planning.DailyPattern, (0.0, (1.0,) * 24), 'round_minutes=0.0'),
        (planning.DailyPattern, (5.0, (1.0,) * 23), 'daily_pattern: has 23 numbers, must have 24'),
        (planning.DailyPattern, (5.0, (-1.0,) * 24), 'daily_pattern=-1.0: must be'),
        (planning.DailyPattern, (5.0, (0.0,) * 24), 'daily_pattern: must not be all 0'),
        (planning.DailyCounts, ((),), 'rounds_by_day: must hold a number'),
        (planning.DailyCounts, ((3, -1),), 'rounds_by_day=-1: must be an integer >= 0'),
        (planning.DailyCounts((3, 4)).fewest_rounds, (96,), 'timer_hours=96: must be < 96'),
        (_uniform, dict(population=0), 'population'),
        (_uniform, dict(clients_per_round=6), 'clients_per_round'),
        (_uniform, dict(rounds=0), 'rounds'),
    ],
)
def test_bad_arguments_are_named(call, arguments, message):
    with pytest.raises(errors.ArgumentError, match=message):
        call(**arguments) if isinstance(arguments, dict) else call(*arguments)


@pytest.mark.parametrize(
    'call, arguments, message',
    [
        (_deployed, dict(round_minutes=5.0), 'timer_hours, round_minutes: must be given tog'),
        (planning.Target, {}, 'rho, epsilon: exactly one of them must be given'),
        (planning.Target, dict(rho=1.0, epsilon=1.0), 'rho, epsilon: exactly one'),
    ],
)
def test_arguments_that_do_not_go_together_are_named(call, arguments, message):
    with pytest.raises(ValueError, match=message):
        call(**arguments)
