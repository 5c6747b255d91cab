"""A population of devices with timers: who takes part in which round, and how long rounds take.

The server opens a round and selects `over_selection` times as many devices as the report goal. A
device can check in if it is eligible (`availability`), its timer has expired, and it is not busy.
Such a device checks in at random times, every `check_in_minutes` on average. A selected device
trains at once, for a time that differs between devices, and then reports, unless it drops out. The
report that reaches the goal closes the round. The next round starts when the server is ready.

A device takes part in a round if its update is aggregated, that is, if its report counts towards
the goal. Only these devices are in the log, and their timers restart when they report. A device
that drops out, or reports after the round has closed, has not taken part: nothing derived from its
data is released. It may check in again. If all selected devices have reported or dropped out and
the goal is not reached, the server selects more: `over_selection` times as many as are missing.

Sources: report goals of 6500, populations of 0.8 to 16.6 million devices and timers of 24 to 144
hours are those of [Xu23], tables 1 and 2, and of [Xu23-accounting]. A timer of three days is the
example of [McMahan24], section 1. Selecting 130 % of the goal, and drop-outs of 6 to 10 %, are from
[Bonawitz19], the system that ran these trainings. [Xu23], table 1 gives the number of rounds within
a timer period: a round takes 6 to 10 minutes where devices are plenty (pt-BR: 909 rounds in 144
hours); where they are scarce, a device pauses for another 1.5 to 3 days after its timer has expired
(de-DE: 3.24 million devices reported 212 x 6500 times in 48 hours). The default times and the
default eligibility follow from these.
"""

import dataclasses
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dpfl import _validate, errors
from dpfl.simulation import availability
from dpfl.simulation.check_ins import CheckIns

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
class Population:
    """A population of devices and the server that runs rounds with them.

    Attributes:
      population: number of devices; as clients they are 0 .. population - 1, in random order.
      clients_per_round: the report goal.
      timer_hours: the least time between two participations of a device.
      over_selection: number of selected devices, divided by the report goal; at least 1.
      drop_out: probability that a selected device does not report.
      check_in_minutes: average time from one check-in of an eligible device to the next.
      client_minutes: median time from check-in to report (log-normal).
      client_spread: standard deviation of the logarithm of that time.
      server_minutes: time from the end of a round to the start of the next one.
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
        """An endless stream of rounds; every call yields the same ones.

        Takes 4 bytes of memory per device. The time per round grows with the cohort.

        Raises:
          ValueError: if a round cannot be filled within 60 days.
        """
        generator = np.random.default_rng([_STREAM, self.seed])
        key = int(generator.integers(2**64, dtype=np.uint64))
        windows = availability.Windows(self.habits, self.population, key)
        stride, shift = _affine(generator, self.population)
        check_ins = CheckIns(windows, self.population, self.check_in_minutes / 60, generator)
        start = 0.0
        while True:
            closed = self._round(check_ins, generator, start)
            yield closed._replace(clients=(closed.clients * stride + shift) % self.population)
            start += closed.duration_hours + self.server_minutes / 60

    def _round(self, check_ins: CheckIns, generator: np.random.Generator, start: float) -> Round:
        """Runs one round. Its clients are numbered as in `check_ins`."""
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
            new, at, now = check_ins.upcoming(asked - devices.size, now)
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
