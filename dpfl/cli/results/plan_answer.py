"""Finds the plans that answer a request: rows of numbers, with the assumptions behind them."""

import dataclasses
import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from dpfl import _json, _progress, accounting, mechanisms
from dpfl.cli.results import train_command
from dpfl.cli.results.plan_request import Candidate, Request
from dpfl.errors import NOT_SHOWN, ArgumentError, renaming
from dpfl.mechanisms import rounding
from dpfl.participation import Participation
from dpfl.planning import Deployment, Planner, Simulation, UniformCohorts, scaled
from dpfl.planning.feasibility import Feasibility, estimate
from dpfl.planning.planner import prefix_noise
from dpfl.reporting import plain_text
from dpfl.simulation.training import mechanism as mechanism_lib
from dpfl.simulation.training.mechanism import AUTO
from dpfl.simulation.training.round_config import SamplingConfig

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ROUNDED_UP = ('sensitivity', 'rho', 'mu', 'epsilon')
_PREFIX_NOISE = (
    'prefix_noise: largest standard deviation of a coordinate of the noise in the sum of mean '
    'updates, if the norm of each update is at most the clip norm.'
)
# For programs only: in a table for people they would repeat other columns.
_NOT_IN_COLUMNS = ('mu', 'population_separation', 'timer_separation')


@dataclasses.dataclass(frozen=True)
class Answer:
    """Plans as rows of numbers.

    Attributes:
      rows: A row for each plan, the best first; for a sweep, a row for each point.
      left: Mechanisms that were left out, with the reason.
      assumptions: Assumptions behind the numbers, one item each.
      taken: Those of the first plan, which 'auto' has taken; None for plans that the request names.
      commands: The commands that run the first plan: names with their flags, in order; empty for
        sweeps and for several mechanisms.
      feasibility: Whether a model can learn under the noise of the first plan; None for a sweep.
    """

    rows: list[dict[str, Any]]
    left: list[dict[str, Any]]
    assumptions: list[str]
    taken: list[str] | None = None
    commands: tuple[tuple[str, tuple[str, ...]], ...] = ()
    feasibility: Feasibility | None = None

    def to_dict(self) -> dict[str, Any]:
        """The JSON of `dpfl plan_privacy`, without the commands."""
        judged = {} if self.feasibility is None else self.feasibility.to_dict()
        return {'plans': self.rows, **judged, 'left': self.left, 'assumptions': self.assumptions}


class Planned(NamedTuple):
    """A plan for a deployment.

    Attributes:
      deployment: The deployment that the plan is for, with its cohort size.
      plan: The plan.
      simulation: Whose noise was scaled to the cohort size; None if no noise was.
    """

    deployment: Deployment
    plan: accounting.PrivacyPlan
    simulation: Simulation | None = None


def answer(request: Request) -> Answer:
    """Finds the plans for a request; shows a progress bar for a sweep.

    Raises:
      ArgumentError: If values are missing or not allowed, or no plan meets the target.
    """
    sweeps = request.sweeps
    rows: list[dict[str, Any]] = []
    plans = []
    commands: tuple[tuple[str, tuple[str, ...]], ...] = ()
    left: list[dict[str, Any]] = []
    names = list(reversed(sweeps))  # The first quantity changes fastest.
    points = list(itertools.product(*(sweeps[name] for name in names)))
    for point in _progress.bar(points, unit='plan', delay=1.0, disable=not sweeps):
        deployment = _deployment(request, dict(zip(names, point, strict=True)))
        candidates, left = _candidates(request, deployment)
        if sweeps and not request.contenders:  # The given mechanism, or the best.
            candidates, left = candidates[:1], []
        for candidate in candidates:
            planned = _planned(request, candidate, deployment)
            plans.append(planned)
            if not (sweeps or rows or candidate.recipe is None):
                commands = _commands(request, candidate.recipe, planned)
            rows.append(_row(request, candidate, planned))
    if not rows:
        given = ','.join(request.planning.mechanisms or ())
        raise ArgumentError('mechanisms', given, 'are all made for fewer rounds')
    failure = request.planning.failure_probability
    judged = None
    if not sweeps:
        judged = estimate(
            plans[0].plan,
            request.privacy.model_dimension,
            request.privacy.delta,
            request.accountant,
        )
    is_chosen = not sweeps and not request.contenders and request.privacy.mechanism == AUTO
    return Answer(
        rows,
        left,
        _assumptions(plans, failure),
        _assumptions(plans[:1], failure) if is_chosen else None,
        commands,
        judged,
    )


