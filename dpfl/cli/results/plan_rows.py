"""Plans as rows of numbers and as text, with the assumptions behind them."""

import dataclasses
from typing import NamedTuple

from dpfl import _json, accounting
from dpfl.planning import Deployment, Simulation, UniformCohorts
from dpfl.planning.planner import prefix_noise
from dpfl.reporting import plain_text
from dpfl.simulation.training.noise_matching import Matched

_ROUNDED_UP = ('rho', 'mu', 'epsilon')
# For programs only: in a table for people they would repeat other columns.
_NOT_IN_COLUMNS = ('mu', 'population_separation', 'timer_separation')


class Planned(NamedTuple):
    """A plan for a deployment.

    Attributes:
      deployment: The deployment that the plan is for, with its cohort size.
      plan: The plan.
      simulation: Whose noise was scaled to the cohort size; None if no noise was.
      match: The match that gave the noise; None if there was none.
    """

    deployment: Deployment
    plan: accounting.PrivacyPlan
    simulation: Simulation | None = None
    match: Matched | None = None


def row(name: str, verdict: str | None, planned: Planned, *, delta: float, accountant: str) -> dict:
    """The row of one plan: deployment, participation, noise, guarantee and cost.

    `noise_over_simulation` is the noise relative to that of the simulation, scaled to the cohort.
    Numbers that are not finite, such as rho without noise, are None.
    """
    deployment, plan, simulation, match = planned
    scaled = simulation and simulation.scaled(deployment.clients_per_round)
    values = {
        'mechanism': name,
        'population': deployment.population,
        'availability': deployment.availability,
        'clients_per_round': deployment.clients_per_round,
        'rounds': deployment.rounds,
        'population_separation': deployment.population_separation,
        'timer_separation': deployment.timer_separation,
        'min_separation': plan.participation.min_separation,
        'separation_limit': (
            deployment.separation_limit if plan.sampling is None else plan.sampling.name
        ),
        'max_participations': plan.participation.count,
        'noise_multiplier': plan.noise_multiplier,
        'noise_over_simulation': scaled and plan.noise_multiplier / scaled,
        'sensitivity': plan.sensitivity,
        'sensitivity_is_exact': plan.sensitivity_is_exact,
        'rho': plan.rho,
        'mu': plan.mu,
        'delta': delta,
        'epsilon': plan.epsilon(delta, accountant),
        'accountant': accountant,
        'adjacency': plan.adjacency,
        'matched_value': match and match.value,
        'prefix_noise': prefix_noise(plan),
        'buffers': plan.mechanism.kernel().buffers,
        'verdict': verdict,
    }
    if plan.discretization is not None:
        cohort = deployment.clients_per_round
        values['inflated_norm'] = plan.discretization.inflated_norm
        values['bits_per_parameter'] = plan.discretization.bits_per_parameter(cohort)
    return {key: _json.finite(value) for key, value in values.items()}


def text(rows: list[dict], assumptions: list[str]) -> str:
    """The values that all plans share, a table of the others, and the assumptions."""
    first = rows[0]
    shared = [key for key in first if all(row[key] == first[key] for row in rows)]
    parts = [
        plain_text.table(
            {
                key: _shown(key, first[key])
                for key in shared
                if first[key] is not None or key in _ROUNDED_UP
            }
        )
    ]
    if len(shared) < len(first):
        differ = [key for key in first if key not in (*shared, *_NOT_IN_COLUMNS)]
        parts.append(
            plain_text.columns([{key: _shown(key, row[key]) for key in differ} for row in rows])
        )
    parts.append('\n'.join(['Assumptions:', *(f'- {line}' for line in assumptions)]))
    return '\n\n'.join(parts)


def assumptions(plans: list[Planned], failure: float) -> list[str]:
    """The conditions under which plans can be reached and their guarantees hold.

    Args:
      plans: The plan of each row.
      failure: Probability with which uniform cohorts may break the limits that are stated.
    """
    deployment, plan, *_ = plans[0]
    if not any(planned.plan.noise_multiplier for planned in plans):
        return ['There is no noise: the run would have no privacy guarantee.']
    if plan.sampling is not None:
        return [*_with_sampling(plan), *_of_simulation(plans)]
    releases = dict.fromkeys(
        (planned.plan.mechanism.name, planned.plan.mechanism.describe_release())
        for planned in plans
    )
    matches = dict.fromkeys(
        f'{plan.mechanism.name}: noise multiplier {plan.noise_multiplier:.6g}. {match.sentence}'
        for _, plan, _, match in plans
        if match is not None
    )
    lines = [
        f'The population is an estimate, and {deployment.availability:.0%} of it reports at some '
        'time. These numbers determine the separation that can be reached. The guarantee depends '
        'on the separation that clients really keep; it must be enforced, and the log shows it.',
        'Cohorts are exactly as large as planned. Larger cohorts, for example from over-selection, '
        'use up the population sooner.',
        'min_separation b: rounds i < j of a client have j - i >= b (MinS of the papers is b - 1).',
        *_separation(deployment),
        *dict.fromkeys(_participations(planned.deployment) for planned in plans),
        *_uniform({planned.deployment for planned in plans}, failure),
        'No amplification by sampling is claimed.',
        *(f'{name}: {sentence}' for name, sentence in releases),
        *matches,
        'prefix_noise: largest standard deviation of a coordinate of the noise in the sum of mean '
        'updates, if the norm of each update is at most the clip norm.',
    ]
    lines += _of_simulation(plans)
    if plan.discretization is not None:
        lines.append(
            'The sensitivity includes the larger norm due to rounding for secure aggregation.'
        )
    return lines


