"""Devices with timers and availability: who takes part in which round, and how long it takes.

Example: the Brazilian model of [Xu23], table 1 (MinS 909, MaxP 3),

  python -m experiments.simulate_population --population=16600000 --clients_per_round=6500 \
    --rounds=3600 --timer_hours=144 --output=participation.npz --plot=population.png

how far apart a timer keeps participations, and what a larger report goal is worth ([Xu23],
figure 4; with a BLT [McMahan24], figure 8),

  python -m experiments.simulate_population --population=3000000 --rounds=2000 --timer_hours=144 \
    --vary=clients_per_round --values=3000,6500,12000 --mechanism=blt_b400 --plot=goals.png

With --log the log of a run is described in place of a simulated one. MinS of the papers, the rounds
strictly between two participations, is `rounds_between`: min_separation less one.
"""

import functools
import json
import math
import pathlib

from absl import flags
from matplotlib.figure import Figure

from dpfl import ParticipationLog, mechanisms
from dpfl.mechanisms import registry
from dpfl.reporting import plots
from dpfl.simulation import population_run
from dpfl.simulation.training.mechanism import load_strategy
from dpfl.simulation.training.privacy_config import MechanismConfig, NoiseConfig
from dpfl.simulation.training.sampling_config import DeviceConfig, SamplingConfig
from experiments.command import command_line
from experiments.flags import output_flags
from experiments.flags.settings_flags import SettingsFlags
from experiments.pages import population_values

_SAMPLING = SettingsFlags(
    SamplingConfig,
    only=('rounds', 'population', 'clients_per_round'),
    defaults={'population': 4_210_000, 'clients_per_round': 6500},
    help={
        'population': 'Number of devices; by default that of es-ES in [Xu23], table 1.',
        'clients_per_round': 'Report goal: reports that are aggregated in every round.',
    },
)
_DEVICES = SettingsFlags(DeviceConfig)
_SEED = SettingsFlags(output_flags.SeedConfig)
_SWEEP = SettingsFlags(
    output_flags.SweepConfig,
    choices={'vary': ('timer_hours', 'clients_per_round', 'population')},
    help={
        'vary': 'Simulate for each of --values of this flag. The noise multiplier grows in '
        'proportion to the clients per round, which keeps the utility ([Xu23], section 2.2).',
        'values': 'Values for --vary, comma-separated.',
    },
)
_MECHANISM = SettingsFlags(
    MechanismConfig,
    only=('mechanism',),
    help={
        'mechanism': 'Also print rho of a mechanism without parameters, such as tree, or of a '
        'strategy: a name in dpfl/strategies or a file. By the schema that the log keeps, and by '
        'the patterns in it.'
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
_LOG = flags.DEFINE_string('log', None, 'Participation log (.npz) to describe: no simulation.')
_OUTPUT = SettingsFlags(
    output_flags.OutputConfig, help={'output': 'File for the participation log (.npz).'}
)
_PLOT = SettingsFlags(output_flags.PlotConfig)
_FORMAT = SettingsFlags(output_flags.FormatConfig)


def main() -> None:
    """Simulates, or reads a log; prints what was observed, and draws it."""
    _check_files()
    vary, is_json = _SWEEP.read().vary, _FORMAT.read().format == 'json'
    if _LOG.value is not None:
        _refuse('log', 'population', 'rounds', 'vary', 'output')
        values, draw = _described()
    elif vary is not None:
        _refuse('vary', 'output')
        values, draw = _varied(vary)
    else:
        values, draw = _simulated()
    if _PLOT.read().plot is not None:
        draw().savefig(_PLOT.read().plot, dpi=120)
    if is_json:
        print(json.dumps(values))
    elif isinstance(values, list):
        print(command_line.columns([population_values.short(row, str(vary)) for row in values]))
    else:
        print(population_values.text(values))


def _described():
    """Values and plot of the log of --log."""
    with command_line.refusing_bad_values():
        log = ParticipationLog.load(_LOG.value)
        if not log.cohort_sizes.any():
            raise command_line.UsageError(f'--log={_LOG.value}: must hold at least one client')
        found = log.statistics()
        values = population_values.of_log(log, found, *_mechanism(log.rounds))
    return values, functools.partial(plots.participation, found.participations, found.separations)


def _varied(vary: str):
    """Values and plot of a simulation for each value of --vary."""
    rows = [_simulate({vary: value})[0] for value in _values(vary)]
    return rows, functools.partial(plots.separations, rows, vary)


def _simulated():
    """Values and plot of one simulation; writes its log."""
    values, done = _simulate({})
    output = _OUTPUT.read().output
    if output is not None:
        try:
            done.log.save(output)
        except OSError as error:
            raise command_line.UsageError(f'--output={output}: {error.strerror}') from None
    found = done.log.statistics()
    draw = functools.partial(
        plots.participation,
        found.participations,
        found.separations,
        start_hours=done.start_hours,
        duration_hours=done.duration_hours,
    )
    return values, draw


def _simulate(changed: dict):
    """Values of a simulation with other values for some flags, and its rounds."""
    sampling = _SAMPLING.read()
    rounds, cohort = command_line.required(sampling, 'rounds'), sampling.clients_per_round
    with command_line.refusing_bad_values():
        mechanism, noise = _mechanism(rounds)
        values = {'population': sampling.population, 'clients_per_round': cohort, **changed}
        habits = {name: values.pop(name) for name in ('timer_hours',) if name in values}
        devices = _DEVICES.read().with_values(habits).population(**values, seed=_SEED.read().seed)
        done = population_run.run(devices, rounds, progress=True)
        # Scaled with the report goal where that is varied.
        noise *= devices.clients_per_round / cohort
        return population_values.of_simulation(devices, done, mechanism, noise), done


def _mechanism(rounds: int) -> tuple[mechanisms.Mechanism | None, float]:
    """The mechanism of --mechanism over so many rounds, and its noise multiplier."""
    name, noise = _MECHANISM.values()['mechanism'], _NOISE.values()['noise_multiplier']
    if not 0 < noise < math.inf:
        raise command_line.UsageError(f'--noise_multiplier={noise}: must be a finite number > 0')
    if name is None:
        return None, noise
    entry = registry.ENTRIES.get(name)
    if entry is not None and () in entry.ways:
        return entry.construct(rounds), noise
    return load_strategy(name, 'mechanism').with_rounds(rounds), noise


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


def _refuse(name: str, *others: str) -> None:
    for other in others:
        if flags.FLAGS[other].present:
            raise command_line.UsageError(f'--{other}: cannot be combined with --{name}')


def _check_files() -> None:
    """Checks that the results can be written, before the work is done."""
    plot = _PLOT.read().plot
    for name, path in (('output', _OUTPUT.read().output), ('plot', plot)):
        if path is not None and not pathlib.Path(path).parent.is_dir():
            raise command_line.UsageError(f'--{name}={path}: must be in a directory that exists')
    kinds = Figure().canvas.get_supported_filetypes()
    if plot is not None and pathlib.Path(plot).suffix[1:] not in kinds:
        raise command_line.UsageError(
            f'--plot={plot}: must end in one of {", ".join(sorted(kinds))}'
        )


if __name__ == '__main__':
    command_line.run(main)
