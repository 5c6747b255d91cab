"""A population of devices with timers: who takes part in which round, and how long rounds take.

The server opens a round and selects devices: 1.3 times the report goal. A device can
check in if it is eligible, its timer has expired, and it is not busy. Such a device checks in at
random times, every half hour on average. A selected device trains at once, for a time that
differs between devices, and then reports, unless it drops out. The report that reaches the goal
closes the round. The next round starts when the server is ready.

A device takes part in a round if its update is aggregated, that is, if its report counts towards
the goal. Only these devices are in the log, and their timers restart when they report. A device
that drops out, or reports after the round has closed, has not taken part: nothing derived from its
data is released. It may check in again. If all selected devices have reported or dropped out and
the goal is not reached, the server selects more: 1.3 times the missing reports.

Sources: report goals of 6500, populations of 0.8 to 16.6 million devices and timers of 24 to 144
hours are those of [Xu23], tables 1 and 2, and of [Xu23-accounting]. A timer of three days is the
example of [McMahan24], section 1. Selecting 130 % of the goal, and drop-outs of 6 to 10 %, are from
[Bonawitz19], the system that ran these trainings. [Xu23], table 1 gives the number of rounds within
a timer period: a round takes 6 to 10 minutes where devices are plenty (pt-BR: 909 rounds in 144
hours); where they are scarce, a device pauses for another 1.5 to 3 days after its timer has expired
(de-DE: 3.24 million devices reported 212 x 6500 times in 48 hours). The default times and the
default eligibility follow from these.

Every device has one window a day in which it may be eligible. Most windows open in the evening of
the device's time zone, the others at any time of the day. The criteria (idle, charging, on an
unmetered network) are those of [Xu23] and [McMahan24], both in section 1. The number of eligible
devices of one country varies by a factor of 4 between day and night, as in [Bonawitz19].
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dpfl import _progress, _validate, errors
from dpfl._settings import Settings, setting
from dpfl.participation import ParticipationLog, RoundTimes

_DAY = 24.0
_MINUTES = 1440
# Evening windows open around 22:30, most of them within three hours.
_EVENING = 22.5
_EVENING_SPREAD = 1.5
# A window lasts between (1 - _LENGTH_SPREAD) and (1 + _LENGTH_SPREAD) times the average.
_LENGTH_SPREAD = 0.5
# Behaviour of the server: devices selected in a round, divided by the report goal, and minutes from
# the end of a round to the start of the next one.
_OVER_SELECTION = 1.3
_SERVER_MINUTES = 1.0
# Behaviour of devices: the probability that a selected one does not report; the average minutes
# between two check-ins of an eligible one; the median minutes from check-in to report, and the
# standard deviation of their logarithm.
_DROP_OUT = 0.08
_CHECK_IN_MINUTES = 30.0
_CLIENT_MINUTES = 4.0
_CLIENT_SPREAD = 0.5
# When devices are eligible: the probability that one is idle, charging and unmetered at some time
# of a day; the share of them that are so at any time of the day, the others in the evening; the
# average hours of it; how much earlier or later from day to day; the hours over which time zones
# spread. Windows of two days cannot overlap.
_ELIGIBLE_SHARE = 0.5
_DAYTIME_SHARE = 0.5
_WINDOW_HOURS = 7.0
_JITTER_HOURS = 1.0
_TIME_ZONE_HOURS = 3.0
# Number of groups of devices, equal in size. All devices of a group have the same usual time.
_GROUPS = 2**16
# Longest time span that `Windows.reach` accepts, in hours.
LONGEST_REACH = 2.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class TimerConfig(Settings):
    """The timers of devices. Used with `sampling='timer'`.

    Example:
      >>> SamplingConfig(sampling='timer', devices=TimerConfig(timer_hours=24)).devices.timer_hours
      24.0
    """

    timer_hours: float = setting(
        72.0,
        'Hours from one report of a device until it may take part again.',
        minimum=0,
        maximum=24 * 365,
        needs={'sampling': ('timer',)},
    )


class Windows:
    """The windows of all devices on all days, computed on demand.

    Devices are numbered in the order in which their windows usually open. Window d N + i is that of
    device i of N on day d, so the windows that may be open at a given time have consecutive
    numbers. All randomness comes from a hash of the number: a window is the same whenever it is
    computed.

    Args:
      population: number of devices N.
      key: key of the hash, an integer within [0, 2^64).
    """

    def __init__(self, population: int, key: int):
        self._population = population
        self._key = np.uint64(key)
        self._edges = np.linspace(0.0, _DAY, _MINUTES + 1)
        self._opened = _cumulative_share()
        middles = (np.arange(_GROUPS) + 0.5) / _GROUPS
        self._usual = np.interp(middles, self._opened, self._edges)

    def reach(self, start: float, end: float) -> tuple[int, int]:
        """Numbers [low, high) of the windows that may be open between two times.

        Args:
          start, end: hours since the beginning of day 0; end - start at most `LONGEST_REACH`.
        """
        longest = _WINDOW_HOURS * (1 + _LENGTH_SPREAD)
        group = self._population // _GROUPS + 2
        low = self._number(start - longest - _JITTER_HOURS)
        high = self._number(end + _JITTER_HOURS)
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
        exist = np.flatnonzero(_uniform(bits, 0) < _ELIGIBLE_SHARE)
        bits, numbers = bits[exist], numbers[exist]
        days = numbers // self._population
        groups = (numbers - days * self._population) * _GROUPS // self._population
        opens = days * _DAY + self._usual[groups]
        opens += _JITTER_HOURS * (2 * _uniform(bits, 1) - 1)
        length = _WINDOW_HOURS * (1 + _LENGTH_SPREAD * (2 * _uniform(bits, 2) - 1))
        return exist, opens, opens + length

    def _number(self, hours: float) -> float:
        """Number of the window that usually opens at a time; may be a fraction."""
        day, hour = divmod(hours, _DAY)
        return self._population * (day + float(np.interp(hour, self._edges, self._opened)))


def _cumulative_share() -> np.ndarray:
    """Share of the windows that have opened by each minute of the day, [1441]."""
    middles = (np.arange(_MINUTES) + 0.5) * _DAY / _MINUTES
    zones = np.linspace(-0.5, 0.5, 49) * _TIME_ZONE_HOURS
    away = (middles[:, None] - _EVENING - zones + _DAY / 2) % _DAY - _DAY / 2
    evening = np.exp(-0.5 * (away / _EVENING_SPREAD) ** 2).sum(axis=1)
    density = (1 - _DAYTIME_SHARE) * evening / evening.sum()
    density += _DAYTIME_SHARE / _MINUTES
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


_SECONDS = 3600  # In an hour.
# The time at which a busy device becomes free: never.
BUSY = np.iinfo(np.int32).max
# If less than this share of the candidates is ready, the ready ones are listed instead of guessed.
_LISTING_SHARE = 0.08
# Hours for which the rate of guesses is held constant.
_STEP = 0.5
# Limit on the guesses drawn at a time.
_MOST = 2**18
# Guesses needed to estimate the share of right ones.
_GUESSES_FOR_ESTIMATE = 50


class CheckIns:
    """The stream of devices that check in: eligible, with an expired timer, not busy.

    Each device checks in at random times (a Poisson process), and a check-in counts if the device
    can take part at that time. So check-ins are guessed by drawing from all windows that may be
    open, and the guesses whose device cannot take part are rejected. The work is proportional to
    the cohort, not to the population. If nearly all guesses would be rejected, the ready devices
    are listed first, and guesses are drawn from the list.

    Args:
      windows: when devices are eligible.
      population: number of devices.
      generator: source of randomness.
    """

    def __init__(
        self,
        windows: Windows,
        population: int,
        generator: np.random.Generator,
    ):
        self._windows = windows
        self._generator = generator
        # The time from which each device can take part again, in seconds.
        self._free_at = np.zeros(population, np.int32)
        # Estimated share of right guesses: among all windows, and within the list.
        self._share = 1.0
        self._listed_share = 0.5
        self._listed, self._listed_until = np.zeros(0, np.int64), 0.0

    def occupy(self, devices: np.ndarray) -> None:
        """Marks devices as busy: they do not check in until `free` is called."""
        self._free_at[devices] = BUSY

    def free(self, devices: np.ndarray, hours: np.ndarray | float) -> None:
        """Lets devices check in again from the given times on, rounded up to seconds.

        The clock ends after 68 years. A device with a later time never checks in again.
        """
        self._free_at[devices] = np.minimum(np.ceil(np.multiply(hours, _SECONDS)), BUSY)

    def upcoming(self, most: int, now: float) -> tuple[np.ndarray, np.ndarray, float]:
        """The next devices that check in: at most `most`, within at most half an hour from now.

        Returns:
          The devices, int64 [m]; the times of their check-ins in hours, increasing, float64 [m];
          and the time up to which the list is complete.
        """
        end = _next_multiple(now, _STEP)
        low, high = self._windows.reach(now, end)
        listed = self._ready(now) if self._share < _LISTING_SHARE else None
        candidates = high - low if listed is None else listed.size
        if not candidates:
            return np.zeros(0, np.int64), np.zeros(0), end
        rate = candidates / (_CHECK_IN_MINUTES / 60)
        share = self._share if listed is None else self._listed_share
        guesses = (
            int(min(1.1 * most / share, 1.1 * rate * (end - now), _MOST)) + _GUESSES_FOR_ESTIMATE
        )
        times = now + np.cumsum(self._generator.exponential(1 / rate, guesses))
        until = min(float(times[-1]), end)
        times = times[times <= until]
        picks = self._generator.integers(candidates, size=guesses)[: times.size]
        devices, able = self._able(low + picks if listed is None else listed[picks], times)
        if times.size >= _GUESSES_FOR_ESTIMATE and listed is not None:
            self._listed_share = max(able.size / times.size, 0.01)
        elif times.size >= _GUESSES_FOR_ESTIMATE:
            self._share = max(able.size / times.size, 0.01)
        if devices.size >= most:
            devices, able = devices[:most], able[:most]
            until = float(able[-1])
        return devices, able, until

    def _able(self, numbers: np.ndarray, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Devices whose window is open at the given time and that are free then, each once.

        Args:
          numbers: numbers of windows, int64 [m].
          times: a time for each window, in hours, increasing, float64 [m].

        Returns:
          Devices int64 [d], and their first such times in hours, float64 [d].
        """
        devices = numbers % self._free_at.size
        free = self._free_at[devices] <= times * _SECONDS
        numbers, devices, times = numbers[free], devices[free], times[free]
        exist, opens, closes = self._windows.hours(numbers)
        devices, times = devices[exist], times[exist]
        able = np.flatnonzero((opens <= times) & (times < closes))
        first = able[np.sort(np.unique(devices[able], return_index=True)[1])]
        return devices[first], times[first]

    def _ready(self, now: float) -> np.ndarray:
        """Numbers of windows that are or become open soon, and whose devices are free by then.

        The list is reused for up to two hours. A device that is released in between without having
        taken part enters the next list.
        """
        if now >= self._listed_until:
            end = _next_multiple(now, LONGEST_REACH)
            low, high = self._windows.reach(now, end)
            numbers = low + np.flatnonzero(self._free_from(low, high) <= end * _SECONDS)
            exist, opens, closes = self._windows.hours(numbers)
            self._listed = numbers[exist][(opens <= end) & (closes > now)]
            self._share = self._listed.size / (high - low)
            self._listed_until = end
        return self._listed

    def _free_from(self, low: int, high: int) -> np.ndarray:
        """Times from which the devices of the windows [low, high) can take part, in seconds."""
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


