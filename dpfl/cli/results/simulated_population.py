"""Simulates a population of devices, or reads a participation log; returns values and a plot."""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dpfl import ParticipationLog, mechanisms
from dpfl.cli.results import population_values
from dpfl.errors import ArgumentError
from dpfl.mechanisms import registry
from dpfl.simulation.population import DeviceConfig, Population, PopulationRun, simulate
from dpfl.simulation.training.mechanism import load_strategy
from dpfl.simulation.training.sampling_config import SamplingConfig, required

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Draw = Callable[[], 'Figure']


@dataclasses.dataclass(frozen=True, kw_only=True)
class Noise:
    """The mechanism whose guarantee is computed, and its noise.

    Attributes:
      mechanism: Name of a mechanism without parameters, or of a strategy; None for no guarantee.
      multiplier: Noise multiplier.
    """

    mechanism: str | None
    multiplier: float

    def __post_init__(self) -> None:
        if not 0 < self.multiplier < math.inf:
            raise ArgumentError('noise_multiplier', self.multiplier, 'must be a finite number > 0')

    def over(self, rounds: int) -> mechanisms.Mechanism | None:
        """The mechanism over a number of rounds."""
        if self.mechanism is None:
            return None
        entry = registry.ENTRIES.get(self.mechanism)
        if entry is not None and () in entry.ways:
            return entry.construct(rounds)
        return load_strategy(self.mechanism, 'mechanism').with_rounds(rounds)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Simulation:
    """A simulation of devices with timers and availability.

    Attributes:
      sampling: Rounds, population and clients per round.
      devices: Habits of the devices.
      seed: Seed of the simulation.
      noise: Mechanism and noise.
    """

    sampling: SamplingConfig
    devices: DeviceConfig
    seed: int
    noise: Noise

    def run(self, changed: Mapping[str, Any]) -> tuple[dict[str, Any], PopulationRun]:
        """Simulates all rounds, and returns the statistics and the rounds.

        The noise multiplier grows in proportion to the clients per round.

        Args:
          changed: Other values for population, clients_per_round or timer_hours, by name.

        Raises:
          ArgumentError: If a value is missing or not allowed.
        """
        rounds, cohort = required(self.sampling, 'rounds'), self.sampling.clients_per_round
        mechanism = self.noise.over(rounds)
        population = self._population(changed)
        done = simulate(population, rounds, progress=True)
        noise_multiplier = self.noise.multiplier * population.clients_per_round / cohort
        values = population_values.of_simulation(population, done, mechanism, noise_multiplier)
        return values, done

    def sweep(self, vary: str, values: Sequence[float]) -> tuple[list[dict[str, Any]], Draw]:
        """Statistics of a simulation for each value of a quantity, and their plot."""
        for value in values:  # Checks all values before the long part begins.
            self._population({vary: value})
        rows = [self.run({vary: value})[0] for value in values]
        return rows, functools.partial(_draw, 'separations', rows, vary)

    def _population(self, changed: Mapping[str, Any]) -> Population:
        """The population with other values for some settings."""
        values = {
            **self.devices.flat(),
            'population': self.sampling.population,
            'clients_per_round': self.sampling.clients_per_round,
            **changed,
        }
        return Population(**values, seed=self.seed)


def described(path: str, noise: Noise) -> tuple[dict[str, Any], Draw]:
    """Statistics of the participation log in a file, and their plot.

    Raises:
      ValueError: If the file is not a participation log, or the log has no clients.
    """
    log = ParticipationLog.load(path)
    if not log.cohort_sizes.any():
        raise ArgumentError('log', path, 'must hold at least one client')
    statistics = log.statistics()
    values = population_values.of_log(log, statistics, noise.over(log.rounds), noise.multiplier)
    return values, functools.partial(
        _draw, 'participation', statistics.participations, statistics.separations
    )


def draw(done: PopulationRun) -> 'Figure':
    """The plot of one simulation."""
    statistics = done.log.statistics()
    return _draw(
        'participation',
        statistics.participations,
        statistics.separations,
        start_hours=done.start_hours,
        duration_hours=done.duration_hours,
    )


def _draw(name: str, *values: Any, **more: Any) -> 'Figure':
    """The figure that a function of `dpfl.reporting.plots` makes."""
    from dpfl.reporting import plots  # matplotlib takes a second to import.

    return getattr(plots, name)(*values, **more)
