"""The plan of a run for another population and cohort size. No flags, no TensorFlow."""

import dataclasses
from typing import Any

from dpfl import _validate, errors
from dpfl.accounting import planning
from dpfl.accounting.plan import PrivacyPlan


@dataclasses.dataclass(frozen=True)
class ScaledUp:
    """A plan for more clients, and its guarantee.

    Attributes:
      plan: the plan.
      delta: delta of the guarantee.
      epsilon: epsilon at that delta, by the accountant of the run.
    """

    plan: PrivacyPlan
    delta: float
    epsilon: float


def scaled(
    plan: PrivacyPlan, population: int, cohort: int, max_separation: int | None = None
) -> PrivacyPlan:
    """A plan for another population and cohort size, with the same noise on the mean update.

    Args:
      plan: the plan of the run, with noise.
      population: number of clients.
      cohort: number of clients in a round.
      max_separation: largest separation that is enforced without sampling; None for the largest
        that the population allows.

    Raises:
      ValueError: if the population cannot provide such cohorts.
    """
    ratio = cohort / plan.clients_per_round
    simulation = planning.Simulation(plan.noise_multiplier, plan.clients_per_round)
    fields: dict[str, Any] = dict(
        clients_per_round=cohort,
        noise_multiplier=simulation.scaled(cohort),
        estimator=plan.estimator.scaled(ratio),
        adaptive_clip=plan.adaptive_clip and plan.adaptive_clip.scaled(ratio),
    )
    if plan.sampling is not None:
        _validate.integer('population', population, minimum=cohort)
        fields['sampling'] = plan.sampling.scaled(population, ratio)
        return dataclasses.replace(plan, **fields)
    deployment = planning.Deployment(
        population=population, clients_per_round=cohort, rounds=plan.participation.rounds
    )
    schema = deployment.participation
    if max_separation is not None:
        least = min(max_separation, schema.min_separation)
        schema = dataclasses.replace(schema, min_separation=least)
    return dataclasses.replace(plan, participation=schema, **fields)


def with_cohort_scaled(plan: PrivacyPlan, scale: float, population: int) -> PrivacyPlan:
    """The plan with `scale` times the clients per round and the noise multiplier.

    The noise in the mean of a round has a standard deviation of clip norm x noise multiplier /
    clients per round, so it stays the same ([Augenstein20], section 6, "Privacy at Scale").

    Args:
      plan: of the run.
      scale: must make whole cohorts.
      population: number of clients; used only with sampling.

    Raises:
      ArgumentError: if there is no such plan.
    """
    clients = plan.clients_per_round * scale
    if not (clients >= 1 and clients.is_integer()):
        raise errors.ArgumentError(
            'scale', scale, f'must make whole cohorts of {plan.clients_per_round} clients per round'
        )
    sampling = plan.sampling
    return dataclasses.replace(
        plan,
        noise_multiplier=plan.noise_multiplier * scale,
        estimator=plan.estimator.scaled(scale),
        clients_per_round=int(clients),
        sampling=None if sampling is None else sampling.scaled(population, scale),
    )