def _with_sampling(plan: accounting.PrivacyPlan) -> list[str]:
    silent = dataclasses.replace(plan, noise_multiplier=0.0)  # Which needs no long accounting.
    report = accounting.PrivacyReport.from_plan(silent, [0.5], accountant='best')
    sampling = [line for line in report.to_dict()['assumptions'] if line.startswith('Sampling: ')]
    return [
        *sampling,
        *([plan.sampling.caveat] if plan.sampling is not None and plan.sampling.caveat else []),
        'Who takes part is secret, and so are the random numbers that choose the cohorts.',
        'The guarantee relies on amplification by sampling. Devices that choose by themselves when '
        'they are available do not keep such a sampling.',
        'prefix_noise: largest standard deviation of a coordinate of the noise in the sum of mean '
        'updates, if the norm of each update is at most the clip norm.',
    ]


def _of_simulation(plans: list[Planned]) -> list[str]:
    """What the noise of a simulation says about utility, if the noise of plans was scaled."""
    scaled = dict.fromkeys(
        f'{simulation.noise_multiplier:g} with {simulation.clients_per_round} clients'
        for _, _, simulation, _ in plans
        if simulation is not None
    )
    if not scaled:
        return []
    lines = [
        f'Utility stays about the same if noise multiplier and cohort size grow in proportion '
        f'from {", from ".join(scaled)}. '
        'This is a hypothesis (Xu et al. 2023, section 2.2). The simulation used the same '
        'mechanism.'
    ]
    if any(_exceeds(planned) for planned in plans):
        lines.append(
            'noise_over_simulation above 1: the target needs more noise than was good enough '
            'in the simulation, so expect less utility (Xu et al. 2023, section 2.5, '
            'strategy 3).'
        )
    return lines


def _exceeds(planned: Planned) -> bool:
    deployment, plan, simulation, _ = planned
    if simulation is None:
        return False
    return plan.noise_multiplier > simulation.scaled(deployment.clients_per_round) * (1 + 1e-9)


def _uniform(deployments: set[Deployment], failure: float) -> list[str]:
    """Sentences on the limits under uniform cohorts, if all plans share a deployment."""
    if len(deployments) > 1:
        return []
    [deployment] = deployments
    schema = deployment.participation
    return UniformCohorts(
        population=deployment.reporting_clients,
        clients_per_round=deployment.clients_per_round,
        rounds=deployment.rounds,
    ).sentences(schema.min_separation, schema.count, failure)


def _separation(deployment: Deployment) -> list[str]:
    if deployment.pace is not None:
        return [
            f'A timer of {deployment.timer_hours:g} hours covers {deployment.timer_separation} '
            f'rounds: {deployment.pace.describe()}. If the population allows less, rounds wait for '
            'clients.'
        ]
    if deployment.timer_hours is not None:
        return [
            f'Rounds take {deployment.round_minutes:g} minutes at most, so a timer of '
            f'{deployment.timer_hours:g} hours covers {deployment.timer_separation} of them. If '
            'the population allows less, rounds wait for clients.'
        ]
    if deployment.min_separation is None:
        return [
            'The separation is the largest that the population allows. Few runs come near it: a '
            'suitable timer has to be found (Xu et al. 2023, section 2.5, strategy 4).'
        ]
    return ['The separation is enforced in rounds.']


def _participations(deployment: Deployment) -> str:
    most = deployment.timer_participations
    if most is None:
        why = 'the most that rounds and separation allow'
    else:
        why = (
            f'no client with the timer can be in more than {most} of {deployment.rounds} '
            'consecutive rounds of those times'
        )
    return (
        f'Each client takes part in at most max_participations rounds: {why}, unless a lower limit '
        'is given.'
    )


def _shown(key: str, value) -> str:
    """Text of a cell. Guarantees are rounded up."""
    if key in _ROUNDED_UP:
        return accounting.round_up(value)
    if value is None:
        return '-'
    return f'{value:.4g}' if isinstance(value, float) else str(value)
