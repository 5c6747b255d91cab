"""Finds the plans that answer a request: rows of numbers, with the assumptions behind them."""

import dataclasses
import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dpfl import _json, _progress, accounting, mechanisms
from dpfl.cli.command import program
from dpfl.cli.results import train_command
from dpfl.cli.results.plan_request import OF_DEPLOYMENT, Request
from dpfl.errors import NOT_SHOWN, ArgumentError, renaming
from dpfl.mechanisms import rounding
from dpfl.planning import Deployment, Pace, Planner, Simulation, Target, UniformCohorts, scaled
from dpfl.planning.feasibility import Feasibility, estimate
from dpfl.planning.planner import prefix_noise
from dpfl.reporting import plain_text
from dpfl.simulation.training.mechanism import AUTO, MechanismConfig, build
from dpfl.simulation.training.plan import build_plan
from dpfl.simulation.training.round_config import OF_KINDS, SamplingConfig

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ROUNDED_UP = ('sensitivity', 'rho', 'mu', 'epsilon')
_PREFIX_NOISE = (
    'prefix_noise: largest standard deviation of a coordinate of the noise in the sum of mean '
    'updates, if the norm of each update is at most the clip norm.'
)
# For programs only: in a table for people they would repeat other columns.
_NOT_IN_COLUMNS = ('mu', 'population_separation', 'timer_separation')


class Candidate(NamedTuple):
    """A mechanism to plan with.

    Attributes:
      name: Its name in the table and the figure.
      mechanism: The mechanism, with at least the rounds of the plan.
      recipe: How `train` gets it; None where no command is given.
      verdict: Why it was taken; None if it was given.
      noise_multiplier: Noise multiplier of its own, at least 0; None for the amount that the
        request gives.
    """

    name: str
    mechanism: mechanisms.Mechanism
    recipe: train_command.Recipe | None = None
    verdict: str | None = None
    noise_multiplier: float | None = None


class Planned(NamedTuple):
    """A plan for a deployment.

    Attributes:
      candidate: The mechanism of the plan.
      deployment: The deployment that the plan is for, with its cohort size.
      plan: The plan.
      simulation: Whose noise was scaled to the cohort size; None if no noise was.
    """

    candidate: Candidate
    deployment: Deployment
    plan: accounting.PrivacyPlan
    simulation: Simulation | None = None


@dataclasses.dataclass(frozen=True)
class Answer:
    """Plans that answer a request, and all that is said of them.

    Attributes:
      request: The request.
      planned: The plans, the best first; for a sweep, those of each point.
      rows: The numbers of each plan.
      left: Mechanisms that were left out, with the reason.
    """

    request: Request
    planned: Sequence[Planned]
    rows: list[dict[str, Any]]
    left: list[dict[str, Any]]

    def to_dict(self) -> dict[str, Any]:
        """The JSON of `dpfl plan_privacy`."""
        return {
            'plans': self.rows,
            **({} if self._feasibility is None else self._feasibility.to_dict()),
            'left': self.left,
            'assumptions': self._assumptions(self.planned),
            'commands': self._commands,
        }

    def text(self, data: str | None) -> str:
        """The answer for people. Of mechanisms that 'auto' compared, it shows the one it took.

        Args:
          data: File that has the rows of all plans, if there is one.
        """
        if self.request.is_auto and not self.request.sweeps:
            row = dict(self.rows[0])
            reasons = f'reasons in {data}' if data else '--data=FILE writes the reasons'
            why = row.pop('verdict').removeprefix('taken: ')
            parts = [f'took {row.pop("mechanism")}, {why}; {reasons}\n']
            parts.append(_text([row], self._assumptions(self.planned[:1])))
        else:
            parts = [_text(self.rows, self._assumptions(self.planned))]
        if self._feasibility is not None:
            parts.append(f'\n{self._feasibility}\n')
        if self._commands:
            parts.append('A run with this plan; add the task, the model and the learning rates:')
        return '\n'.join([*parts, *self._commands])

    def figure(self) -> 'Figure':
        """Draws the plans of a sweep: what they were made for, over the first quantity."""
        from dpfl.reporting import plots  # matplotlib takes a second to import.

        request = self.request
        if request.searches_cohort:
            measures = ['clients_per_round', 'noise_multiplier']
        elif request.has_target:
            measures = ['noise_multiplier', 'prefix_noise']
        elif request.is_sampled or request.run is not None:
            measures = ['epsilon', 'prefix_noise']
        else:
            measures = ['rho', 'prefix_noise' if request.contenders else 'min_separation']
        first, *others = request.sweeps
        lines = [*(['mechanism'] if request.contenders else []), *others]
        drawn = [name for name in measures if name not in request.sweeps]
        return plots.plans(self.rows, first, drawn, lines)

    def _assumptions(self, planned: Sequence[Planned]) -> list[str]:
        return _assumptions(planned, self.request.planning.failure_probability)

    @functools.cached_property
    def _feasibility(self) -> Feasibility | None:
        """Whether a model can learn under the noise of the first plan; None for a sweep."""
        privacy, plan = self.request.privacy, self.planned[0].plan
        if self.request.sweeps:
            return None
        accountant = privacy.accountant_of(plan)
        return estimate(plan, privacy.model_dimension, privacy.delta, accountant)

    @functools.cached_property
    def _commands(self) -> list[str]:
        """The commands that run the first plan, with the guarantee that its row states.

        There is none for a sweep, for several mechanisms and for the plan of another run.
        """
        request, privacy = self.request, self.request.privacy
        candidate, deployment, plan, _ = self.planned[0]
        recipe = candidate.recipe
        if request.sweeps or recipe is None:
            return []
        # A cohort that was searched for has the noise of a simulation, which may exceed the
        # target's.
        of_train = train_command.of_plan(
            plan,
            recipe,
            population=deployment.population,
            delta=privacy.delta,
            accountant=privacy.accountant_of(plan),
            target_epsilon=None if request.searches_cohort else privacy.target_epsilon,
            others=train_command.others_of(privacy),
        )
        before = [program.command('optimize_strategy', *recipe.optimize)] if recipe.optimize else []
        return [*before, program.command('train', '--output_dir=runs/planned', *of_train)]