# Separates this random stream from the others that a run derives from the same seed.
_STREAM = 0x706F7075
_PATIENCE_DAYS = 60


class Round(NamedTuple):
    """A round that has closed.

    Attributes:
      clients: the clients whose reports were aggregated, int64 [clients_per_round].
      start_hours: when the server opened it, from midnight (UTC) of the first day.
      duration_hours: time until the report goal was reached.
      selected: number of devices that were asked to train.
      dropped: those of them that dropped out before the round closed.
    """

    clients: np.ndarray
    start_hours: float
    duration_hours: float
    selected: int
    dropped: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Population(TimerConfig):
    """A population of devices and the server that runs rounds with them.

    Devices are the clients 0 .. population - 1, in random order.
    """

    population: int = setting(
        dataclasses.MISSING, 'Number of devices.', minimum=1, maximum=2**31 - 1
    )
    clients_per_round: int = setting(dataclasses.MISSING, 'The report goal.')
    seed: int = setting(0, 'Of everything random.', minimum=0)

    def check(self) -> None:
        """Checks that there are enough devices for a round."""
        _validate.integer(
            'clients_per_round', self.clients_per_round, minimum=1, maximum=self.population
        )

    def rounds(self) -> Iterator[Round]:
        """An endless stream of rounds; every call yields the same ones.

        Takes 4 bytes of memory per device. The time per round grows with the cohort.

        Raises:
          ValueError: if a round cannot be filled within 60 days.
        """
        generator = np.random.default_rng([_STREAM, self.seed])
        key = int(generator.integers(2**64, dtype=np.uint64))
        windows = Windows(self.population, key)
        stride, shift = _affine(generator, self.population)
        check_ins = CheckIns(windows, self.population, generator)
        start = 0.0
        while True:
            closed = self._round(check_ins, generator, start)
            yield closed._replace(clients=(closed.clients * stride + shift) % self.population)
            start += closed.duration_hours + _SERVER_MINUTES / 60

    def _round(self, check_ins: CheckIns, generator: np.random.Generator, start: float) -> Round:
        """Runs one round. Its clients are numbered as in `CheckIns`."""
        goal, now = self.clients_per_round, start
        devices, begun = np.zeros(0, np.int64), np.zeros(0)
        ended, drops = np.zeros(0), np.zeros(0, bool)
        asked = math.ceil(_OVER_SELECTION * goal)
        while True:
            if now > start + 24 * _PATIENCE_DAYS:
                raise errors.ArgumentError(
                    'clients_per_round',
                    goal,
                    f'was not reached within {_PATIENCE_DAYS} days of '
                    f'population={self.population}, must be smaller',
                )
            new, at, now = check_ins.upcoming(asked - devices.size, now)
            takes = np.exp(_CLIENT_SPREAD * generator.standard_normal(new.size))
            finish = at + _CLIENT_MINUTES / 60 * takes
            drop = generator.random(new.size) < _DROP_OUT
            check_ins.occupy(new[~drop])
            check_ins.free(new[drop], finish[drop])
            devices, begun = np.append(devices, new), np.append(begun, at)
            ended, drops = np.append(ended, finish), np.append(drops, drop)
            reports = np.flatnonzero(~drops)
            complete = devices.size == asked
            if reports.size >= goal and (complete or np.sum(ended[reports] <= now) >= goal):
                break
            if complete:
                asked += math.ceil(_OVER_SELECTION * (goal - reports.size))
                now = max(now, float(ended.max()))
        reports = reports[np.argpartition(ended[reports], goal - 1)]
        aggregated, late = reports[:goal], reports[goal:]
        end = float(ended[aggregated[-1]])
        check_ins.free(devices[late], end)
        check_ins.free(devices[begun > end], end)  # Never selected.
        check_ins.free(devices[aggregated], ended[aggregated] + self.timer_hours)
        return Round(
            clients=devices[aggregated],
            start_hours=start,
            duration_hours=end - start,
            selected=int((begun <= end).sum()),
            dropped=int((drops & (ended <= end)).sum()),
        )


