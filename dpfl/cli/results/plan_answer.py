"""Finds the plans that answer a request."""

import dataclasses
import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dpfl import _progress, accounting, mechanisms
from dpfl.cli.results import plan_rows, train_command
from dpfl.cli.results.plan_request import Candidate, Request
from dpfl.errors import NOT_SHOWN, ArgumentError, renaming
from dpfl.participation import Participation
from dpfl.planning import Deployment, Planner, Simulation, scaled
from dpfl.planning.feasibility import Feasibility, estimate
from dpfl.simulation.training import mechanism as mechanism_lib
from dpfl.simulation.training import noise_matching
from dpfl.simulation.training.mechanism import AUTO
from dpfl.simulation.training.privacy_config import PREFIX_SUMS
from dpfl.simulation.training.round_config import SamplingConfig

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
    for point in _progress.bar(_points(sweeps), unit='plan', delay=1.0, disable=not sweeps):
        deployment = _deployment(request, point)
        candidates, left = _candidates(request, deployment)
        if sweeps and not request.contenders:  # The given mechanism, or the best.
            candidates, left = candidates[:1], []
        for candidate in candidates:
            planned = _planned(request, candidate, deployment)
            plans.append(planned)
            if not (sweeps or rows or candidate.recipe is None):
                commands = _commands(request, candidate.recipe, planned)
            rows.append(
                plan_rows.row(
                    candidate.name,
                    candidate.verdict,
                    planned,
                    delta=request.privacy.delta,
                    accountant=request.accountant,
                )
            )
    if not rows:
        names = ','.join(request.planning.mechanisms or ())
        raise ArgumentError('mechanisms', names, 'are all made for fewer rounds')
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
        plan_rows.assumptions(plans, failure),
        plan_rows.assumptions(plans[:1], failure) if is_chosen else None,
        commands,
        judged,
    )


def _commands(
    request: Request, recipe: train_command.Recipe, planned: plan_rows.Planned
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
        others=train_command.others_of(request.privacy, request.server),
    )
    first = (('optimize_strategy', recipe.optimize),) if recipe.optimize else ()
    return (*first, ('train', tuple(of_train)))


def figure_of(request: Request, answer: Answer) -> 'Figure':
    """Draws the plans of a sweep: the quantities that they were made for, over the first sweep."""
    from dpfl.reporting import plots  # matplotlib takes a second to import.

    sweeps = list(request.sweeps)
    lines = [*(['mechanism'] if request.contenders else []), *sweeps[1:]]
    return plots.plans(answer.rows, sweeps[0], _measures(request), lines)


def _measures(request: Request) -> list[str]:
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
    return [name for name in measures if name not in request.sweeps]


def _points(sweeps: dict[str, tuple[int, ...]]) -> list[dict[str, int]]:
    """All combinations of the values. The first quantity changes fastest."""
    names = list(reversed(sweeps))
    return [
        dict(zip(names, values, strict=True))
        for values in itertools.product(*(sweeps[name] for name in names))
    ]


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
        request.workload(schema.rounds),
        noise=privacy.noise,
    )
    server = None if privacy.workload == PREFIX_SUMS else request.server
    usable = [
        Candidate(
            candidate.name,
            _always(candidate.mechanism),
            train_command.Recipe.of_candidate(candidate, schema, server),
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


def _planned(request: Request, candidate: Candidate, deployment: Deployment) -> plan_rows.Planned:
    """The plan that a candidate gives for a deployment."""
    if (run := request.run) is not None:
        plan = scaled(
            run,
            deployment.clients_per_round,
            population=deployment.population,
            participation=deployment.participation if run.sampling is None else None,
        )
        small = Simulation(run.noise_multiplier, run.clients_per_round)
        return plan_rows.Planned(deployment, plan, small)
    if request.sampling != 'none':
        return plan_rows.Planned(deployment, _sampled(request, candidate, deployment))
    planner = _planner(request, candidate, deployment.participation)
    most, target, simulation = (
        request.planning.max_clients_per_round,
        request.target,
        request.simulation,
    )
    if most is not None:
        assert target is not None and simulation is not None  # Both are given with `most`.
        searched = planner.with_simulation(deployment, target, simulation, most)
        return plan_rows.Planned(*searched, simulation)
    if target is not None:
        return plan_rows.Planned(deployment, planner.with_target(deployment, target))
    if simulation is not None:
        scaled_noise = simulation.scaled(deployment.clients_per_round)
        return plan_rows.Planned(
            deployment, planner.with_noise(deployment, scaled_noise), simulation
        )
    match: noise_matching.Matched | None = None
    noise = candidate.noise_multiplier
    noise = request.privacy.noise_multiplier if noise is None else noise
    if noise is None:
        match = _matched(request, candidate, deployment)
        noise = match.noise_multiplier
    scaling = request.scaling(noise)
    if scaling is not None:
        match, noise = None, scaling.scaled(deployment.clients_per_round)
    return plan_rows.Planned(deployment, planner.with_noise(deployment, noise), scaling, match)


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
    noise = candidate.noise_multiplier
    noise = privacy.noise_multiplier if noise is None else noise
    assert noise is not None  # Each candidate has an amount of noise.
    return accounting.PrivacyPlan(noise_multiplier=noise, **fields)


def _matched(
    request: Request, candidate: Candidate, deployment: Deployment
) -> noise_matching.Matched:
    """The noise that matches, for a run that stops in the round of the match.

    It is the same at every point of a sweep over rounds, and for the cohort of a simulation if
    there is one.
    """
    match = request.match
    assert match is not None  # A request has an amount of noise.
    rounds = request.schema['rounds'] if match.rounds is None else match.rounds
    cohort = request.planning.simulated_clients_per_round or deployment.clients_per_round
    if not 1 <= rounds <= request.schema['rounds']:
        raise ArgumentError(
            'match', match.text, f'must have a round from 1 to {request.schema["rounds"]}'
        )
    whole = dataclasses.replace(
        deployment, rounds=request.schema['rounds'], clients_per_round=cohort
    )
    if candidate.make(whole.participation) is None:  # It was made for fewer rounds.
        whole = dataclasses.replace(whole, rounds=rounds)
    silent = _planner(request, candidate, whole.participation).with_noise(whole, 0.0)
    return dataclasses.replace(match, rounds=rounds).matched(silent)


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
