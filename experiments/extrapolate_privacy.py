r"""Estimate at a small cohort, account at a large one: what a finished run is worth elsewhere.

  python -m experiments.extrapolate_privacy --run_dir=runs/small --populations=1000000,100000000 \
      --cohorts=1000,5000

A small simulation shows what accuracy a noise on the mean update allows. With a larger cohort the
same noise on the mean is a larger noise multiplier, in proportion, and so a better guarantee, for
about the same accuracy (document 001, section 3; document 000, section 2.2; document 004, section
6). For each population and cohort size this gives the epsilon of the run's own plan: its mechanism,
rounds, sampling, adjacency and accountant.
"""

import csv
import itertools
import json
import pathlib

from absl import flags

from dpfl import accounting
from dpfl.accounting import extrapolation
from dpfl.accounting.records import archive
from dpfl.simulation.training.privacy_config import NoiseConfig
from experiments.command import command_line
from experiments.flags import output_flags
from experiments.flags.settings_flags import SettingsFlags

_RUN = SettingsFlags(output_flags.RunDirConfig)
_POPULATIONS = flags.DEFINE_list('populations', None, 'Numbers of clients, comma-separated.')
_COHORTS = flags.DEFINE_list('cohorts', None, 'Clients in a round, comma-separated.')
_NOISE = SettingsFlags(
    NoiseConfig,
    only=('delta',),
    defaults={'delta': None},
    help={'delta': 'Delta of the guarantees; by default that of the run.'},
)
_DELTA_POWER = flags.DEFINE_float(
    'delta_power',
    None,
    'Delta is 1 / population to this power: 1.1 in document 001, table 1; 1 in document 004.',
    lower_bound=1,
)
_MAX_SEPARATION = flags.DEFINE_integer(
    'max_separation',
    None,
    'Largest min separation that is enforced, where cohorts are not sampled at random; by default '
    'all that the population allows.',
    lower_bound=1,
)
_FORMAT = SettingsFlags(output_flags.FormatConfig)


def main() -> None:
    """Prints the table."""
    run_dir = pathlib.Path(command_line.required(_RUN.read(), 'run_dir'))
    populations, cohorts = _integers(_POPULATIONS), _integers(_COHORTS)
    if _delta_flag() is not None and _DELTA_POWER.value is not None:
        raise command_line.UsageError('--delta_power: goes without --delta')
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
            _row(record, population, cohort)
            for population, cohort in itertools.product(populations, cohorts)
        ]
    run = _run(record, _accuracy(run_dir))
    if _FORMAT.read().format == 'json':
        values = {'run': run, 'rows': rows, 'assumptions': _assumptions(record)}
        print(json.dumps(values, indent=2, allow_nan=False))
        return
    shown = [
        {name: _shown(name, value) for name, value in row.items() if value is not None}
        for row in rows
    ]
    print(command_line.table({name: _shown(name, value) for name, value in run.items()}))
    print(f'\n{command_line.columns(shown)}\n\nAssumptions:')
    print('\n'.join(f'- {line}' for line in _assumptions(record)))


def _delta_flag() -> float | None:
    return _NOISE.values()['delta']


def _row(record: archive.PlanRecord, population: int, cohort: int) -> dict:
    plan = extrapolation.scaled(record.plan, population, cohort, _MAX_SEPARATION.value)
    delta = _delta(record, population)
    sampled = plan.sampling != 'none'
    return {
        'population': population,
        'clients_per_round': cohort,
        'min_separation': None if sampled else plan.participation.min_separation,
        'max_participations': None if sampled else plan.participation.count,
        'noise_multiplier': plan.noise_multiplier,
        'rho': plan.rho,
        'delta': delta,
        'epsilon': plan.epsilon(delta, record.accountant),
    }


def _delta(record: archive.PlanRecord, population: int) -> float:
    if _DELTA_POWER.value is not None:
        return population**-_DELTA_POWER.value
    given = _delta_flag()
    return record.deltas[0] if given is None else given


def _run(record: archive.PlanRecord, accuracy: float | None) -> dict:
    plan = record.plan
    values = {
        'mechanism': plan.mechanism.name,
        'rounds': plan.participation.rounds,
        'sampling': plan.sampling,
        'adjacency': plan.adjacency,
        'accountant': record.accountant,
        'clients_per_round of the run': plan.clients_per_round,
        'noise_multiplier of the run': plan.noise_multiplier,
        'stddev of the mean update': plan.stddev / plan.denominator,
        'delta of the run': record.deltas[0],
        'epsilon of the run': plan.epsilon(record.deltas[0], record.accountant),
    }
    return values if accuracy is None else {**values, 'accuracy of the run': accuracy}


def _accuracy(run_dir: pathlib.Path) -> float | None:
    """The last one in the metrics of the run; None if there are none."""
    try:
        with open(run_dir / 'metrics.csv', newline='') as file:
            values = [row['accuracy'] for row in csv.DictReader(file) if row.get('accuracy')]
        return float(values[-1]) if values else None
    except (OSError, ValueError):
        return None


def _assumptions(record: archive.PlanRecord) -> list[str]:
    plan = record.plan
    lines = [
        'The noise on the mean update is that of the run at every cohort size: the noise '
        'multiplier grows with the cohort, in proportion.',
        'That accuracy is then about the same is a hypothesis with evidence (document 001, figure '
        '7; document 000, section 2.2), not a guarantee; larger cohorts have been a little better.',
        f'Rounds, mechanism, adjacency ({plan.adjacency}) and accountant are those of the run.',
    ]
    if plan.sampling == 'none':
        lines.append(
            'No amplification by sampling: a client keeps the min separation, which the population '
            'allows and the sampler has to enforce, and takes part as often as that allows.'
        )
    else:
        lines.append(
            f'Cohorts are secret random samples ({plan.sampling}) of the whole population.'
        )
    if plan.discretization is not None:
        lines.append('The inflated norm of rounding is that of the run.')
    return lines


def _integers(flag) -> list[int]:
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


def _shown(name: str, value):
    """A cell; guarantees are rounded up."""
    if name.partition(' ')[0] in ('rho', 'epsilon'):
        return accounting.round_up(value)
    return f'{value:.4g}' if isinstance(value, float) else str(value)


if __name__ == '__main__':
    command_line.run(main)