def _affine(generator: np.random.Generator, size: int) -> tuple[int, int]:
    """Numbers (a, b) such that i -> (a i + b) mod size renames 0 .. size - 1."""
    shift = int(generator.integers(size))
    while True:
        stride = int(generator.integers(1, size + 1))
        if math.gcd(stride, size) == 1:
            return stride, shift


@dataclasses.dataclass(frozen=True, eq=False)
class PopulationRun:
    """Cohorts and times of the rounds of a run.

    Attributes:
      log: which clients took part in each round.
      start_hours: when each round was opened, from midnight (UTC) of the first day, [rounds].
      duration_hours: how long each round was open, [rounds].
    """

    log: ParticipationLog
    start_hours: np.ndarray
    duration_hours: np.ndarray

    @property
    def days(self) -> float:
        """Days from the start of the first round to the end of the last one."""
        return float(self.start_hours[-1] + self.duration_hours[-1] - self.start_hours[0]) / 24

    @property
    def times(self) -> RoundTimes:
        """When the rounds were opened, and the last one closed.

        Raises:
          ArgumentError: if there is only one round.
        """
        end = float(self.start_hours[-1] + self.duration_hours[-1])
        return RoundTimes.from_hours(self.start_hours, end)


def simulate(population: Population, rounds: int, *, progress: bool = False) -> PopulationRun:
    """Simulates the first rounds of a population.

    Args:
      population: the devices and the server.
      rounds: number of rounds, at least 1.
      progress: show a bar with rounds and simulated days on standard error.

    Raises:
      ValueError: if `rounds` is out of its range, or a round cannot be filled.
    """
    _validate.integer('rounds', rounds, minimum=1, maximum=_validate.MOST_ROUNDS)
    log, closed = ParticipationLog(), []
    with _progress.bar(total=rounds, unit='round', disable=not progress) as bar:
        for done in itertools.islice(population.rounds(), rounds):
            log.append(done.clients)
            closed.append((done.start_hours, done.duration_hours))
            bar.set_postfix(days=f'{done.start_hours / 24:.1f}', refresh=False)
            bar.update()
    start, duration = map(np.array, zip(*closed, strict=True))
    return PopulationRun(log, start, duration)
