"""Devices with timers: who takes part in which round, and how long rounds take.

The server opens a round and asks for over_selection times the report goal of devices. Devices that
are eligible (`availability`), whose timer has expired and that are not busy check in by chance,
each once in check_in_minutes on average. One that is selected trains at once, for a time that
differs between devices, and then reports, unless it drops out. The round closes with the report
that reaches the goal; the next round starts when the server is ready.

What counts as participation is an update that was aggregated: the reports that made up the goal.
Their devices, and no others, are in the log, and their timers restart as they report. A device
that drops out, or comes after the round has closed, has not taken part: nothing of it was
released. It may check in again. If all that were asked have reported or dropped out and the goal
is not reached, the server asks for as many more, over_selection times, as are missing.

Sources: report goals of 6500, populations of 0.8 to 16.6 million and timers of 24 to 144 hours are
those of document 000, tables 1 and 2, and document 003; a timer of three days is the example of
document 002, section 1. Selecting 130 % of the goal, and drop-outs of 6 to 10 %, are from Bonawitz
et al. 2019, the system that they ran on. Document 000, table 1 gives the rounds within a timer
period: 6 to 10 minutes for a round where devices are plenty (pt-BR: 909 in 144 hours), and a pause
of 1.5 to 3 days after a device's timer has expired where they are not (de-DE: 3.24 million devices
reported 212 x 6500 times in 48 hours). The defaults of times and of eligibility follow from these.
"""

import dataclasses
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dpfl import _validate, errors
from dpfl.simulation import availability

# Keeps this stream apart from others that a run derives from the same seed.
_STREAM = 0x706F7075
_SECONDS = 3600
_BUSY = np.iinfo(np.int32).max
_PATIENCE_DAYS = 60
# Where fewer of the devices that may have a window are ready, they are listed, not guessed.
_FEW = 0.08
# Hours in which the rate of guesses is constant.
_STEP = 0.5
# Devices that are guessed at one time at most, and for an estimate of how many guesses are right.
_MOST = 2**18
_ENOUGH = 50


