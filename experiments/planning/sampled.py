"""Plans with amplification by sampling, for `plan_privacy`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpfl import accounting, mechanisms
from dpfl.accounting import planning
from dpfl.errors import NOT_SHOWN, ArgumentError, renaming
from dpfl.participation import Participation
from dpfl.simulation.training import plan as plan_lib
from dpfl.simulation.training.privacy_config import AUTO
from dpfl.simulation.training.sampling_config import SamplingConfig

if TYPE_CHECKING:
    from experiments.planning.request import Request


def check(request: Request) -> None:
    """Raises ArgumentError if a request has values that its sampling has no use for."""
    if request.sampling == 'none':
        for name in ('groups', 'cohort_cap'):
            value = getattr(request, name)
            if value is not None:
                raise ArgumentError(name, value, 'needs a sampling that has it')
        return
    planning_config, schema = request.planning, request.schema
    for name, value in (
        ('timer_hours', schema['timer_hours']),
        ('min_separation', schema['min_separation']),
        ('max_participations', schema['max_participations']),
        ('target_rho', planning_config.target_rho),
        ('simulated_noise_multiplier', planning_config.simulated_noise_multiplier),
        ('simulated_clients_per_round', planning_config.simulated_clients_per_round),
        ('max_clients_per_round', planning_config.max_clients_per_round),
        ('sweep_min_separation', planning_config.sweep_min_separation),
        ('match', request.privacy.match),
    ):
        if value is not None:
            raise ArgumentError(name, NOT_SHOWN, f'cannot be combined with {_shown(request)}')
    if planning_config.availability != 1:
        raise ArgumentError(
            'availability', planning_config.availability, f'must be 1 with {_shown(request)}'
        )
    if planning_config.failure_probability != type(planning_config).failure_probability:
        raise ArgumentError(
            'failure_probability',
            planning_config.failure_probability,
            f'cannot be combined with {_shown(request)}',
        )
    if request.privacy.mechanism == AUTO and planning_config.mechanisms is None:
        raise ArgumentError('mechanism', AUTO, f'cannot be combined with {_shown(request)}')


def plan(
    request: Request,
    mechanism: mechanisms.Mechanism,
    deployment: planning.Deployment,
    noise_multiplier: float | None,
) -> accounting.PrivacyPlan:
    """The plan of a request with sampling.

    Args:
      request: has an amount of noise, or a target epsilon.
      mechanism: for at least as many rounds as the deployment.
      deployment: population, cohort size and rounds.
      noise_multiplier: that of the mechanism alone; None for the amount of the request.

    Raises:
      ArgumentError: if the mechanism cannot have the sampling, or no noise meets the target.
    """
    privacy, cohort = request.privacy, deployment.clients_per_round
    schema = Participation(deployment.rounds)
    fields: dict[str, Any] = dict(
        mechanism=mechanism.with_rounds(deployment.rounds),
        participation=schema,
        clip_norm=privacy.clip_norm,
        clients_per_round=cohort,
        adjacency=privacy.adjacency,
        discretization=plan_lib.discretization(privacy, privacy.clip_norm, cohort),
    )
    fields |= plan_lib.sampling_fields(
        SamplingConfig(
            sampling=request.sampling,
            population=deployment.population,
            clients_per_round=cohort,
            groups=request.groups,
            cohort_cap=request.cohort_cap,
        ),
        mechanism,
        schema,
        lambda: deployment.population,
    )
    if privacy.target_epsilon is not None:
        with renaming(epsilon='target_epsilon'):
            return accounting.PrivacyPlan.calibrated(
                epsilon=privacy.target_epsilon,
                delta=privacy.delta,
                accountant=request.accountant,
                **fields,
            )
    noise = privacy.noise_multiplier if noise_multiplier is None else noise_multiplier
    assert noise is not None  # `Request.check` requires an amount of noise.
    return accounting.PrivacyPlan(noise_multiplier=noise, **fields)


def _shown(request: Request) -> str:
    return f'sampling={request.sampling}'
