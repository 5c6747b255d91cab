"""Plans with amplification by sampling, for `plan_privacy`."""

from typing import Any

from dpfl import accounting, mechanisms
from dpfl.accounting import planning
from dpfl.errors import renaming
from dpfl.participation import Participation
from dpfl.planning.request import Request
from dpfl.simulation.training.sampling_config import SamplingConfig


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
    noise = privacy.noise_multiplier if noise_multiplier is None else noise_multiplier
    assert noise is not None  # `Request.check` requires an amount of noise.
    return accounting.PrivacyPlan(noise_multiplier=noise, **fields)
