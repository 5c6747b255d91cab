"""Simulated devices: their windows, their check-ins, and the rounds that they make."""

import itertools
import math

import numpy as np
import pytest

from dpfl import ParticipationLog
from dpfl.simulation import population


@pytest.fixture(name='behave')
def _behave(monkeypatch):
    """Sets habits of devices and the server for a test."""

    def behave(**habits):
        for name, value in habits.items():
            monkeypatch.setattr(population, f'_{name.upper()}', value)

    return behave


def _windows(size):
    return population.Windows(size, 2**63 + 12345)


def _table(windows, size, days):
    """Opening and closing of every device on every day, infinite without a window: [days, size]."""
    numbers = np.arange(days[0] * size, days[1] * size)
    opens, closes = np.full(numbers.size, np.inf), np.full(numbers.size, -np.inf)
    exist, some_open, some_close = windows.hours(numbers)
    opens[exist], closes[exist] = some_open, some_close
    return opens.reshape(-1, size), closes.reshape(-1, size)


@pytest.mark.parametrize('size', [1, 7, 3000])
@pytest.mark.parametrize(
    'habits',
    [
        {},
        {'daytime_share': 0.0},
        {'daytime_share': 1.0, 'jitter_hours': 0.0},
        {'window_hours': 13.3, 'jitter_hours': 1.0, 'time_zone_hours': 24.0},
        {'eligible_share': 1.0, 'window_hours': 0.5, 'jitter_hours': 5.0},
    ],
    ids=str,
)
def test_reach_has_every_window_that_is_open_and_no_device_twice(size, habits, behave):
    behave(**habits)
    windows = _windows(size)
    opens, closes = _table(windows, size, (-2, 4))
    rng = np.random.default_rng(0)
    for start in [0.0, 22.0, 23.9, *rng.uniform(0, 48, 20)]:
        end = start + rng.uniform(0, population.LONGEST_REACH)
        numbers = np.flatnonzero(((opens <= end) & (closes > start)).ravel()) - 2 * size
        low, high = windows.reach(start, end)
        assert low <= numbers.min(initial=low)
        assert numbers.max(initial=low) < high
        assert np.unique(numbers % size).size == numbers.size


def test_windows_are_as_long_and_as_frequent_as_the_habits_say(behave):
    size = 50_000
    behave(eligible_share=0.3, window_hours=6.0)
    opens, closes = _table(_windows(size), size, (0, 4))
    exist = np.isfinite(opens)
    assert exist.mean() == pytest.approx(0.3, abs=0.01)
    length = (closes - opens)[exist]
    assert length.mean() == pytest.approx(6, abs=0.05)
    assert 3 <= length.min() and length.max() <= 9
    # From day to day: independent of each other, and around the device's usual time.
    both = exist[0] & exist[1]
    assert both.mean() == pytest.approx(0.09, abs=0.01)
    moved = opens[1][both] - opens[0][both] - 24
    assert np.abs(moved).max() <= 2 and moved.std() == pytest.approx(np.sqrt(2 / 3), rel=0.05)


def test_four_times_as_many_devices_are_eligible_at_night():
    """[Bonawitz19]: a factor of 4 over the day."""
    size = 40_000
    opens, closes = _table(_windows(size), size, (-2, 4))
    times = np.arange(24, 48, 0.5)
    share = np.array([((opens <= t) & (t < closes)).any(axis=0).mean() for t in times])
    assert 3 < share.max() / share.min() < 5
    # 22:30 and after in the middle of the time zones; least in the afternoon.
    assert np.argmax(share) / 2 in (0, 0.5, 1, 1.5, 2, 2.5, 3)
    assert 11 < np.argmin(share) / 2 < 19


def test_times_beyond_the_clock_are_never():
    stream = population.CheckIns(population.Windows(3, 0), 3, np.random.default_rng(0))
    stream.free(np.array([0, 1]), np.array([1e9, 1e-4]))
    assert stream._free_at.tolist() == [population.BUSY, 1, 0]


