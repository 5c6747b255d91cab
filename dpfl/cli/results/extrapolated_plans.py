"""Guarantees of a finished run's plan at other populations and cohort sizes, as values and text."""

import csv
import pathlib
from typing import TYPE_CHECKING, Any

from dpfl import accounting
from dpfl.accounting.records import archive
from dpfl.participation import Participation
from dpfl.planning import Deployment, scaled
from dpfl.reporting import plain_text

if TYPE_CHECKING:
    from dpfl.reporting import charts


def row(
    record: archive.PlanRecord,
    population: int,
    cohort: int,
    *,
    delta: float,
    max_separation: int | None,
) -> dict[str, Any]:
    """The plan of a run for another population and cohort size, with its guarantee.

    Args:
      record: Plan of the run, with noise.
      population: Number of clients.
      cohort: Number of clients in a round.
      delta: Delta of the guarantee.
      max_separation: Largest min separation that is enforced without sampling; None for the
        largest that the population allows.

    Raises:
      ArgumentError: If there is no such plan.
    """
    sampled = record.plan.sampling is not None
    schema = None
    if not sampled:
        schema = widest_schema(record.plan.participation.rounds, population, cohort, max_separation)
    plan = scaled(record.plan, cohort, population=population, participation=schema)
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


def widest_schema(
    rounds: int, population: int, cohort: int, max_separation: int | None = None
) -> Participation:
    """The schema with the largest separation that a population allows and that is enforced.

    Args:
      rounds: Number of rounds.
      population: Number of clients.
      cohort: Number of clients in a round.
      max_separation: Largest separation that is enforced; None for no limit.

    Raises:
      ArgumentError: If the population cannot provide such cohorts.
    """
    deployment = Deployment(population=population, clients_per_round=cohort, rounds=rounds)
    reachable = deployment.participation.min_separation
    return Participation(rounds, min(max_separation or reachable, reachable))


def of_run(record: archive.PlanRecord, accuracy: float | None) -> dict[str, Any]:
    """The plan of the run itself, its guarantee and, if known, its accuracy."""
    plan = record.plan
    values = {
        'mechanism': plan.mechanism.name,
        'rounds': plan.participation.rounds,
        'sampling': plan.sampling_name,
        'adjacency': plan.adjacency,
        'accountant': record.accountant,
        'clients_per_round of the run': plan.clients_per_round,
        'noise_multiplier of the run': plan.noise_multiplier,
        'stddev of the mean update': plan.stddev / plan.denominator,
        'delta of the run': record.deltas[0],
        'epsilon of the run': plan.epsilon(record.deltas[0], record.accountant),
    }
    return values if accuracy is None else {**values, 'accuracy of the run': accuracy}


def accuracy(run_dir: pathlib.Path) -> float | None:
    """The last accuracy in the metrics of a run; None if there is none."""
    try:
        with open(run_dir / 'metrics.csv', newline='') as file:
            values = [line['accuracy'] for line in csv.DictReader(file) if line.get('accuracy')]
        return float(values[-1]) if values else None
    except (OSError, ValueError):
        return None


def assumptions(record: archive.PlanRecord) -> list[str]:
    """The assumptions behind the guarantees, and behind equal accuracy."""
    plan = record.plan
    lines = [
        'The noise on the mean update is that of the run at every cohort size: the noise '
        'multiplier grows with the cohort, in proportion.',
        'That the accuracy is then about the same is a hypothesis with evidence (McMahan et al. '
        '2018, figure 7; Xu et al. 2023, section 2.2), not a guarantee. Larger cohorts have been a '
        'little better.',
        f'Rounds, mechanism, adjacency ({plan.adjacency}) and accountant are those of the run.',
    ]
    if plan.sampling is None:
        lines.append(
            'No amplification by sampling is claimed. Each client keeps the min separation, which '
            'the population allows and the sampler must enforce, and takes part as often as that '
            'allows.'
        )
    else:
        lines.append(
            f'Cohorts are secret random samples ({plan.sampling.name}) of the whole population.'
        )
    if plan.discretization is not None:
        lines.append('The inflated norm due to rounding is that of the run.')
    return lines


def panel(rows: list[dict[str, Any]]) -> 'charts.Panel':
    """Epsilon over the cohort size, a line for each population, as a panel of a chart."""
    from dpfl.reporting import charts  # matplotlib takes a second to import.

    lines = []
    for number, population in enumerate(dict.fromkeys(row['population'] for row in rows)):
        points = sorted(
            (row['clients_per_round'], row['epsilon'])
            for row in rows
            if row['population'] == population
        )
        cohorts, epsilons = zip(*points, strict=True)
        lines.append(
            charts.Line(f'{population:,} clients', cohorts, epsilons, color=number, dash=number)
        )
    return charts.Panel(
        'The noise of the run on the mean update',
        'clients in a round',
        'epsilon',
        lines,
        x_log=True,
        y_log=True,
    )


def text(run: dict[str, Any], rows: list[dict[str, Any]], assumed: list[str]) -> str:
    """The run, the table of the other plans, and the assumptions."""
    shown = [
        {name: _shown(name, value) for name, value in row.items() if value is not None}
        for row in rows
    ]
    first = plain_text.table({name: _shown(name, value) for name, value in run.items()})
    lines = [f'- {line}' for line in assumed]
    return '\n'.join([first, '', plain_text.columns(shown), '', 'Assumptions:', *lines])


def _shown(name: str, value: Any) -> str:
    """Text of a cell. Guarantees are rounded up."""
    if name.partition(' ')[0] in ('rho', 'epsilon'):
        return accounting.round_up(value)
    return f'{value:.4g}' if isinstance(value, float) else str(value)
