"""Finds the plans that answer a request."""

import dataclasses
import itertools
from typing import Any

from tqdm import tqdm

from dpfl import accounting, mechanisms
from dpfl.accounting import planning
from dpfl.errors import NOT_SHOWN, ArgumentError
from dpfl.simulation.training import mechanism as mechanism_lib
from dpfl.simulation.training import plan as plan_lib
from dpfl.simulation.training.privacy_config import AUTO
from experiments.planning import plan_rows
from experiments.planning.request import Request


@dataclasses.dataclass(frozen=True)
class Answer:
    """Plans as rows of numbers.

    Attributes:
      rows: A row for each plan, the best first; for a sweep, a row for each point.
      left: Mechanisms that were left out, with the reason.
      assumptions: Assumptions behind the numbers, one item each.
    """

    rows: list[dict[str, Any]]
    left: list[dict[str, Any]]
    assumptions: list[str]


def answer(request: Request) -> Answer:
    """Finds the plans for a request; shows a progress bar for a sweep.

    Raises:
      ArgumentError: If values are missing or not allowed, or no plan meets the target.
    """
    sweeps = request.sweeps()
    target, simulation = request.target, request.simulation
    rows, plans = [], []
    left: list[dict[str, Any]] = []
    for point in tqdm(_points(sweeps), disable=None if sweeps else True):
        deployment = _deployment(request, point)
        candidates, left = _candidates(request, deployment)
        if sweeps:  # One row for each point: the given mechanism, or the best.
            candidates, left = candidates[:1], []
        for name, mechanism, verdict in candidates:
            plans.append(_plan(request, mechanism, deployment, target, simulation))
            rows.append(
                plan_rows.row(
                    name,
                    verdict,
                    *plans[-1],
                    simulation=simulation,
                    delta=request.privacy.delta,
                    accountant=request.accountant,
                )
            )
    return Answer(rows, left, plan_rows.assumptions(plans, simulation))


def measures(request: Request) -> list[str]:
    """Quantities on the plot of a sweep: those that the plans were made to find."""
    if request.searches_cohort:
        found = ['clients_per_round', 'noise_multiplier']
    elif request.has_target:
        found = ['noise_multiplier', 'prefix_noise']
    else:
        found = ['rho', 'min_separation']
    return [name for name in found if name not in request.sweeps()]


def _points(sweeps: dict[str, list[int]]) -> list[dict[str, int]]:
    """All combinations of the values. The first quantity changes fastest."""
    names = list(reversed(sweeps))
    return [
        dict(zip(names, values, strict=True))
        for values in itertools.product(*(sweeps[name] for name in names))
    ]


def _deployment(request: Request, point: dict[str, int]) -> planning.Deployment:
    """The deployment of a request, with the values of a point of the sweep."""
    given = request.schema
    fields = {
        **given,
        # A search starts with one client.
        'clients_per_round': 1 if request.searches_cohort else given['clients_per_round'],
        'availability': request.planning.availability,
        'round_minutes': request.planning.round_minutes,
        **point,
    }
    for name in ('population', 'clients_per_round'):
        if fields[name] is None:
            raise ArgumentError(name, NOT_SHOWN, 'must be given')
    deployment = planning.Deployment(**fields)
    most = deployment.max_participations
    reachable = dataclasses.replace(deployment, max_participations=None).participation
    is_given = not point and not request.searches_cohort
    if is_given and most is not None and most > reachable.count:
        raise ArgumentError(
            'max_participations',
            most,
            f'must be <= {reachable.count}, what {reachable.rounds} rounds and a separation of '
            f'{reachable.min_separation} allow',
        )
    return deployment


def _candidates(
    request: Request, deployment: planning.Deployment
) -> tuple[list[tuple[str, mechanisms.Mechanism, str | None]], list[dict[str, Any]]]:
    """Names, mechanisms and verdicts, the best first, and the mechanisms that were left out."""
    privacy = request.privacy
    if privacy.mechanism != AUTO:
        made = mechanism_lib.build(privacy, request.schema['rounds'])
        return [(str(privacy.mechanism), made, None)], []
    assert privacy.model_dimension is not None  # `Request.check` requires it.
    schema = deployment.participation
    _, candidates = mechanisms.choose(
        schema, privacy.model_dimension, privacy.memory_limit, request.workload(schema.rounds)
    )
    found: list[tuple[str, mechanisms.Mechanism, str | None]] = [
        (each.name, each.mechanism, each.verdict) for each in candidates if each.mechanism
    ]
    left: list[dict[str, Any]] = [
        {
            'mechanism': each.name,
            'buffers': each.buffers,
            'gigabytes': each.gigabytes,
            'verdict': each.verdict,
        }
        for each in candidates
        if not each.mechanism
    ]
    return found, left


def _plan(
    request: Request,
    mechanism: mechanisms.Mechanism,
    deployment: planning.Deployment,
    target: planning.Target | None,
    simulation: planning.Simulation | None,
) -> tuple[planning.Deployment, accounting.PrivacyPlan]:
    """The plan, and the deployment with the cohort size that was found."""
    privacy = request.privacy
    planner = planning.Planner(
        mechanism=mechanism,
        clip_norm=privacy.clip_norm,
        adjacency=privacy.adjacency,
        discretize=lambda cohort: plan_lib.discretization(privacy, privacy.clip_norm, cohort),
    )
    most = request.planning.max_clients_per_round
    if most is not None:
        assert target is not None and simulation is not None  # `Request.check` requires them.
        return planner.with_simulation(deployment, target, simulation, most)
    if target is not None:
        return deployment, planner.with_target(deployment, target)
    noise = privacy.noise_multiplier
    if simulation is not None:
        noise = simulation.scaled(deployment.clients_per_round)
    assert noise is not None  # `Request.check` requires it.
    return deployment, planner.with_noise(deployment, noise)