class Round(NamedTuple):
    """A round that has closed.

    Attributes:
      clients: whose reports were aggregated, int64 [clients_per_round].
      start_hours: when the server opened it, from midnight (UTC) of the first day.
      duration_hours: until the report goal was reached.
      selected: devices that were asked to train.
      dropped: those of them that dropped out before the round closed.
    """

    clients: np.ndarray
    start_hours: float
    duration_hours: float
    selected: int
    dropped: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Population:
    """A population of devices and the server that runs rounds with them.

    Attributes:
      population: number of devices; as clients they are 0 .. population - 1, in random order.
      clients_per_round: the report goal.
      timer_hours: a device takes part again this long after its last participation, at the
        earliest.
      over_selection: devices that are asked, divided by the report goal; at least 1.
      drop_out: probability that a selected device does not report.
      check_in_minutes: average time from one check-in of an eligible device to the next.
      client_minutes: median time from check-in to report (log-normal).
      client_spread: standard deviation of the logarithm of that time.
      server_minutes: from the end of a round to the start of the next one.
      habits: when devices are eligible.
      seed: of everything random, an integer >= 0.

    Raises:
      ValueError: if a field is out of its range.
    """

    population: int
    clients_per_round: int
    timer_hours: float = 72.0
    over_selection: float = 1.3
    drop_out: float = 0.08
    check_in_minutes: float = 30.0
    client_minutes: float = 4.0
    client_spread: float = 0.5
    server_minutes: float = 1.0
    habits: availability.Availability = availability.Availability()
    seed: int = 0

    def __post_init__(self):
        _validate.integer('population', self.population, minimum=1, maximum=2**31 - 1)
        _validate.integer(
            'clients_per_round', self.clients_per_round, minimum=1, maximum=self.population
        )
        _validate.number('timer_hours', self.timer_hours, minimum=0, maximum=24 * 365)
        _validate.number('over_selection', self.over_selection, minimum=1, maximum=100)
        _validate.number('drop_out', self.drop_out, minimum=0, below=1)
        _validate.number('check_in_minutes', self.check_in_minutes, above=0, maximum=24 * 60)
        _validate.number('client_minutes', self.client_minutes, above=0, maximum=24 * 60)
        _validate.number('client_spread', self.client_spread, minimum=0, maximum=3)
        _validate.number('server_minutes', self.server_minutes, minimum=0, maximum=24 * 60)
        _validate.integer('seed', self.seed, minimum=0)

    def rounds(self) -> Iterator[Round]:
        """The rounds, without end, from the first: each call gives the same ones.

        Needs 4 bytes for each device, and time for each round that grows with its cohort.

        Raises:
          ValueError: if a round cannot be filled within 60 days.
        """
        generator = np.random.default_rng([_STREAM, self.seed])
        key = int(generator.integers(2**64, dtype=np.uint64))
        windows = availability.Windows(self.habits, self.population, key)
        stride, shift = _affine(generator, self.population)
        check_ins = _CheckIns(windows, self.population, self.check_in_minutes / 60, generator)
        start = 0.0
        while True:
            closed = self._round(check_ins, generator, start)
            yield closed._replace(clients=(closed.clients * stride + shift) % self.population)
            start += closed.duration_hours + self.server_minutes / 60

    def _round(self, check_ins: '_CheckIns', generator: np.random.Generator, start: float) -> Round:
        """Runs a round; its clients are the numbers of the devices in `check_ins`."""
        goal, now = self.clients_per_round, start
        devices, begun = np.zeros(0, np.int64), np.zeros(0)
        ended, drops = np.zeros(0), np.zeros(0, bool)
        asked = math.ceil(self.over_selection * goal)
        while True:
            if now > start + 24 * _PATIENCE_DAYS:
                raise errors.ArgumentError(
                    'clients_per_round',
                    goal,
                    f'was not reached within {_PATIENCE_DAYS} days of '
                    f'population={self.population}, must be smaller',
                )
            new, at, now = check_ins.some(asked - devices.size, now)
            takes = np.exp(self.client_spread * generator.standard_normal(new.size))
            finish = at + self.client_minutes / 60 * takes
            drop = generator.random(new.size) < self.drop_out
            check_ins.occupy(new[~drop])
            check_ins.free(new[drop], finish[drop])
            devices, begun = np.append(devices, new), np.append(begun, at)
            ended, drops = np.append(ended, finish), np.append(drops, drop)
            reports = np.flatnonzero(~drops)
            complete = devices.size == asked
            if reports.size >= goal and (complete or np.sum(ended[reports] <= now) >= goal):
                break
            if complete:
                asked += math.ceil(self.over_selection * (goal - reports.size))
                now = max(now, float(ended.max()))
        reports = reports[np.argpartition(ended[reports], goal - 1)]
        aggregated, late = reports[:goal], reports[goal:]
        end = float(ended[aggregated[-1]])
        check_ins.free(devices[late], end)
        check_ins.free(devices[begun > end], end)  # not asked at all
        check_ins.free(devices[aggregated], ended[aggregated] + self.timer_hours)
        return Round(
            clients=devices[aggregated],
            start_hours=start,
            duration_hours=end - start,
            selected=int((begun <= end).sum()),
            dropped=int((drops & (ended <= end)).sum()),
        )


