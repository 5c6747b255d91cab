"""Devices with timers and availability: who takes part in which round, and how long it takes.

Example: the Brazilian model of document 000, table 1 (MinS 909, MaxP 3),

  python -m experiments.simulate_population --population=16600000 --clients_per_round=6500 \
    --rounds=3600 --timer_hours=144 --output=participation.npz --plot=population.png

how far apart a timer keeps participations, and what a larger report goal is worth (document 000,
figure 4; with a BLT document 002, figure 8),

  python -m experiments.simulate_population --population=3000000 --rounds=2000 --timer_hours=144 \
    --vary=clients_per_round --values=3000,6500,12000 --mechanism=blt_b400 --plot=goals.png

With --log the log of a run is described in place of a simulated one. MinS of the papers, the rounds
strictly between two participations, is `rounds_between`: min_separation less one.
"""

import functools
import json
import math
import pathlib

import numpy as np
from absl import flags
from matplotlib.figure import Figure

from dpfl import ParticipationLog, mechanisms
from dpfl.mechanisms.sensitivities import pattern_sensitivity
from dpfl.reporting import plots
from dpfl.simulation import population_run
from experiments.command import command_line
from experiments.flags import population_flags, strategies

_TREES = {
    'gaussian': mechanisms.Identity,
    'tree': mechanisms.BinaryTree,
    'honaker_tree': mechanisms.HonakerTree,
}

flags.adopt_module_key_flags(population_flags)
_ROUNDS = flags.DEFINE_integer('rounds', None, 'Number of rounds.')
_VARY = flags.DEFINE_enum(
    'vary',
    None,
    ['timer_hours', 'clients_per_round', 'population'],
    'Simulate for each of --values of this flag. The noise multiplier grows in proportion to the '
    'clients per round, which leaves the utility as it is (document 000, section 2.2).',
)
_VALUES = flags.DEFINE_list('values', None, 'Values for --vary, comma-separated.')
_MECHANISM = flags.DEFINE_string(
    'mechanism',
    None,
    f'Also print rho of one of {", ".join(_TREES)}, or of a strategy: a name in dpfl/strategies '
    'or a file. By the schema that the log keeps, and by the patterns in it.',
)
_NOISE_MULTIPLIER = flags.DEFINE_float(
    'noise_multiplier', 7.0, 'Noise of --mechanism with --clients_per_round; 7 in document 000.'
)
_LOG = flags.DEFINE_string('log', None, 'Participation log (.npz) to describe: no simulation.')
_OUTPUT = flags.DEFINE_string('output', None, 'File for the participation log (.npz).')
_PLOT = flags.DEFINE_string('plot', None, 'File of the plot.')
_FORMAT = flags.DEFINE_enum('format', 'text', ['text', 'json'], 'Form of the result.')


def main() -> None:
    """Simulates, or reads a log; prints what was observed, and draws it."""
    _check_files()
    if _LOG.value is not None:
        _refuse('log', 'population', 'rounds', 'vary', 'output')
        values, draw = _described()
    elif _VARY.value is not None:
        _refuse('vary', 'output')
        values, draw = _varied()
    else:
        values, draw = _simulated()
    if _PLOT.value is not None:
        draw().savefig(_PLOT.value, dpi=120)
    if _FORMAT.value == 'json':
        print(json.dumps(values))
    elif isinstance(values, list):
        print(command_line.columns([_short(row) for row in values]))
    else:
        print(_text(values))


def _described():
    """Values and plot of the log of --log."""
    with command_line.refusing_bad_values():
        log = ParticipationLog.load(_LOG.value)
        if not log.cohort_sizes.any():
            raise command_line.UsageError(f'--log={_LOG.value}: must hold at least one client')
        statistics = log.statistics()
        values = _observed(log, statistics, _mechanism(log.rounds), _NOISE_MULTIPLIER.value)
    draw = functools.partial(plots.participation, statistics.participations, statistics.separations)
    return values, draw


def _varied():
    """Values and plot of a simulation for each value of --vary."""
    simulated = [population_flags.devices(**{_VARY.value: value}) for value in _values()]
    rows = [_simulate(devices)[0] for devices in simulated]
    return rows, functools.partial(plots.separations, rows, _VARY.value)


