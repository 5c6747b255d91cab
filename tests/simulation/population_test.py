import itertools
import math

import numpy as np
import pytest

from dpfl import ParticipationLog
from dpfl.simulation import population


def _rounds(count, **fields):
    devices = population.Population(**{'population': 2000, 'clients_per_round': 50, **fields})
    return list(itertools.islice(devices.rounds(), count))


def test_rounds_are_a_pure_function_of_the_seed():
    first, again, other = _rounds(30), _rounds(30), _rounds(30, seed=1)
    for one, same in zip(first, again, strict=True):
        assert one.clients.tolist() == same.clients.tolist()
        assert one[1:] == same[1:]
    assert any(set(a.clients) != set(b.clients) for a, b in zip(first, other, strict=True))
    # The first rounds of a longer run are those of a shorter one.
    assert [r.start_hours for r in _rounds(10)] == [r.start_hours for r in first[:10]]


@pytest.mark.parametrize(
    'fields',
    [
        {},
        {'timer_hours': 6.0},
        {'timer_hours': 0.0},
        {'population': 400, 'timer_hours': 24.0},
        {'population': 60, 'timer_hours': 20.0},
        {'drop_out': 0.6},
        {'client_spread': 0.0},
        {'over_selection': 1.0, 'drop_out': 0.5},
        {'server_minutes': 0.0, 'drop_out': 0.0},
    ],
    ids=str,
)
def test_every_cohort_keeps_the_report_goal_and_the_timer(fields):
    rounds = _rounds(60, **fields)
    size, timer = fields.get('population', 2000), fields.get('timer_hours', 72.0)
    opened = {}
    for one, following in itertools.pairwise([*rounds, None]):
        assert one.clients.dtype == np.int64
        assert len(set(one.clients.tolist())) == one.clients.size == 50
        assert 0 <= one.clients.min() and one.clients.max() < size
        assert one.selected >= 50 + one.dropped and one.duration_hours > 0
        end = one.start_hours + one.duration_hours
        for client in one.clients.tolist():
            # The last report came after that round was opened, and this one before this closed.
            assert end >= opened.get(client, -math.inf) + timer
            opened[client] = one.start_hours
        if following:
            server = fields.get('server_minutes', 1.0) / 60
            assert following.start_hours == pytest.approx(end + server)


def test_a_round_closes_with_the_last_report_it_needs():
    # All take equally long: the round lasts from the goal-th check-in on for just that time.
    rounds = _rounds(
        20,
        client_spread=0.0,
        drop_out=0.0,
        client_minutes=10.0,
        check_in_minutes=0.5,
        timer_hours=0.0,
    )
    for one in rounds:
        assert 10 < 60 * one.duration_hours < 11
        assert one.dropped == 0


def _day(size, goal, hours=48.0):
    """Durations in minutes and hours of the day of the rounds of so many hours."""
    devices = population.Population(population=size, clients_per_round=goal, timer_hours=12.0)
    rounds = list(itertools.takewhile(lambda one: one.start_hours < hours, devices.rounds()))
    return (
        np.array([60 * one.duration_hours for one in rounds]),
        np.array([one.start_hours % 24 for one in rounds]),
    )


def test_more_clients_a_smaller_population_and_the_day_make_rounds_longer():
    usual, hour = _day(20_000, 200)
    assert np.median(_day(20_000, 600)[0]) > 1.1 * np.median(usual)
    assert np.median(_day(5_000, 200)[0]) > 1.1 * np.median(usual)
    night, afternoon = usual[hour < 4], usual[(hour > 12) & (hour < 18)]
    assert np.median(afternoon) > 1.2 * np.median(night)


def test_the_timer_of_a_device_starts_when_it_reports():
    # It checks in about a minute after it may, for 12 hours of each day, and trains for an hour.
    habits = population.Availability(eligible_share=1.0, window_hours=12.0, jitter_hours=0.0)
    rounds = _rounds(
        20,
        population=1,
        clients_per_round=1,
        habits=habits,
        timer_hours=2.0,
        check_in_minutes=1.0,
        client_minutes=60.0,
        client_spread=0.0,
        drop_out=0.0,
    )
    reports = [one.start_hours + one.duration_hours for one in rounds]
    assert all(one.clients.tolist() == [0] for one in rounds)
    assert 2.0 + 1.0 <= np.diff(reports).min() < 3.1


def test_a_round_that_cannot_be_filled_is_an_error():
    devices = population.Population(population=60, clients_per_round=50, timer_hours=24 * 365)
    rounds = devices.rounds()
    next(rounds)
    with pytest.raises(
        ValueError,
        match='clients_per_round=50: was not reached within 60 days of '
        'population=60, must be smaller',
    ):
        next(rounds)


def test_run_keeps_the_log_and_the_times():
    devices = population.Population(population=2000, clients_per_round=50, timer_hours=24.0)
    done = population.simulate(devices, 40)
    assert done.log == ParticipationLog(one.clients for one in _rounds(40, timer_hours=24.0))
    assert done.days == pytest.approx(
        (done.start_hours[-1] + done.duration_hours[-1]) / 24, rel=1e-12
    )
    assert done.times.starts.size == 40
    assert done.times.hours == pytest.approx(24 * done.days)
    by_hour = done.minutes_by_hour()
    assert by_hour.shape == (24,)
    first = done.start_hours % 24 < 1
    assert by_hour[0] == pytest.approx(np.median(60 * done.duration_hours[first]))
    assert (done.selected >= 50).all() and (done.dropped <= done.selected).all()
    with pytest.raises(ValueError, match='rounds=0: must be an integer >= 1'):
        population.simulate(devices, 0)


def test_devices_drop_out_as_often_as_they_should():
    rounds = _rounds(
        80,
        drop_out=0.3,
        over_selection=2.0,
        client_spread=0.1,
        timer_hours=1.0,
        client_minutes=20.0,
        check_in_minutes=1.0,
    )
    # Selection is quick here, so that nearly all of the selected train to the end of a round.
    dropped = sum(one.dropped for one in rounds)
    reported = 80 * 50
    assert dropped / (dropped + reported) == pytest.approx(0.3, abs=0.03)


@pytest.mark.parametrize(
    'name, value, allowed',
    [
        ('population', 0, 'must be an integer >= 1'),
        ('population', 2**31, 'must be an integer >= 1'),
        ('clients_per_round', 2001, 'must be an integer >= 1 and <= 2000'),
        ('timer_hours', float('nan'), 'must be a finite number >= 0'),
        ('over_selection', 0.9, 'must be a finite number >= 1'),
        ('drop_out', 1.0, 'must be a finite number >= 0 and < 1'),
        ('check_in_minutes', 0.0, 'must be a finite number > 0'),
        ('server_minutes', -1.0, 'must be a finite number >= 0'),
        ('seed', -1, 'must be an integer >= 0'),
    ],
)
def test_bad_fields_are_named(name, value, allowed):
    with pytest.raises(ValueError, match=f'{name}={value}: {allowed}'):
        population.Population(**{'population': 2000, 'clients_per_round': 50, name: value})