class _CheckIns:
    """The stream of devices that check in: eligible, with an expired timer, not busy.

    Each device checks in at random times (a Poisson process) of which those count at which it can
    take part. So the devices that check in next are guessed among all windows that may be open,
    and those that cannot are passed over: work in proportion to the cohort, not the population.
    Where nearly all would be passed over, the ready ones are listed first.
    """

    def __init__(
        self,
        windows: availability.Windows,
        population: int,
        pause_hours: float,
        generator: np.random.Generator,
    ):
        self._windows = windows
        self._pause = pause_hours
        self._generator = generator
        # From when on each device can take part again, in seconds.
        self._free_at = np.zeros(population, np.int32)
        self._share = 1.0  # of the guesses that are right, by the last ones
        self._listed_share = 0.5  # of the guesses within the list
        self._listed, self._listed_until = np.zeros(0, np.int64), 0.0

    def occupy(self, devices: np.ndarray) -> None:
        """The devices do not check in until they are free."""
        self._free_at[devices] = _BUSY

    def free(self, devices: np.ndarray, hours) -> None:
        """The devices check in again from these times on, rounded up to seconds.

        Times beyond the reach of the clock, 68 years, are never.
        """
        self._free_at[devices] = np.minimum(np.ceil(np.multiply(hours, _SECONDS)), _BUSY)

    def some(self, most: int, now: float) -> tuple[np.ndarray, np.ndarray, float]:
        """The next devices that check in, at most so many, and none later than a step from now.

        Returns:
          Devices int64 [m], their times in hours [m], increasing, and the time up to which these
          are all.
        """
        end = _next_multiple(now, _STEP)
        low, high = self._windows.reach(now, end)
        listed = self._ready(now) if self._share < _FEW else None
        candidates = high - low if listed is None else listed.size
        if not candidates:
            return np.zeros(0, np.int64), np.zeros(0), end
        rate = candidates / self._pause
        share = self._share if listed is None else self._listed_share
        guesses = int(min(1.1 * most / share, 1.1 * rate * (end - now), _MOST)) + _ENOUGH
        times = now + np.cumsum(self._generator.exponential(1 / rate, guesses))
        until = min(float(times[-1]), end)
        times = times[times <= until]
        picks = self._generator.integers(candidates, size=guesses)[: times.size]
        devices, able = self._that_can(low + picks if listed is None else listed[picks], times)
        if times.size >= _ENOUGH and listed is not None:
            self._listed_share = max(able.size / times.size, 0.01)
        elif times.size >= _ENOUGH:
            self._share = max(able.size / times.size, 0.01)
        if devices.size >= most:
            devices, able = devices[:most], able[:most]
            until = float(able[-1])
        return devices, able, until

    def _that_can(self, numbers: np.ndarray, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of windows and times, the devices that can take part then, each once, with the times."""
        devices = numbers % self._free_at.size
        free = self._free_at[devices] <= times * _SECONDS
        numbers, devices, times = numbers[free], devices[free], times[free]
        exist, opens, closes = self._windows.hours(numbers)
        devices, times = devices[exist], times[exist]
        able = np.flatnonzero((opens <= times) & (times < closes))
        first = able[np.sort(np.unique(devices[able], return_index=True)[1])]
        return devices[first], times[first]

    def _ready(self, now: float) -> np.ndarray:
        """Numbers of the windows that are open, and whose devices are free, some time soon.

        The list is kept for up to two hours: a device that becomes free without having taken part
        is in the next one.
        """
        if now >= self._listed_until:
            end = _next_multiple(now, availability.LONGEST_REACH)
            low, high = self._windows.reach(now, end)
            numbers = low + np.flatnonzero(self._from(low, high) <= end * _SECONDS)
            exist, opens, closes = self._windows.hours(numbers)
            self._listed = numbers[exist][(opens <= end) & (closes > now)]
            self._share = self._listed.size / (high - low)
            self._listed_until = end
        return self._listed

    def _from(self, low: int, high: int) -> np.ndarray:
        """Times from which on the devices of the windows [low, high) can take part, in seconds."""
        size = self._free_at.size
        first, count = low % size, high - low
        rest = count - (size - first)
        parts = [self._free_at[first : first + count]]
        while rest > 0:
            parts.append(self._free_at[:rest])
            rest -= size
        return np.concatenate(parts)


def _next_multiple(hours: float, step: float) -> float:
    """The first multiple of `step` after a time."""
    return (math.floor(hours / step) + 1) * step


def _affine(generator: np.random.Generator, size: int) -> tuple[int, int]:
    """Numbers (a, b) such that i -> (a i + b) mod size renames 0 .. size - 1."""
    shift = int(generator.integers(size))
    while True:
        stride = int(generator.integers(1, size + 1))
        if math.gcd(stride, size) == 1:
            return stride, shift