def _simulated():
    """Values and plot of one simulation; writes its log."""
    values, done, statistics = _simulate(population_flags.devices())
    if _OUTPUT.value is not None:
        try:
            done.log.save(_OUTPUT.value)
        except OSError as error:
            raise command_line.UsageError(f'--output={_OUTPUT.value}: {error.strerror}') from None
    draw = functools.partial(
        plots.participation,
        statistics.participations,
        statistics.separations,
        start_hours=done.start_hours,
        duration_hours=done.duration_hours,
    )
    return values, draw


def _simulate(devices):
    """Values of a simulation, the run, and the statistics of its log."""
    if _ROUNDS.value is None:
        raise command_line.UsageError('--rounds: must be given')
    with command_line.refusing_bad_values():
        mechanism = _mechanism(_ROUNDS.value)
        done = population_run.run(devices, _ROUNDS.value, progress=True)
        statistics = done.log.statistics()
        # Scaled with the report goal where that is varied.
        scale = devices.clients_per_round / flags.FLAGS['clients_per_round'].value
        noise = _NOISE_MULTIPLIER.value * scale
        observed = _observed(done.log, statistics, mechanism, noise)
    by_day = done.rounds_by_day()
    values = {
        'population': devices.population,
        'clients_per_round': devices.clients_per_round,
        'timer_hours': devices.timer_hours,
        # No separation is larger that every client keeps (document 000, section 2.2).
        'largest_separation': devices.population // devices.clients_per_round,
        **observed,
        'days': done.days,
        'rounds_per_day': done.log.rounds / done.days,
        'fewest_rounds_in_a_day': int(by_day[:-1].min()) if by_day.size > 1 else None,
        'minutes_per_round': _minutes(60 * done.duration_hours),
        'minutes_by_hour': [None if math.isnan(m) else m for m in done.minutes_by_hour().tolist()],
        'dropped_share': float(done.dropped.sum() / done.selected.sum()),
    }
    return values, done, statistics


def _minutes(minutes: np.ndarray) -> dict:
    shortest, median, most, longest = np.quantile(minutes, [0, 0.5, 0.9, 1]).tolist()
    return {
        'shortest': shortest,
        'median': median,
        'mean': float(minutes.mean()),
        'percentile_90': most,
        'longest': longest,
    }


def _observed(log: ParticipationLog, statistics, mechanism, noise_multiplier: float) -> dict:
    """What the log says, and what that means for the mechanism."""
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
    # A client that is listed m times in one round moves its sum by m clip norms.
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


def _mechanism(rounds: int) -> mechanisms.Mechanism | None:
    """The mechanism of --mechanism over so many rounds."""
    name, noise = _MECHANISM.value, _NOISE_MULTIPLIER.value
    if not 0 < noise < math.inf:
        raise command_line.UsageError(f'--noise_multiplier={noise}: must be a finite number > 0')
    if name is None:
        return None
    if name in _TREES:
        return _TREES[name](rounds)
    return strategies.load('mechanism', name).with_rounds(rounds)


def _values() -> list[int | float]:
    texts = _VALUES.value
    if not texts:
        raise command_line.UsageError('--values: must be given with --vary')
    kind = float if _VARY.value == 'timer_hours' else int
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
            raise command_line.UsageError(f'--{other}: goes without --{name}')


def _check_files() -> None:
    """Whether the results can be written: asked before the work is done."""
    for flag in (_OUTPUT, _PLOT):
        if flag.value is not None and not pathlib.Path(flag.value).parent.is_dir():
            raise command_line.UsageError(
                f'--{flag.name}={flag.value}: must be in a directory that exists'
            )
    kinds = Figure().canvas.get_supported_filetypes()
    if _PLOT.value is not None and pathlib.Path(_PLOT.value).suffix[1:] not in kinds:
        raise command_line.UsageError(
            f'--plot={_PLOT.value}: must end in one of {", ".join(sorted(kinds))}'
        )


def _short(values: dict) -> dict:
    """The columns of a table of simulations."""
    names = (
        _VARY.value,
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


def _text(values: dict) -> str:
    """The table of one simulation or log."""
    shown = {}
    for name, value in values.items():
        if name == 'participations':
            value = ', '.join(f'{count}: {clients}' for count, clients in value.items())
        if name == 'minutes_per_round':
            shown.update({f'minutes_per_round.{which}': m for which, m in value.items()})
        elif name not in ('separations', 'minutes_by_hour'):
            shown[name] = value
    return command_line.table(shown)


if __name__ == '__main__':
    command_line.run(main)
