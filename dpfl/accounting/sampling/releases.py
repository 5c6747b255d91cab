"""What a run with sampling releases about one client, as events of dp_accounting."""

from collections.abc import Sequence

import dp_accounting

from dpfl import mechanisms
from dpfl.accounting.plan_values import PlanValues
from dpfl.accounting.sampling import cyclic, estimates
from dpfl.accounting.sampling.truncated import TruncatedPoissonDpEvent
from dpfl.mechanisms import rounding


def of_every_client(plan: PlanValues, noise_multiplier: float) -> dp_accounting.DpEvent:
    """One event that is at least as bad as what a run releases about any client.

    Args:
      plan: with sampling, without regard to earlier runs.
      noise_multiplier: of the run.
    """
    if plan.sampling in estimates.SAMPLINGS:
        # Without what the sampling adds, which no event says.
        return dp_accounting.GaussianDpEvent(noise_multiplier / plan.shift / largest_norm(plan))
    if plan.sampling == 'cyclic_poisson':
        turns = cyclic.every_group(_mechanism(plan), _groups(plan))
        return _of_turns(plan, turns, noise_multiplier)
    assert plan.population is not None  # As checked with sampling.
    release = dp_accounting.GaussianDpEvent(noise_multiplier / plan.shift)
    if plan.sampling == 'poisson':
        one_round = dp_accounting.PoissonSampledDpEvent(
            plan.clients_per_round / plan.population, release
        )
    elif plan.sampling == 'truncated_poisson':
        assert plan.cohort_cap is not None  # As checked with this sampling.
        one_round = TruncatedPoissonDpEvent(
            plan.population, plan.clients_per_round / plan.population, plan.cohort_cap, release
        )
    else:
        one_round = dp_accounting.SampledWithoutReplacementDpEvent(
            plan.population, plan.clients_per_round, release
        )
    return dp_accounting.SelfComposedDpEvent(one_round, plan.participation.rounds)


def of_worst_clients(plan: PlanValues) -> Sequence[dp_accounting.DpEvent]:
    """Events of which one is the worst that a run, with noise, releases about any client."""
    if plan.sampling != 'cyclic_poisson':
        return [of_every_client(plan, plan.noise_multiplier)]
    return [
        _of_turns(plan, turns, plan.noise_multiplier)
        for turns in cyclic.worst_groups(_mechanism(plan), _groups(plan))
    ]


def largest_norm(plan: PlanValues) -> float:
    """How far a client moves what is released, by the shift of a round's sum.

    A round moves it by 1 for independent noise. For samplings whose guarantee is estimated it
    is the norm of all rounds of a client.
    """
    if plan.sampling in estimates.SAMPLINGS:
        return rounding.root_up(estimates.mixtures(plan).squared_norm)
    if plan.sampling != 'cyclic_poisson':
        return 1.0
    return max(turns[0][0] for turns in cyclic.worst_groups(_mechanism(plan), _groups(plan)))


def _of_turns(
    plan: PlanValues, turns: cyclic.Turns, noise_multiplier: float
) -> dp_accounting.DpEvent:
    assert plan.population is not None  # As checked with sampling.
    probability = plan.clients_per_round * _groups(plan) / plan.population
    return dp_accounting.ComposedDpEvent(
        [
            dp_accounting.SelfComposedDpEvent(
                dp_accounting.PoissonSampledDpEvent(
                    probability, dp_accounting.GaussianDpEvent(noise_multiplier / plan.shift / norm)
                ),
                count,
            )
            for norm, count in turns
        ]
    )


def _mechanism(plan: PlanValues) -> mechanisms.Mechanism:
    """The mechanism over the rounds of the plan."""
    return plan.mechanism.with_rounds(plan.participation.rounds)


def _groups(plan: PlanValues) -> int:
    assert plan.groups is not None  # As checked with cyclic Poisson sampling.
    return plan.groups
