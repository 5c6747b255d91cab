"""The devices that check in: when, and how many."""

import math

import numpy as np
import pytest

from dpfl.simulation import population


def test_times_beyond_the_clock_are_never():
    windows = population.Windows(population.Availability(), 3, 0)
    stream = population.CheckIns(windows, 3, 0.5, np.random.default_rng(0))
    stream.free(np.array([0, 1]), np.array([1e9, 1e-4]))
    assert stream._free_at.tolist() == [population.BUSY, 1, 0]


def _stream(size, share, monkeypatch, busy=0.0, hours=30.0, seed=0):
    """Check-ins until so many hours, guessed (share 0) or listed (share 2)."""
    monkeypatch.setattr(population, '_FEW', share)
    windows = population.Windows(population.Availability(), size, 99)
    stream = population.CheckIns(windows, size, 0.5, np.random.default_rng(seed))
    blocked = np.flatnonzero(np.random.default_rng(5).random(size) < busy)
    stream.occupy(blocked)
    now, found = 0.0, []
    while now < hours:
        devices, times, now = stream.upcoming(10**9, now)
        assert (np.diff(times) > 0).all() and (times <= now).all()
        assert np.unique(devices).size == devices.size
        found.append((devices, times))
    devices, times = map(np.concatenate, zip(*found, strict=True))
    return windows, blocked, devices, times


@pytest.mark.parametrize('share', [0.0, 2.0])
@pytest.mark.parametrize('busy', [0.0, 0.9])
def test_devices_check_in_within_their_windows_and_while_free(share, busy, monkeypatch):
    size = 5000
    windows, blocked, devices, times = _stream(size, share, monkeypatch, busy)
    assert not np.isin(devices, blocked).any()
    numbers = np.arange(-size, 3 * size)
    exist, opens, closes = windows.hours(numbers)
    owner = numbers[exist] % size
    for device, at in zip(devices[::7].tolist(), times[::7].tolist(), strict=True):
        its = owner == device
        assert ((opens[its] <= at) & (at < closes[its])).any()


@pytest.mark.parametrize('share', [0.0, 2.0])
def test_check_ins_come_at_the_rate_of_the_eligible_devices(share, monkeypatch):
    # Two check-ins an hour for each device-hour of open windows, whichever way they are found.
    size, hours = 20_000, 30.0
    windows, _, _, times = _stream(size, share, monkeypatch, hours=hours)
    _, opens, closes = windows.hours(np.arange(-size, 3 * size))
    for low, high in ((0, 6), (6, 18), (18, 30)):
        device_hours = np.clip(np.minimum(closes, high) - np.maximum(opens, low), 0, None).sum()
        expected = 2 * device_hours
        # Of two check-ins in one call of `upcoming`, half an hour at most, one counts.
        seen = ((times >= low) & (times < high)).sum()
        assert 0.6 * expected < seen < expected + 5 * math.sqrt(expected)
