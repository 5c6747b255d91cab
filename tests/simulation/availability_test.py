import numpy as np
import pytest

from dpfl.simulation import population

_KEY = 2**63 + 12345


def _windows(size, **habits):
    return population.Windows(population.Availability(**habits), size, _KEY)


def _table(windows, size, days):
    """Opening and closing of every device on every day, infinite without a window: [days, size]."""
    numbers = np.arange(days[0] * size, days[1] * size)
    opens, closes = np.full(numbers.size, np.inf), np.full(numbers.size, -np.inf)
    exist, some_open, some_close = windows.hours(numbers)
    opens[exist], closes[exist] = some_open, some_close
    return opens.reshape(-1, size), closes.reshape(-1, size)


def _open_share(windows, size, times):
    opens, closes = _table(windows, size, (-2, 4))
    return np.array([((opens <= t) & (t < closes)).any(axis=0).mean() for t in times])


@pytest.mark.parametrize('size', [1, 7, 3000, 200_000])
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
def test_reach_has_every_window_that_is_open_and_no_device_twice(size, habits):
    windows = _windows(size, **habits)
    opens, closes = _table(windows, size, (-2, 4))
    rng = np.random.default_rng(0)
    for start in [0.0, 22.0, 23.9, *rng.uniform(0, 48, 20)]:
        end = start + rng.uniform(0, population.LONGEST_REACH)
        numbers = np.flatnonzero(((opens <= end) & (closes > start)).ravel()) - 2 * size
        low, high = windows.reach(start, end)
        assert low <= numbers.min(initial=low)
        assert numbers.max(initial=low) < high
        assert np.unique(numbers % size).size == numbers.size


def test_windows_of_a_device_do_not_overlap():
    opens, closes = _table(_windows(5000, window_hours=13.0, jitter_hours=1.0), 5000, (0, 6))
    both = np.isfinite(opens[:-1]) & np.isfinite(opens[1:])
    assert (closes[:-1][both] <= opens[1:][both]).all()


def test_windows_are_as_long_and_as_frequent_as_the_habits_say():
    size = 50_000
    opens, closes = _table(_windows(size, eligible_share=0.3, window_hours=6.0), size, (0, 4))
    exist = np.isfinite(opens)
    assert exist.mean() == pytest.approx(0.3, abs=0.01)
    length = (closes - opens)[exist]
    assert length.mean() == pytest.approx(6, abs=0.05)
    assert 3 <= length.min() and length.max() <= 9
    # From day to day: independent of each other, and around the device's usual time.
    assert (exist[0] & exist[1]).mean() == pytest.approx(0.09, abs=0.01)
    both = exist[0] & exist[1]
    moved = opens[1][both] - opens[0][both] - 24
    assert np.abs(moved).max() <= 2 and moved.std() == pytest.approx(np.sqrt(2 / 3), rel=0.05)


def test_four_times_as_many_devices_are_eligible_at_night():
    # [Bonawitz19]: a factor of 4 over the day.
    share = _open_share(_windows(40_000), 40_000, np.arange(24, 48, 0.5))
    assert 3 < share.max() / share.min() < 5
    # 22:30 and after in the middle of the time zones; least in the afternoon.
    assert np.argmax(share) / 2 in (0, 0.5, 1, 1.5, 2, 2.5, 3)
    assert 11 < np.argmin(share) / 2 < 19


@pytest.mark.parametrize(
    'name, value, allowed',
    [
        ('eligible_share', 0, '> 0 and <= 1'),
        ('daytime_share', -0.1, '>= 0 and <= 1'),
        ('window_hours', 14, '> 0 and <= 13.3'),
        ('jitter_hours', float('nan'), '>= 0 and <= 5'),
        ('time_zone_hours', 25, '>= 0 and <= 24'),
    ],
)
def test_bad_habits_are_named(name, value, allowed):
    with pytest.raises(ValueError, match=f'{name}={value}: must be a finite number {allowed}'):
        population.Availability(**{name: value})