def _commands(
    request: Request, recipe: train_command.Recipe, planned: Planned
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The commands that run a plan, with the guarantee that its row states."""
    # A cohort that was searched for has the noise of a simulation, which may exceed the target's.
    target = None if request.searches_cohort else request.privacy.target_epsilon
    of_train = train_command.of_plan(
        planned.plan,
        recipe,
        population=planned.deployment.population,
        delta=request.privacy.delta,
        accountant=request.accountant,
        target_epsilon=target,
        others=train_command.others_of(request.privacy),
    )
    first = (('optimize_strategy', recipe.optimize),) if recipe.optimize else ()
    return (*first, ('train', tuple(of_train)))


def figure_of(request: Request, answer: Answer) -> 'Figure':
    """Draws the plans of a sweep: the quantities that they were made for, over the first sweep."""
    from dpfl.reporting import plots  # matplotlib takes a second to import.

    if request.searches_cohort:
        measures = ['clients_per_round', 'noise_multiplier']
    elif request.has_target:
        measures = ['noise_multiplier', 'prefix_noise']
    elif request.sampling != 'none' or request.run is not None:
        measures = ['epsilon', 'prefix_noise']
    elif request.contenders:
        measures = ['rho', 'prefix_noise']
    else:
        measures = ['rho', 'min_separation']
    sweeps = list(request.sweeps)
    lines = [*(['mechanism'] if request.contenders else []), *sweeps[1:]]
    drawn = [name for name in measures if name not in sweeps]
    return plots.plans(answer.rows, sweeps[0], drawn, lines)


def _deployment(request: Request, point: dict[str, int]) -> Deployment:
    """The deployment of a request, with the values of a point of the sweep."""
    given = request.schema
    fields = {
        **given,
        # A search starts with one client.
        'clients_per_round': 1 if request.searches_cohort else given['clients_per_round'],
        'availability': request.planning.availability,
        'round_minutes': None if request.pace else request.timing.round_minutes,
        'pace': request.pace,
        **point,
    }
    for name in ('population', 'clients_per_round'):
        if fields[name] is None:
            raise ArgumentError(name, NOT_SHOWN, 'must be given')
    deployment = Deployment(**fields)
    most = deployment.max_participations
    reachable = dataclasses.replace(deployment, max_participations=None).participation
    is_given = not point and not request.searches_cohort
    if is_given and most is not None and most > reachable.count:
        raise ArgumentError(
            'max_participations',
            most,
            f'must be <= {reachable.count}, what {reachable.rounds} rounds and '
            + (
                f'a separation of {reachable.min_separation} allow'
                if reachable.max_participations is None
                else f'a timer of {deployment.timer_hours:g} hours allow'
            ),
        )
    return deployment


def _candidates(
    request: Request, deployment: Deployment
) -> tuple[list[Candidate], list[dict[str, Any]]]:
    """The mechanisms, the best first, and those that were left out."""
    privacy = request.privacy
    if request.run is not None:
        return [Candidate(request.run.mechanism.name, _always(request.run.mechanism))], []
    if request.contenders:
        schema = deployment.participation
        contenders = request.contenders
        return [contender for contender in contenders if contender.make(schema) is not None], []
    if privacy.mechanism != AUTO:
        # A cohort that is searched for has no schema yet, and sampling wants other mechanisms.
        has_schema = request.sampling == 'none' and not request.searches_cohort
        made = mechanism_lib.build(
            privacy,
            request.schema['rounds'],
            optimize_for=deployment.participation if has_schema else None,
        )
        recipe = train_command.Recipe.of_config(privacy)
        return [Candidate(str(privacy.mechanism), _always(made), recipe)], []
    assert privacy.model_dimension is not None  # A request with 'auto' has it.
    schema = deployment.participation
    _, candidates = mechanisms.choose(
        schema,
        privacy.model_dimension,
        privacy.memory_limit,
        noise=privacy.noise,
    )
    usable = [
        Candidate(
            candidate.name,
            _always(candidate.mechanism),
            train_command.Recipe.of_candidate(candidate, schema),
            candidate.verdict,
        )
        for candidate in candidates
        if candidate.mechanism
    ]
    left: list[dict[str, Any]] = [
        {
            'mechanism': candidate.name,
            'buffers': candidate.buffers,
            'gigabytes': candidate.gigabytes,
            'verdict': candidate.verdict,
        }
        for candidate in candidates
        if not candidate.mechanism
    ]
    return usable, left


def _always(made: mechanisms.Mechanism) -> Callable[[Participation], mechanisms.Mechanism]:
    return lambda schema: made


def _planned(request: Request, candidate: Candidate, deployment: Deployment) -> Planned:
    """The plan that a candidate gives for a deployment."""
    if (run := request.run) is not None:
        plan = scaled(
            run,
            deployment.clients_per_round,
            population=deployment.population,
            participation=deployment.participation if run.sampling is None else None,
        )
        small = Simulation(run.noise_multiplier, run.clients_per_round)
        return Planned(deployment, plan, small)
    if request.sampling != 'none':
        return Planned(deployment, _sampled(request, candidate, deployment))
    planner = _planner(request, candidate, deployment.participation)
    target, simulation = request.target, request.simulation
    if (most := request.planning.max_clients_per_round) is not None:
        assert target is not None and simulation is not None  # Both are given with `most`.
        searched = planner.with_simulation(deployment, target, simulation, most)
        return Planned(*searched, simulation)
    if target is not None:
        return Planned(deployment, planner.with_target(deployment, target))
    if simulation is not None:
        scaled_noise = simulation.scaled(deployment.clients_per_round)
        return Planned(deployment, planner.with_noise(deployment, scaled_noise), simulation)
    noise = _noise(request, candidate)
    scaling = request.scaling(noise)
    if scaling is not None:
        noise = scaling.scaled(deployment.clients_per_round)
    return Planned(deployment, planner.with_noise(deployment, noise), scaling)


def _sampled(
    request: Request, candidate: Candidate, deployment: Deployment
) -> accounting.PrivacyPlan:
    """The plan that a candidate gives with amplification by sampling."""
    privacy, cohort = request.privacy, deployment.clients_per_round
    schema = Participation(deployment.rounds)
    mechanism = candidate.make(deployment.participation)
    assert mechanism is not None  # Candidates that have fewer rounds are left out.
    fields: dict[str, Any] = dict(
        mechanism=mechanism.with_rounds(deployment.rounds),
        participation=schema,
        clip_norm=privacy.clip_norm,
        clients_per_round=cohort,
        adjacency=privacy.adjacency,
        discretization=privacy.discretization(privacy.clip_norm, cohort),
    )
    sampling = SamplingConfig(
        sampling=request.sampling,
        population=deployment.population,
        clients_per_round=cohort,
        groups=request.groups,
        cohort_cap=request.cohort_cap,
    )
    fields |= sampling.plan_fields(mechanism, schema, lambda: deployment.population)
    if privacy.target_epsilon is not None:
        with renaming(epsilon='target_epsilon'):
            return accounting.PrivacyPlan.calibrated(
                epsilon=privacy.target_epsilon,
                delta=privacy.delta,
                accountant=request.accountant,
                **fields,
            )
    return accounting.PrivacyPlan(noise_multiplier=_noise(request, candidate), **fields)


def _noise(request: Request, candidate: Candidate) -> float:
    """The noise multiplier of a candidate, its own or that of all."""
    own = candidate.noise_multiplier
    noise = request.privacy.noise_multiplier if own is None else own
    assert noise is not None  # Without a target or a simulation, a request has one.
    return noise


def _planner(request: Request, candidate: Candidate, schema: Participation) -> Planner:
    privacy = request.privacy
    mechanism = candidate.make(schema)
    if mechanism is None:
        raise ArgumentError('mechanisms', candidate.name, f'is made for fewer than {schema.rounds}')
    return Planner(
        mechanism=mechanism,
        clip_norm=privacy.clip_norm,
        adjacency=privacy.adjacency,
        discretize=lambda cohort: privacy.discretization(privacy.clip_norm, cohort),
    )


def _row(request: Request, candidate: Candidate, planned: Planned) -> dict:
    """The row of one plan: deployment, participation, noise, guarantee and cost.

    `noise_over_simulation` is the noise relative to that of the simulation, scaled to the cohort.
    Numbers that are not finite, such as rho without noise, are None.
    """
    deployment, plan, simulation = planned
    delta, accountant = request.privacy.delta, request.accountant
    scaled = simulation and simulation.scaled(deployment.clients_per_round)
    values = {
        'mechanism': candidate.name,
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
        'prefix_noise': prefix_noise(plan),
        'buffers': plan.mechanism.kernel().buffers,
        'verdict': candidate.verdict,
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


def _assumptions(plans: list[Planned], failure: float) -> list[str]:
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
    lines = [
        f'The population is an estimate, and {100 * deployment.availability:.4g}% of it reports '
        'at some time. These numbers determine the separation that can be reached. The guarantee '
        'depends on the separation that clients really keep; it must be enforced, and the log '
        'shows it.',
        'Cohorts are exactly as large as planned. Larger cohorts, for example from over-selection, '
        'use up the population sooner.',
        'min_separation b: rounds i < j of a client have j - i >= b (MinS of the papers is b - 1).',
        *_separation(deployment),
        *dict.fromkeys(_participations(planned.deployment) for planned in plans),
        *_uniform({planned.deployment for planned in plans}, failure),
        'No amplification by sampling is claimed.',
        *(f'{name}: {sentence}' for name, sentence in releases),
        _PREFIX_NOISE,
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
        _PREFIX_NOISE,
    ]


def _of_simulation(plans: list[Planned]) -> list[str]:
    """What the noise of a simulation says about utility, if the noise of plans was scaled."""
    scaled = dict.fromkeys(
        f'{simulation.noise_multiplier:g} with {simulation.clients_per_round} clients'
        for _, _, simulation in plans
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
    if any(
        simulation is not None
        and plan.noise_multiplier > simulation.scaled(deployment.clients_per_round) * (1 + 1e-9)
        for deployment, plan, simulation in plans
    ):
        lines.append(
            'noise_over_simulation above 1: the target needs more noise than was good enough '
            'in the simulation, so expect less utility (Xu et al. 2023, section 2.5, '
            'strategy 3).'
        )
    return lines


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
    if key == 'delta':
        return rounding.shown_delta(value)
    return f'{value:.4g}' if isinstance(value, float) else str(value)