@pytest.mark.parametrize('share', [0.0, 2.0], ids=['guessed', 'listed'])
@pytest.mark.parametrize('busy', [0.0, 0.9])
def test_check_ins_are_of_free_devices_within_their_windows_at_their_rate(share, busy, monkeypatch):
    monkeypatch.setattr(population, '_LISTING_SHARE', share)
    size, hours, now, parts = 20_000, 30.0, 0.0, []
    windows = population.Windows(size, 99)
    stream = population.CheckIns(windows, size, np.random.default_rng(0))
    is_busy = np.random.default_rng(5).random(size) < busy
    stream.occupy(np.flatnonzero(is_busy))
    while now < hours:
        devices, times, now = stream.upcoming(10**9, now)
        assert (np.diff(times) > 0).all() and (times <= now).all()
        assert np.unique(devices).size == devices.size
        parts.append((devices, times))
    devices, times = map(np.concatenate, zip(*parts, strict=True))
    assert not is_busy[devices].any()

    numbers = np.arange(-size, 3 * size)
    exist, opens, closes = windows.hours(numbers)
    owner = numbers[exist] % size
    for device, at in zip(devices[::97].tolist(), times[::97].tolist(), strict=True):
        is_own = owner == device
        assert ((opens[is_own] <= at) & (at < closes[is_own])).any()
    # Two check-ins an hour for each device-hour of open windows.
    is_free = ~is_busy[owner]
    opens, closes = opens[is_free], closes[is_free]
    for low, high in ((0, 6), (6, 18), (18, 30)):
        device_hours = np.clip(np.minimum(closes, high) - np.maximum(opens, low), 0, None).sum()
        expected = 2 * device_hours
        # Of two check-ins in one call of `upcoming`, half an hour at most, one counts.
        seen = ((times >= low) & (times < high)).sum()
        assert 0.6 * expected < seen < expected + 5 * math.sqrt(expected)


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
    'fields, habits',
    [
        ({}, {}),
        ({'timer_hours': 6.0}, {}),
        ({'timer_hours': 0.0}, {}),
        ({'population': 400, 'timer_hours': 24.0}, {}),
        ({'population': 60, 'timer_hours': 20.0}, {}),
        ({}, {'drop_out': 0.6}),
        ({}, {'client_spread': 0.0}),
        ({}, {'over_selection': 1.0, 'drop_out': 0.5}),
        ({}, {'server_minutes': 0.0, 'drop_out': 0.0}),
    ],
    ids=str,
)
def test_every_cohort_keeps_the_report_goal_and_the_timer(fields, habits, behave):
    behave(**habits)
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
            server = habits.get('server_minutes', 1.0) / 60
            assert following.start_hours == pytest.approx(end + server)


def test_a_round_closes_with_the_last_report_it_needs(behave):
    # All take equally long: the round lasts from the goal-th check-in on for just that time.
    behave(client_spread=0.0, drop_out=0.0, client_minutes=10.0, check_in_minutes=0.5)
    for one in _rounds(20, timer_hours=0.0):
        assert 10 < 60 * one.duration_hours < 11
        assert one.dropped == 0


def test_the_timer_of_a_device_starts_when_it_reports(behave):
    # It checks in about a minute after it may, for 12 hours of each day, and trains for an hour.
    behave(eligible_share=1.0, window_hours=12.0, jitter_hours=0.0)
    behave(check_in_minutes=1.0, client_minutes=60.0, client_spread=0.0, drop_out=0.0)
    rounds = _rounds(20, population=1, clients_per_round=1, timer_hours=2.0)
    reports = [one.start_hours + one.duration_hours for one in rounds]
    assert all(one.clients.tolist() == [0] for one in rounds)
    assert 2.0 + 1.0 <= np.diff(reports).min() < 3.1


@pytest.mark.parametrize(
    'size, goal, fields, rounds, message',
    [
        (2000, 2001, {}, 1, 'clients_per_round=2001: must be an integer >= 1 and <= 2000'),
        (50, 5, {}, 0, 'rounds=0: must be an integer >= 1'),
        (
            60,
            50,
            {'timer_hours': 24.0 * 365},
            2,
            'clients_per_round=50: was not reached within 60 days of population=60, must be',
        ),
    ],
)
def test_rounds_that_cannot_be_are_refused(size, goal, fields, rounds, message):
    with pytest.raises(ValueError, match=message):
        devices = population.Population(population=size, clients_per_round=goal, **fields)
        population.simulate(devices, rounds)


def test_run_keeps_the_log_and_the_times():
    devices = population.Population(population=2000, clients_per_round=50, timer_hours=24.0)
    done = population.simulate(devices, 40)
    assert done.log == ParticipationLog(one.clients for one in _rounds(40, timer_hours=24.0))
    hours = done.start_hours[-1] + done.duration_hours[-1]
    assert done.times.hours == pytest.approx(hours) == 24 * done.days
    assert done.times.starts.size == 40


def test_devices_drop_out_as_often_as_they_should(behave):
    behave(drop_out=0.3, over_selection=2.0, client_spread=0.1)
    behave(client_minutes=20.0, check_in_minutes=1.0)
    rounds = _rounds(80, timer_hours=1.0)
    # Selection is quick here, so that nearly all of the selected train to the end of a round.
    dropped = sum(one.dropped for one in rounds)
    reported = 80 * 50
    assert dropped / (dropped + reported) == pytest.approx(0.3, abs=0.03)
