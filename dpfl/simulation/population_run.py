"""Simulates many rounds with a population: participation log and durations."""

import dataclasses
import itertools

import numpy as np

from dpfl import _progress, _validate
from dpfl.participation import ParticipationLog, RoundTimes
from dpfl.simulation.population import Population


@dataclasses.dataclass(frozen=True, eq=False)
class PopulationRun:
    """What happened in the rounds of a run.

    Attributes:
      log: which clients took part in each round.
      start_hours: when each round was opened, from midnight (UTC) of the first day, [rounds].
      duration_hours: how long each round was open, [rounds].
      selected: devices that were asked to train in each round, int64 [rounds].
      dropped: those of them that dropped out before the round closed, int64 [rounds].
    """

    log: ParticipationLog
    start_hours: np.ndarray
    duration_hours: np.ndarray
    selected: np.ndarray
    dropped: np.ndarray

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

    def minutes_by_hour(self) -> np.ndarray:
        """Median minutes of the rounds opened in each hour of the day, [24]; NaN if none."""
        hour = (self.start_hours % 24).astype(np.int64)
        minutes = 60 * self.duration_hours
        return np.array(
            [np.median(minutes[hour == h]) if (hour == h).any() else np.nan for h in range(24)]
        )


def run(population: Population, rounds: int, *, progress: bool = False) -> PopulationRun:
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
        for one in itertools.islice(population.rounds(), rounds):
            log.append(one.clients)
            closed.append((one.start_hours, one.duration_hours, one.selected, one.dropped))
            bar.set_postfix(days=f'{one.start_hours / 24:.1f}', refresh=False)
            bar.update()
    start, duration, selected, dropped = map(np.array, zip(*closed, strict=True))
    return PopulationRun(log, start, duration, selected, dropped)
