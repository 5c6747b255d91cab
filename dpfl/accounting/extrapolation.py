"""The plan of a run for another population and cohort size. No flags, no TensorFlow."""

import dataclasses
from typing import Any

from dpfl import _validate, accounting
from dpfl.accounting import planning


def scaled(
    plan: accounting.PrivacyPlan, population: int, cohort: int, max_separation: int | None = None
) -> accounting.PrivacyPlan:
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
        clients_per_round=cohort, noise_multiplier=simulation.scaled(cohort)
    )
    if plan.adaptive_clip is not None and plan.adaptive_clip.count_stddev is not None:
        # The noise of the counts is in clients, so it grows with the cohort, as the default does.
        fields['adaptive_clip'] = dataclasses.replace(
            plan.adaptive_clip, count_stddev=plan.adaptive_clip.count_stddev * ratio
        )
    if plan.sampling != 'none':
        _validate.integer('population', population, minimum=cohort)
        return dataclasses.replace(plan, population=population, **fields)
    deployment = planning.Deployment(
        population=population, clients_per_round=cohort, rounds=plan.participation.rounds
    )
    schema = deployment.participation
    if max_separation is not None:
        least = min(max_separation, schema.min_separation)
        schema = dataclasses.replace(schema, min_separation=least)
    return dataclasses.replace(plan, participation=schema, **fields)
