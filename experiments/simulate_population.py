r"""Simulates devices with timers and availability: who takes part in which round, and for how long.

Example: the Brazilian model of [Xu23], table 1 (MinS 909, MaxP 3),

  dpfl simulate_population --population=16600000 --clients_per_round=6500 \
    --rounds=3600 --timer_hours=144 --output=participation.npz --plot=population.png

Example: the separation that a timer ensures, and the gain from a larger report goal ([Xu23], figure
4; with a BLT [McMahan24], figure 8),

  dpfl simulate_population --population=3000000 --rounds=2000 --timer_hours=144 \
    --vary=clients_per_round --values=3000,6500,12000 --mechanism=blt_b400 --plot=goals.png

With --log, the log of a run is described instead of a simulation. `rounds_between` is MinS of the
papers, the number of rounds strictly between two participations: min_separation less one.
"""

import functools
import json
import pathlib
from typing import Any

from absl import flags

from dpfl import ParticipationLog, _setting_texts
from dpfl.cli.command import command_line, program
from dpfl.cli.flags import output_flags
from dpfl.cli.flags.settings_flags import SettingsFlags
from dpfl.cli.results import simulated_population
from dpfl.mechanisms import registry
from dpfl.reporting import plain_text
from dpfl.simulation.population import DeviceConfig
from dpfl.simulation.training.mechanism import MechanismConfig
from dpfl.simulation.training.privacy_config import NoiseConfig
from dpfl.simulation.training.round_config import SamplingConfig

_SAMPLING = SettingsFlags(
    SamplingConfig,
    only=('rounds', 'population', 'clients_per_round'),
    defaults={'population': 4_210_000, 'clients_per_round': 6500},
    help={
        'population': 'Number of devices; the default is that of es-ES in [Xu23], table 1.',
        'clients_per_round': 'Report goal: number of reports that are aggregated in each round.',
    },
)
_DEVICES = SettingsFlags(DeviceConfig)
_SEED = SettingsFlags(output_flags.SeedConfig)
_SWEEP = SettingsFlags(
    output_flags.SweepConfig,
    choices={'vary': ('timer_hours', 'clients_per_round', 'population')},
    help={
        'vary': 'Simulate with each of --values for this flag. The noise multiplier grows in '
        'proportion to the clients per round, which keeps the utility ([Xu23], section 2.2).',
        'values': 'Values for the flag of --vary, comma-separated.',
    },
)
_MECHANISM = SettingsFlags(
    MechanismConfig,
    only=('mechanism',),
    help={
        'mechanism': 'Also print rho of a mechanism without parameters, such as tree, or of a '
        'strategy: a name in dpfl/strategies or a file. One rho is for the schema that the log '
        'satisfies, the other for the participation patterns in the log.'
    },
)
_NOISE = SettingsFlags(
    NoiseConfig,
    only=('noise_multiplier',),
    defaults={'noise_multiplier': 7.0},
    help={
        'noise_multiplier': 'Noise multiplier of --mechanism with --clients_per_round; 7 in [Xu23].'
    },
)
_LOG = flags.DEFINE_string(
    'log', None, 'Participation log (.npz) to describe instead of a simulation.'
)
_OUTPUT = SettingsFlags(
    output_flags.OutputConfig, help={'output': 'File for the participation log (.npz).'}
)
_PLOT = SettingsFlags(output_flags.PlotConfig)
_FORMAT = SettingsFlags(output_flags.FormatConfig)


def main() -> None:
    """Simulates, or reads a log; prints the statistics and draws them."""
    output, plot = _OUTPUT.read().output, _PLOT.read().plot
    command_line.check_writable(output, plot)
    if output is not None and pathlib.Path(output).suffix != '.npz':  # Others are logs of rows.
        raise command_line.UsageError(f'--output={output}: must end in .npz')
    vary, is_json = _SWEEP.read().vary, _FORMAT.read().format == 'json'
    values: Any
    report = ''
    with command_line.refusing_bad_values():
        noise = simulated_population.Noise(
            mechanism=_MECHANISM.values()['mechanism'],
            multiplier=_NOISE.values()['noise_multiplier'],
        )
        if _LOG.value is not None:
            command_line.refuse_others('log', 'mechanism', 'noise_multiplier', 'plot', 'format')
            values, draw = simulated_population.described(_LOG.value, noise)
        else:
            simulation = simulated_population.Simulation(
                sampling=_SAMPLING.read(),
                devices=_DEVICES.read(),
                seed=_SEED.read().seed,
                noise=noise,
            )
            if vary is not None:
                if output is not None:
                    raise command_line.UsageError('--output: cannot be combined with --vary')
                values, draw = simulation.sweep(vary, _values(vary))
            else:
                values, done = simulation.run({})
                draw = functools.partial(simulated_population.draw, done)
                _save(done.log, output)
                report = _report_command(values, output)
    if plot is not None:
        command_line.save_plot(draw(), plot)
    if is_json:
        print(json.dumps(values))
    elif isinstance(values, list):
        print(plain_text.columns([simulated_population.short(row, str(vary)) for row in values]))
    else:
        print(simulated_population.text(values))
        print(report, end='')


def _report_command(values: dict[str, Any], output: str | None) -> str:
    """The command that reports the guarantee of the log that was written."""
    if output is None:
        return ''
    given = {
        'participation_log': output,
        'rounds': values['rounds'],
        'clients_per_round': values['clients_per_round'],
        'min_separation': values['min_separation'],
        'max_participations': values['max_participations'],
        'mechanism': values.get('mechanism', 'tree'),
        **_strategy(),
        'noise_multiplier': values.get('noise_multiplier', _NOISE.values()['noise_multiplier']),
    }
    return (
        'The guarantee of a run with this log, for a mechanism of your choice:\n'
        f'{program.command("report_privacy", *_setting_texts.flags(given))}\n'
    )


def _strategy() -> dict[str, str]:
    """The strategy of --mechanism, for commands that have a flag of its own for it."""
    name = _MECHANISM.values()['mechanism']
    return {} if name is None or name in registry.ENTRIES else {'strategy': name}


def _save(log: ParticipationLog, output: str | None) -> None:
    if output is None:
        return
    try:
        log.save(output)
    except OSError as error:
        raise command_line.UsageError(f'--output={output}: {error.strerror}') from None


def _values(vary: str) -> list[int | float]:
    texts = _SWEEP.read().values
    if not texts:
        raise command_line.UsageError('--values: must be given with --vary')
    kind = float if vary == 'timer_hours' else int
    try:
        return [kind(text) for text in texts]
    except ValueError:
        raise command_line.UsageError(
            f'--values={",".join(texts)}: must be comma-separated '
            f'{"numbers" if kind is float else "integers"}'
        ) from None


if __name__ == '__main__':
    command_line.run(main)
