"""What a participation log says about a plan: what happened, and the guarantee that follows."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from dpfl import mechanisms
from dpfl.accounting.plan import PrivacyPlan
from dpfl.mechanisms import rounding
from dpfl.mechanisms.sensitivities import pattern_sensitivity
from dpfl.participation import Participation, ParticipationLog


@dataclasses.dataclass(frozen=True)
class Guarantee:
    """Limits of participation, and the guarantee that follows from them.

    Attributes:
      rounds, min_separation: the limits.
      max_participations: the limit, lowered to what rounds and separation allow.
      sensitivity, sensitivity_is_exact: for clip norm 1 under the adjacency; of the whole run, or
        with sampling of one round; with bins of all rounds of a client.
      rho, mu: zCDP and Gaussian DP parameters; None without noise or with sampling.
      epsilons: one for each delta; None without noise.
      accountants: which accountant showed each epsilon. It is the report's, unless that is 'best'
        or had no value; then it is the best of the others.
    """

    rounds: int
    min_separation: int
    max_participations: int
    sensitivity: float
    sensitivity_is_exact: bool
    rho: float | None
    mu: float | None
    epsilons: tuple[float | None, ...]
    accountants: tuple[str, ...] = ()

    @classmethod
    def of(cls, plan: PrivacyPlan, deltas: Sequence[float], accountant: str) -> 'Guarantee':
        """The guarantee of a plan at each delta."""
        bounds = [plan.bound(delta, accountant) for delta in deltas]
        return cls(
            rounds=plan.participation.rounds,
            min_separation=plan.participation.min_separation,
            max_participations=plan.participation.count,
            sensitivity=plan.sensitivity,
            sensitivity_is_exact=plan.sensitivity_is_exact,
            rho=_finite(plan.rho),
            mu=_finite(plan.mu),
            epsilons=tuple(_finite(bound.epsilon) for bound in bounds),
            accountants=tuple(bound.accountant for bound in bounds),
        )

    def with_sensitivity(
        self,
        sensitivity: float,
        is_exact: bool,
        plan: PrivacyPlan,
        deltas: Sequence[float],
        accountant: str,
    ) -> 'Guarantee':
        """The guarantee for another sensitivity of the run, for a plan without sampling."""
        mu = plan.mu_of_sensitivity(sensitivity)
        bounds = [plan.bound_of_sensitivity(sensitivity, delta, accountant) for delta in deltas]
        return dataclasses.replace(
            self,
            sensitivity=sensitivity,
            sensitivity_is_exact=is_exact,
            rho=_finite(mu * mu / 2),
            mu=_finite(mu),
            epsilons=tuple(_finite(bound.epsilon) for bound in bounds),
            accountants=tuple(bound.accountant for bound in bounds),
        )


@dataclasses.dataclass(frozen=True)
class Observed:
    """What the participation log says.

    Attributes:
      guarantee: for the limits that every client in the log kept.
      patterns: for exactly the rounds in which the clients of the log took part, without relying on
        sampling. It is the smallest, and holds for these clients only.
      clients: number of clients that took part.
      smallest_cohort, largest_cohort: least and largest number of clients in a round.
      clients_by_participations: how many clients took part how often, as ((times, clients), ...).
      violations: how the log breaks the plan, one sentence each; empty if it keeps the plan.
    """

    guarantee: Guarantee
    patterns: Guarantee
    clients: int
    smallest_cohort: int
    largest_cohort: int
    clients_by_participations: tuple[tuple[int, int], ...]
    violations: tuple[str, ...]


def observe(
    plan: PrivacyPlan, log: ParticipationLog, deltas: Sequence[float], accountant: str
) -> Observed | None:
    """Compares a log with a plan; None if the log holds no round."""
    if not log.rounds:
        return None
    seen, sizes = log.observed(), log.cohort_sizes
    violations = _violations(plan, log, seen)
    plain = plan.without_sampling(seen)
    method = accountant if accountant in plain.accountants else 'best'
    limits = Guarantee.of(plain, deltas, method)
    patterns = (
        pattern_sensitivity.of_log(plain.mechanism, log)
        if sizes.any()
        else mechanisms.Sensitivity(0.0, is_exact=True)
    )
    attained = plain.with_rounding(plain.shift_of_group * rounding.root_up(patterns.squared))
    exact = patterns.is_exact and plan.shift_is_exact
    if plan.sampling == 'none' or log.max_per_round > 1 or _sampling_violations(plan, log):
        # A client that is counted m times in one round adds m updates of the clip norm.
        guarantee = (
            limits
            if log.max_per_round == 1
            else limits.with_sensitivity(
                log.max_per_round * limits.sensitivity, False, plain, deltas, method
            )
        )
    else:
        schema = dataclasses.replace(plan.participation, rounds=seen.rounds)
        guarantee = Guarantee.of(plan.with_participation(schema), deltas, accountant)
    return Observed(
        guarantee=guarantee,
        patterns=limits.with_sensitivity(attained, exact, plain, deltas, method),
        clients=log.statistics().clients,
        smallest_cohort=int(sizes.min()),
        largest_cohort=int(sizes.max()),
        clients_by_participations=tuple(log.statistics().participations.items()),
        violations=violations,
    )


def _finite(value: float | None) -> float | None:
    return None if value is None or math.isinf(value) else value


def _violations(plan: PrivacyPlan, log: ParticipationLog, seen: Participation) -> tuple[str, ...]:
    violations: list[str] = []
    planned = plan.participation
    if seen.rounds > planned.rounds:
        violations.append(f'The run had {seen.rounds} rounds; the plan has {planned.rounds}.')
    if log.max_per_round > 1:
        violations.append(f'A client was counted {log.max_per_round} times in one round.')
    if seen.count > 1 and seen.min_separation < planned.min_separation:
        violations.append(
            f'A client took part in two rounds {seen.min_separation} apart; '
            f'the plan has at least {planned.min_separation}.'
        )
    if seen.max_participations is not None and seen.max_participations > planned.count:
        violations.append(
            f'A client took part in {seen.max_participations} rounds; '
            f'the plan has at most {planned.count}.'
        )
    return (*violations, *_sampling_violations(plan, log))


def _sampling_violations(plan: PrivacyPlan, log: ParticipationLog) -> list[str]:
    """How the cohorts cannot be those of the plan's sampling."""
    if plan.sampling == 'none':
        return []
    violations = []
    clients = log.statistics().clients
    if plan.population is not None and clients > plan.population:
        violations.append(f'{clients} clients took part; the population is {plan.population}.')
    if plan.sampling == 'random_allocation':
        violations += _second_rounds(log, plan.groups or 1)
    elif plan.groups is not None and plan.sampling != 'b_min_sep':
        by_client = log.by_client()
        turns = by_client.rounds % plan.groups
        others = np.flatnonzero(turns != np.repeat(turns[by_client.offsets[:-1]], by_client.counts))
        if others.size:
            client = np.searchsorted(by_client.offsets, others[0], side='right') - 1
            violations.append(
                f'Client {by_client.clients[client]} took part in rounds '
                f'{by_client.rounds[by_client.offsets[client]]} and {by_client.rounds[others[0]]}, '
                f'the turns of two of the {plan.groups} groups.'
            )
    sizes = log.cohort_sizes
    if plan.cohort_cap is not None and sizes.max() > plan.cohort_cap:
        violations.append(
            f'A cohort had {sizes.max()} clients; the plan has at most {plan.cohort_cap}.'
        )
    if plan.sampling == 'without_replacement' and (sizes != plan.clients_per_round).any():
        other = int(sizes[sizes != plan.clients_per_round][0])
        violations.append(
            f'A cohort had {other} clients; the plan samples {plan.clients_per_round}.'
        )
    return violations


def _second_rounds(log: ParticipationLog, epoch: int) -> list[str]:
    """Of the first client with two rounds in one epoch, if there is one."""
    by_client = log.by_client()
    client = np.repeat(np.arange(len(by_client.clients)), by_client.counts)
    epochs = by_client.rounds // epoch
    again = np.flatnonzero((np.diff(client) == 0) & (np.diff(epochs) == 0))
    if not again.size:
        return []
    first = again[0]
    return [
        f'Client {by_client.clients[client[first]]} took part in rounds {by_client.rounds[first]} '
        f'and {by_client.rounds[first + 1]}, of the same epoch of {epoch} rounds.'
    ]