def answer(request: Request) -> Answer:
    """Finds the plans for a request; shows a progress bar for a sweep.

    Raises:
      ArgumentError: If values are missing or not allowed, or no plan meets the target.
    """
    sweeps, pace = request.sweeps, request.planning.times.pace()
    planned: list[Planned] = []
    rows: list[dict[str, Any]] = []
    left: list[dict[str, Any]] = []
    names = list(reversed(sweeps))  # The first quantity changes fastest.
    points = list(itertools.product(*(sweeps[name] for name in names)))
    for point in _progress.bar(points, unit='plan', delay=1.0, disable=not sweeps):
        deployment = _deployment(request, pace, dict(zip(names, point, strict=True)))
        candidates, left = _candidates(request, deployment)
        if sweeps and not request.contenders:  # The given mechanism, or the best.
            candidates, left = candidates[:1], []
        for candidate in candidates:
            planned.append(_planned(request, candidate, deployment))
            rows.append(_row(request, planned[-1]))
    if not planned:
        given = ','.join(request.planning.mechanisms or ())
        raise ArgumentError('mechanisms', given, 'are all made for fewer rounds')
    return Answer(request, planned, rows, left)


def _deployment(request: Request, pace: Pace | None, point: Mapping[str, int]) -> Deployment:
    """The deployment of a request, with the values of a point of the sweep."""
    times = request.planning.times
    fields: dict[str, Any] = {name: request.schema[name] for name in OF_DEPLOYMENT}
    if request.searches_cohort:
        fields['clients_per_round'] = 1  # With which the search starts.
    fields |= point
    for name in ('population', 'clients_per_round'):
        if fields[name] is None:
            raise ArgumentError(name, NOT_SHOWN, 'must be given')
    deployment = Deployment(
        **fields,
        availability=request.planning.availability,
        timer_hours=times.timer_hours,
        round_minutes=None if pace else times.round_minutes,
        pace=pace,
    )
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
    privacy, schema = request.privacy, deployment.participation
    if request.run is not None:
        return [Candidate(request.run.mechanism.name, request.run.mechanism)], []
    if request.contenders:
        return [
            Candidate(label, made, noise_multiplier=noise)
            for label, named, noise in request.contenders
            if (made := named.make(schema, named.design or schema)) is not None
        ], []
    if privacy.mechanism != AUTO:
        # A cohort that is searched for has no schema yet, and sampling wants other mechanisms.
        has_schema = not (request.is_sampled or request.searches_cohort)
        made = build(privacy, request.schema['rounds'], schema if has_schema else None)
        recipe = train_command.Recipe.of_config(privacy)
        return [Candidate(str(privacy.mechanism), made, recipe)], []
    assert privacy.model_dimension is not None  # A request with 'auto' has it.
    _, found = privacy.choose_mechanism(schema, privacy.model_dimension)
    usable = [
        Candidate(
            candidate.name,
            candidate.mechanism,
            train_command.Recipe.of_candidate(candidate, schema),
            candidate.verdict,
        )
        for candidate in found
        if candidate.mechanism
    ]
    left: list[dict[str, Any]] = [
        {
            'mechanism': candidate.name,
            'buffers': candidate.buffers,
            'gigabytes': candidate.gigabytes,
            'verdict': candidate.verdict,
        }
        for candidate in found
        if not candidate.mechanism
    ]
    return usable, left


