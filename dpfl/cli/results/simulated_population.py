"""Simulates a population of devices, or reads a participation log; returns values and a plot."""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dpfl import ParticipationLog, mechanisms
from dpfl.errors import ArgumentError, renaming
from dpfl.mechanisms import registry
from dpfl.mechanisms.sensitivities import pattern_sensitivity
from dpfl.participation import LogStatistics
from dpfl.reporting import plain_text
from dpfl.simulation.population import DeviceConfig, Population, PopulationRun, simulate
from dpfl.simulation.training.mechanism import PLAIN, load_strategy
from dpfl.simulation.training.round_config import SamplingConfig, required

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
        if self.mechanism in PLAIN:
            return registry.ENTRIES[self.mechanism].construct(rounds)
        return load_strategy(self.mechanism, 'mechanism', PLAIN).with_rounds(rounds)


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
        values = _of_simulation(population, done, mechanism, noise_multiplier)
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
    with renaming(participation_log='log'):
        log = ParticipationLog.load(path)
    if not log.cohort_sizes.any():
        raise ArgumentError('log', path, 'must hold at least one client')
    statistics = log.statistics()
    values = _of_log(log, statistics, noise.over(log.rounds), noise.multiplier)
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


def _of_simulation(
    devices: Population,
    done: PopulationRun,
    mechanism: mechanisms.Mechanism | None,
    noise_multiplier: float,
) -> dict[str, Any]:
    """Statistics of a simulated population.

    Args:
      devices: The population.
      done: Its rounds.
      mechanism: Mechanism over the same number of rounds; None for no guarantee.
      noise_multiplier: Noise multiplier of the mechanism.
    """
    return {
        'population': devices.population,
        'clients_per_round': devices.clients_per_round,
        'timer_hours': devices.timer_hours,
        # A larger separation leaves too few clients for some round ([Xu23], section 2.2).
        'largest_separation': devices.population // devices.clients_per_round,
        **_of_log(done.log, done.log.statistics(), mechanism, noise_multiplier),
        'days': done.days,
        'rounds_per_day': done.log.rounds / done.days,
        # Over every window of that length, not over calendar days, which can all have more.
        'fewest_rounds_in_24_hours': _fewest(done, 24.0),
        'fewest_rounds_in_timer': _fewest(done, devices.timer_hours),
        'minutes_per_round': _minutes(60 * done.duration_hours),
        'minutes_by_hour': [None if math.isnan(m) else m for m in done.minutes_by_hour().tolist()],
        'dropped_share': float(done.dropped.sum() / done.selected.sum()),
    }


def _of_log(
    log: ParticipationLog,
    statistics: LogStatistics,
    mechanism: mechanisms.Mechanism | None,
    noise_multiplier: float,
) -> dict[str, Any]:
    """Statistics of a log, and the guarantee of a mechanism with it."""
    seen = log.observed()
    values = {
        'rounds': log.rounds,
        'clients': statistics.clients,
        'min_separation': seen.min_separation,
        'rounds_between': seen.min_separation - 1,
        'max_participations': seen.max_participations,
        'max_per_round': statistics.max_per_round,
        'participations': statistics.participations,
        'separations': statistics.separations,
    }
    if mechanism is None:
        return values
    # A client that is listed m times in a round moves the sum of the round by m clip norms.
    by_schema = mechanism.sensitivity_bound(seen).squared * log.max_per_round**2
    by_log = pattern_sensitivity.of_log(mechanism, log)
    return values | {
        'mechanism': mechanism.name,
        'noise_multiplier': noise_multiplier,
        'sensitivity_of_schema': math.sqrt(by_schema),
        'sensitivity_of_log': math.sqrt(by_log.squared),
        'sensitivity_of_log_is_exact': by_log.is_exact,
        'rho_of_schema': by_schema / (2 * noise_multiplier**2),
        'rho_of_log': by_log.squared / (2 * noise_multiplier**2),
    }


def _fewest(done: PopulationRun, hours: float) -> int | None:
    """Fewest rounds that were opened in a window; None if there is no timer or whole window."""
    if done.log.rounds < 2 or not 0 < hours <= done.times.hours:
        return None
    return done.times.fewest_rounds(hours)


def short(values: dict[str, Any], vary: str) -> dict[str, Any]:
    """A row in the table of simulations that differ in `vary`."""
    names = (
        vary,
        'min_separation',
        'rounds_between',
        'largest_separation',
        'max_participations',
        'noise_multiplier',
        'rho_of_schema',
        'rho_of_log',
        'days',
    )
    row = {name: values[name] for name in names if name in values}
    return {**row, 'median_minutes': values['minutes_per_round']['median']}


def text(values: dict[str, Any]) -> str:
    """The table of one simulation or of one log."""
    shown = {}
    for name, value in values.items():
        if name == 'participations':
            value = ', '.join(f'{count}: {clients}' for count, clients in value.items())
        if name == 'minutes_per_round':
            shown.update({f'minutes_per_round.{which}': m for which, m in value.items()})
        elif name not in ('separations', 'minutes_by_hour'):
            shown[name] = value
    return plain_text.table(shown)


def _minutes(minutes: np.ndarray) -> dict:
    shortest, median, most, longest = np.quantile(minutes, [0, 0.5, 0.9, 1]).tolist()
    return {
        'shortest': shortest,
        'median': median,
        'mean': float(minutes.mean()),
        'percentile_90': most,
        'longest': longest,
    }
