"""When the devices of a population are eligible: idle, charging, on an unmetered network.

Every device has one window a day in which it may be eligible. Most windows open in the evening of
the device's time zone, the others at any time of the day. The criteria are those of [Xu23] and
[McMahan24], both in section 1. The number of eligible devices of one country varies by a factor of
4 between day and night, as in [Bonawitz19], the system that [Xu23] trained with.
"""

import dataclasses
import math

import numpy as np

from dpfl import _validate

_DAY = 24.0
_MINUTES = 1440
# Evening windows open around 22:30, most of them within three hours.
_EVENING = 22.5
_EVENING_SPREAD = 1.5
# A window lasts between (1 - _LENGTH_SPREAD) and (1 + _LENGTH_SPREAD) times the average.
_LENGTH_SPREAD = 0.5
# Number of groups of devices, equal in size. All devices of a group have the same usual time.
_GROUPS = 2**16
# Longest time span that `Windows.reach` accepts, in hours.
LONGEST_REACH = 2.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Availability:
    """Habits of the devices.

    Attributes:
      eligible_share: probability that a device is eligible on a given day, within (0, 1].
      daytime_share: share of the devices whose window opens at any time of the day.
      window_hours: average length of a window. A window lasts between 0.5 and 1.5 times as long.
      jitter_hours: how much earlier or later than usual a window may open.
      time_zone_hours: number of hours over which the time zones of the population spread.

    Raises:
      ValueError: if a field is out of its range, or the windows of two days could overlap.
    """

    eligible_share: float = 0.5
    daytime_share: float = 0.5
    window_hours: float = 7.0
    jitter_hours: float = 1.0
    time_zone_hours: float = 3.0

    def __post_init__(self):
        _validate.number('eligible_share', self.eligible_share, above=0, maximum=1)
        _validate.number('daytime_share', self.daytime_share, minimum=0, maximum=1)
        _validate.number('jitter_hours', self.jitter_hours, minimum=0, maximum=5)
        longest = (_DAY - LONGEST_REACH - 2 * self.jitter_hours) / (1 + _LENGTH_SPREAD)
        _validate.number('window_hours', self.window_hours, above=0, maximum=longest)
        _validate.number('time_zone_hours', self.time_zone_hours, minimum=0, maximum=24)


class Windows:
    """The windows of all devices on all days, computed on demand.

    Devices are numbered in the order in which their windows usually open. Window d N + i is that of
    device i of N on day d, so the windows that may be open at a given time have consecutive
    numbers. All randomness comes from a hash of the number: a window is the same whenever it is
    computed.

    Args:
      availability: the habits.
      population: number of devices N.
      key: key of the hash, an integer within [0, 2^64).
    """

    def __init__(self, availability: Availability, population: int, key: int):
        self._habits = availability
        self._population = population
        self._key = np.uint64(key)
        self._edges = np.linspace(0.0, _DAY, _MINUTES + 1)
        self._opened = _cumulative_share(availability)
        middles = (np.arange(_GROUPS) + 0.5) / _GROUPS
        self._usual = np.interp(middles, self._opened, self._edges)

    def reach(self, start: float, end: float) -> tuple[int, int]:
        """Numbers [low, high) of the windows that may be open between two times.

        Args:
          start, end: hours since the beginning of day 0; end - start at most `LONGEST_REACH`.
        """
        longest = self._habits.window_hours * (1 + _LENGTH_SPREAD)
        group = self._population // _GROUPS + 2
        low = self._number(start - longest - self._habits.jitter_hours)
        high = self._number(end + self._habits.jitter_hours)
        return math.floor(low) - group, math.ceil(high) + group

    def hours(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """When windows open and close.

        Args:
          numbers: int64 [m].

        Returns:
          Indices in `numbers` of the windows that exist, since their device is eligible on that
          day, [e]; and the times at which these open and close, in hours since the beginning of
          day 0, each float64 [e].
        """
        bits = _hash(numbers, self._key)
        exist = np.flatnonzero(_uniform(bits, 0) < self._habits.eligible_share)
        bits, numbers = bits[exist], numbers[exist]
        days = numbers // self._population
        groups = (numbers - days * self._population) * _GROUPS // self._population
        opens = days * _DAY + self._usual[groups]
        opens += self._habits.jitter_hours * (2 * _uniform(bits, 1) - 1)
        length = self._habits.window_hours * (1 + _LENGTH_SPREAD * (2 * _uniform(bits, 2) - 1))
        return exist, opens, opens + length

    def _number(self, hours: float) -> float:
        """Number of the window that usually opens at a time; may be a fraction."""
        day, hour = divmod(hours, _DAY)
        return self._population * (day + float(np.interp(hour, self._edges, self._opened)))


def _cumulative_share(habits: Availability) -> np.ndarray:
    """Share of the windows that have opened by each minute of the day, [1441]."""
    middles = (np.arange(_MINUTES) + 0.5) * _DAY / _MINUTES
    zones = np.linspace(-0.5, 0.5, 49) * habits.time_zone_hours
    away = (middles[:, None] - _EVENING - zones + _DAY / 2) % _DAY - _DAY / 2
    evening = np.exp(-0.5 * (away / _EVENING_SPREAD) ** 2).sum(axis=1)
    density = (1 - habits.daytime_share) * evening / evening.sum()
    density += habits.daytime_share / _MINUTES
    share = np.concatenate([[0.0], np.cumsum(density)])
    return share / share[-1]


def _hash(numbers: np.ndarray, key: np.uint64) -> np.ndarray:
    """64 pseudorandom bits for each number (SplitMix64), uint64 [m]."""
    bits = numbers.astype(np.uint64)
    bits *= np.uint64(0x9E3779B97F4A7C15)
    bits += key
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        bits ^= bits >> np.uint64(shift)
        bits *= np.uint64(factor)
    return bits ^ (bits >> np.uint64(31))


def _uniform(bits: np.ndarray, which: int) -> np.ndarray:
    """The first, second or third of the uniform variables in [0, 1) in a hash, float64 [m]."""
    return ((bits >> np.uint64(21 * which)) & np.uint64(2**21 - 1)) / 2.0**21