def _planned(request: Request, candidate: Candidate, deployment: Deployment) -> Planned:
    """The plan that a candidate gives for a deployment."""
    privacy, planning, run = request.privacy, request.planning, request.run
    cohort = deployment.clients_per_round
    if run is not None:
        plan = scaled(
            run,
            cohort,
            population=deployment.population,
            participation=deployment.participation if run.sampling is None else None,
        )
        small = Simulation(run.noise_multiplier, run.clients_per_round)
        return Planned(candidate, deployment, plan, small)
    noise = candidate.noise_multiplier
    if noise is None:
        noise = privacy.noise_multiplier
    if request.is_sampled:
        dimension: Any = privacy.model_dimension  # Rounding refuses None.
        made = dataclasses.replace(
            privacy,
            **MechanismConfig(mechanism=candidate.mechanism).flat(),
            noise_multiplier=noise,
            model_dimension=privacy.model_dimension if privacy.secagg else None,
        )
        sampling = SamplingConfig(
            rounds=deployment.rounds,
            population=deployment.population,
            clients_per_round=cohort,
            **{name: request.schema[name] for name in ('sampling', *OF_KINDS)},
        )
        plan = build_plan(
            made,
            sampling,
            population=lambda: deployment.population,
            dimension=lambda: dimension,
        )
        return Planned(candidate, deployment, plan)
    planner = Planner(
        mechanism=candidate.mechanism,
        clip_norm=privacy.clip_norm,
        adjacency=privacy.adjacency,
        discretize=functools.partial(privacy.discretization, privacy.clip_norm),
    )
    simulation = None
    amount = planning.simulated_noise_multiplier if noise is None else noise
    if amount and planning.simulated_clients_per_round is not None:
        simulation = Simulation(amount, planning.simulated_clients_per_round)
    if request.has_target:
        with renaming(rho='target_rho', epsilon='target_epsilon'):
            target = Target(
                rho=planning.target_rho,
                epsilon=privacy.target_epsilon,
                delta=privacy.delta,
                accountant=privacy.accountant or 'pld',
            )
        if simulation is None:
            plan = planner.with_target(deployment, target)
        else:
            assert planning.max_clients_per_round is not None  # A request with both has it.
            deployment, plan = planner.with_simulation(
                deployment, target, simulation, planning.max_clients_per_round
            )
    else:
        assert amount is not None  # Without a target, a request has one.
        plan = planner.with_noise(
            deployment, amount if simulation is None else simulation.scaled(cohort)
        )
    return Planned(candidate, deployment, plan, simulation)


def _row(request: Request, planned: Planned) -> dict[str, Any]:
    """The row of one plan: deployment, participation, noise, guarantee and cost.

    `noise_over_simulation` is the noise relative to that of the simulation, scaled to the cohort.
    Numbers that are not finite, such as rho without noise, are None.
    """
    candidate, deployment, plan, simulation = planned
    delta, accountant = request.privacy.delta, request.privacy.accountant_of(plan)
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


def _text(rows: list[dict[str, Any]], assumptions: list[str]) -> str:
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


def _assumptions(plans: Sequence[Planned], failure: float) -> list[str]:
    """The conditions under which plans can be reached and their guarantees hold.

    Args:
      plans: The plan of each row.
      failure: Probability with which uniform cohorts may break the limits that are stated.
    """
    _, deployment, plan, _ = plans[0]
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
        deployment.describe_separation(),
        *dict.fromkeys(planned.deployment.describe_participations() for planned in plans),
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


def _of_simulation(plans: Sequence[Planned]) -> list[str]:
    """What the noise of a simulation says about utility, if the noise of plans was scaled."""
    scaled = dict.fromkeys(
        f'{simulation.noise_multiplier:g} with {simulation.clients_per_round} clients'
        for *_, simulation in plans
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
        for _, deployment, plan, simulation in plans
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


def _shown(key: str, value) -> str:
    """Text of a cell. Guarantees are rounded up."""
    if key in _ROUNDED_UP:
        return accounting.round_up(value)
    if value is None:
        return '-'
    if key == 'delta':
        return rounding.shown_delta(value)
    return f'{value:.4g}' if isinstance(value, float) else str(value)
