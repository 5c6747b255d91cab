r"""Simulates devices with timers and availability: who takes part in which round, and for how long.

Example: the Brazilian model of [Xu23], table 1 (MinS 909, MaxP 3),

  dpfl simulate_population --population=16600000 --clients_per_round=6500 \
    --rounds=3600 --timer_hours=144 --output=participation.npz

`rounds_between` is MinS of the papers, the number of rounds strictly between two participations:
min_separation less one. The command that reports the guarantee of a run with the log is printed.
"""

import pathlib
from typing import Any

import numpy as np

from dpfl.cli.command import command_line, program
from dpfl.cli.flags import output_flags
from dpfl.cli.flags.settings_flags import SettingsFlags
from dpfl.reporting import plain_text
from dpfl.simulation.population import Population, PopulationRun, TimerConfig, simulate
from dpfl.simulation.training.round_config import SamplingConfig, required

_SAMPLING = SettingsFlags(
    SamplingConfig,
    only=('rounds', 'population', 'clients_per_round'),
    defaults={'population': 4_210_000, 'clients_per_round': 6500},
    help={
        'population': 'Number of devices; the default is that of es-ES in [Xu23], table 1.',
        'clients_per_round': 'Report goal: number of reports that are aggregated in each round.',
    },
)
_TIMER = SettingsFlags(TimerConfig)
_SEED = SettingsFlags(output_flags.SeedConfig)
_OUTPUT = SettingsFlags(
    output_flags.OutputConfig, help={'output': 'File for the participation log (.npz).'}
)
_FORMAT = SettingsFlags(output_flags.FormatConfig)


def main() -> None:
    """Simulates, writes the log, and prints the statistics."""
    output = _OUTPUT.read().output
    command_line.check_writable(output, None)
    if output is not None and pathlib.Path(output).suffix != '.npz':  # Others are logs of rows.
        raise command_line.UsageError(f'--output={output}: must end in .npz')
    sampling = _SAMPLING.read()
    with command_line.refusing_bad_values():
        devices = Population(
            population=required(sampling, 'population'),
            clients_per_round=sampling.clients_per_round,
            timer_hours=_TIMER.read().timer_hours,
            seed=_SEED.read().seed,
        )
        done = simulate(devices, required(sampling, 'rounds'), progress=True)
        values = statistics(devices, done)
    if output is not None:
        with command_line.naming('output', output):
            done.log.save(output)
    shown = {name: value for name, value in values.items() if name != 'separations'}
    counts = values['participations'].items()
    shown['participations'] = ', '.join(f'{count}: {clients}' for count, clients in counts)
    text = plain_text.table(shown)
    if output is not None:
        limits = ('rounds', 'clients_per_round', 'min_separation', 'max_participations')
        given = [f'--{name}={values[name]}' for name in limits]
        given += [f'--participation_log={output}', '--mechanism=tree', '--noise_multiplier=7']
        text += (
            '\nThe guarantee of a run with this log, for a mechanism of your choice:\n'
            f'{program.command("report_privacy", *given)}'
        )
    output_flags.show(_FORMAT, values, text)


def statistics(devices: Population, done: PopulationRun) -> dict[str, Any]:
    """What is said of a simulated population."""
    seen, counted = done.log.observed(), done.log.statistics()
    return {
        'population': devices.population,
        'clients_per_round': devices.clients_per_round,
        'timer_hours': devices.timer_hours,
        # A larger separation leaves too few clients for some round ([Xu23], section 2.2).
        'largest_separation': devices.population // devices.clients_per_round,
        'rounds': done.log.rounds,
        'clients': counted.clients,
        'min_separation': seen.min_separation,
        'rounds_between': seen.min_separation - 1,
        'max_participations': seen.max_participations,
        'participations': counted.participations,
        'separations': counted.separations,
        'days': done.days,
        'rounds_per_day': done.log.rounds / done.days,
        # Over every window of that length, not over calendar days, which can all have more.
        'fewest_rounds_in_timer': _fewest(done, devices.timer_hours),
        'median_minutes': 60 * float(np.median(done.duration_hours)),
    }


def _fewest(done: PopulationRun, hours: float) -> int | None:
    """Fewest rounds that were opened in a window; None if there is no timer or whole window."""
    if done.log.rounds < 2 or not 0 < hours <= done.times.hours:
        return None
    return done.times.fewest_rounds(hours)


if __name__ == '__main__':
    command_line.run(main)
