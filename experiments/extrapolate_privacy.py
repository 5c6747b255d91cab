r"""Extrapolates a finished run: the guarantee of its plan with larger populations and cohorts.

Example:
  dpfl extrapolate_privacy --run_dir=runs/small --populations=1000000,100000000 \
      --cohorts=1000,5000 --plot=extrapolated.png

A small simulation shows which accuracy is possible with some noise on the mean update. With a
larger cohort, the same noise on the mean means a proportionally larger noise multiplier, and so a
better guarantee for about the same accuracy ([McMahan18], section 3; [Xu23], section 2.2;
[Augenstein20], section 6). For each population and cohort size, this prints epsilon of the run's
own plan: its mechanism, rounds, sampling, adjacency and accountant.
"""

import itertools
import json
import pathlib
from typing import Any

from absl import flags

from dpfl.accounting.records import archive
from dpfl.cli.command import command_line, files
from dpfl.cli.flags import output_flags
from dpfl.cli.flags.settings_flags import SettingsFlags
from dpfl.cli.results import extrapolated_plans
from dpfl.simulation.training.privacy_config import NoiseConfig

_RUN = SettingsFlags(output_flags.RunDirConfig)
_POPULATIONS = flags.DEFINE_list('populations', None, 'Numbers of clients, comma-separated.')
_COHORTS = flags.DEFINE_list('cohorts', None, 'Numbers of clients in a round, comma-separated.')
_NOISE = SettingsFlags(
    NoiseConfig,
    only=('delta', 'allow_large_delta'),
    defaults={'delta': None},
    help={'delta': 'Delta of the guarantees; by default that of the run.'},
)
_DELTA_POWER = flags.DEFINE_float(
    'delta_power',
    None,
    'Delta is 1 / population to this power: 1.1 in [McMahan18], table 1; 1 in [Augenstein20].',
    lower_bound=1,
)
_MAX_SEPARATION = flags.DEFINE_integer(
    'max_separation',
    None,
    'Largest min separation that is enforced, if cohorts are not sampled at random; by default '
    'the largest that the population allows.',
    lower_bound=1,
)
_PLOT = SettingsFlags(
    output_flags.PlotConfig,
    help={'plot': 'File to draw epsilon over the cohort size in, a line for each population.'},
)
_FORMAT = SettingsFlags(output_flags.FormatConfig)


def main() -> None:
    """Prints the table, and draws the plot."""
    run_dir = pathlib.Path(command_line.required(_RUN.read(), 'run_dir'))
    path = _PLOT.read().plot
    files.check_writable(None, path)
    populations, cohorts = _integers(_POPULATIONS), _integers(_COHORTS)
    if _delta_flag() is not None and _DELTA_POWER.value is not None:
        raise command_line.UsageError('--delta_power: cannot be combined with --delta')
    with command_line.refusing_bad_values():
        record = archive.read_plan(run_dir)
    if not record.plan.noise_multiplier:
        raise command_line.UsageError(f'--run_dir={run_dir}: the run has no noise')
    with command_line.refusing_bad_values(
        population=_POPULATIONS.name,
        clients_per_round=_COHORTS.name,
        min_separation=_MAX_SEPARATION.name,
    ):
        rows = [
            extrapolated_plans.row(
                record,
                population,
                cohort,
                delta=_delta(record, population),
                max_separation=_MAX_SEPARATION.value,
            )
            for population, cohort in itertools.product(populations, cohorts)
        ]
    if path:
        _draw(rows, path)
    run = extrapolated_plans.of_run(record, extrapolated_plans.accuracy(run_dir))
    assumptions = extrapolated_plans.assumptions(record)
    if _FORMAT.read().format == 'json':
        values = {'run': run, 'rows': rows, 'assumptions': assumptions}
        print(json.dumps(values, indent=2, allow_nan=False))
    else:
        print(extrapolated_plans.text(run, rows, assumptions))


def _draw(rows: list[dict[str, Any]], path: str) -> None:
    from dpfl.reporting import charts  # matplotlib takes a second to import.

    figure = charts.draw([extrapolated_plans.panel(rows)], columns=1)
    files.save_plot(figure, path)


def _delta_flag() -> float | None:
    return None if _NOISE.values()['delta'] is None else _NOISE.read().delta


def _delta(record: archive.PlanRecord, population: int) -> float:
    if _DELTA_POWER.value is not None:
        return population**-_DELTA_POWER.value
    given = _delta_flag()
    return record.deltas[0] if given is None else given


def _integers(flag: flags.FlagHolder) -> list[int]:
    values = flag.value or []
    if not values:
        raise command_line.UsageError(f'--{flag.name}: must be given')
    try:
        numbers = [int(value) for value in values]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1:
        raise command_line.UsageError(
            f'--{flag.name}={",".join(values)}: must be comma-separated positive integers'
        )
    return numbers


if __name__ == '__main__':
    command_line.run(main)
