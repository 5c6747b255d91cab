"""Statistics of a participation log or a simulated population, as values and as text."""

import math
from typing import Any

import numpy as np

from dpfl import ParticipationLog, mechanisms
from dpfl.mechanisms.sensitivities import pattern_sensitivity
from dpfl.participation import LogStatistics
from dpfl.reporting import plain_text
from dpfl.simulation import population
from dpfl.simulation.population import Population


def of_simulation(
    devices: Population,
    done: population.PopulationRun,
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
        **of_log(done.log, done.log.statistics(), mechanism, noise_multiplier),
        'days': done.days,
        'rounds_per_day': done.log.rounds / done.days,
        # Over every window of that length, not over calendar days, which can all have more.
        'fewest_rounds_in_24_hours': _fewest(done, 24.0),
        'fewest_rounds_in_timer': _fewest(done, devices.timer_hours),
        'minutes_per_round': _minutes(60 * done.duration_hours),
        'minutes_by_hour': [None if math.isnan(m) else m for m in done.minutes_by_hour().tolist()],
        'dropped_share': float(done.dropped.sum() / done.selected.sum()),
    }


def of_log(
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


def _fewest(done: population.PopulationRun, hours: float) -> int | None:
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
