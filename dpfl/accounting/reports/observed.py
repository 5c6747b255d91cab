"""What a participation log says about a plan, and the guarantee that follows from both."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Annotated

from dpfl import _json, errors, mechanisms
from dpfl._validate import Deviations, Limits, Nats, Rounds
from dpfl.accounting import gaussian
from dpfl.accounting.evidence import refutation
from dpfl.accounting.evidence.refutation import LogTest
from dpfl.accounting.plan import PrivacyPlan
from dpfl.mechanisms import rounding
from dpfl.mechanisms.sensitivities import pattern_sensitivity
from dpfl.participation import Participation, ParticipationLog

# Which method showed an epsilon; 'best' is a choice among the others.
METHODS = (*(name for name in gaussian.ACCOUNTANTS if name != 'best'), 'monte_carlo')
Count = Annotated[int, Limits('clients', minimum=0)]


@dataclasses.dataclass(frozen=True)
class Guarantee:
    """Limits of participation, and the guarantee that follows from them.

    Attributes:
      rounds: rounds of the schema.
      min_separation: least distance j - i of two rounds i < j of one client.
      max_participations: most rounds of one client, as the other limits allow.
      sensitivity: sensitivity for clip norm 1 under the adjacency; of the whole run, or with
        sampling of one round; with bins of all rounds of a client.
      sensitivity_is_exact: whether the sensitivity is attained; otherwise it is an upper bound.
      rho: zCDP parameter; None without noise or with sampling.
      mu: Gaussian DP parameter; None without noise or with sampling.
      epsilons: one for each delta; None without noise.
      accountants: which accountant showed each epsilon. It is the report's, unless that is 'best'
        or had no value; then it is the best of the others.
    """

    rounds: Rounds
    min_separation: Rounds
    max_participations: Rounds
    sensitivity: Annotated[float, Limits('clip norms', minimum=0)]
    sensitivity_is_exact: bool
    rho: Nats | None
    mu: Deviations | None
    epsilons: tuple[Nats | None, ...]
    accountants: tuple[Annotated[str, Limits(choices=METHODS)], ...] = ()

    @property
    def epsilon(self) -> Nats | None:
        """Epsilon at the first delta; None without noise."""
        return self.epsilons[0]

    @classmethod
    def of(
        cls,
        plan: PrivacyPlan,
        deltas: Sequence[float],
        accountant: str,
        sensitivity: float | None = None,
        *,
        is_exact: bool = False,
    ) -> 'Guarantee':
        """The guarantee of a plan at each delta.

        Args:
          plan: of the run.
          deltas: each strictly between 0 and 1.
          accountant: one of `plan.accountants`.
          sensitivity: of the rounds, in place of the plan's; for plans without sampling.
          is_exact: whether a client attains this sensitivity.

        Raises:
          ArgumentError: if the plan has no proven sensitivity, or does not know the accountant.
        """
        if math.isinf(plan.sensitivity if sensitivity is None else sensitivity):
            raise errors.ArgumentError(
                'noise_multiplier',
                plan.noise_multiplier,
                'must be larger: with so little noise no bound on the sensitivity is proven',
            )
        if sensitivity is None:
            sensitivity, is_exact = plan.sensitivity, plan.sensitivity_is_exact
            mu, bounds = plan.mu, [plan.bound(delta, accountant) for delta in deltas]
        else:
            run = plan.run_of_sensitivity(sensitivity)
            mu = run.total_mu
            bounds = [run.bound(delta, accountant, plan.neighbours) for delta in deltas]
        return cls(
            rounds=plan.participation.rounds,
            min_separation=plan.participation.min_separation,
            max_participations=plan.participation.count,
            sensitivity=sensitivity,
            sensitivity_is_exact=is_exact,
            rho=None if mu is None else _json.finite(mu * mu / 2),
            mu=_json.finite(mu),
            epsilons=tuple(_json.finite(bound.epsilon) for bound in bounds),
            accountants=tuple(bound.accountant for bound in bounds),
        )


@dataclasses.dataclass(frozen=True)
class Observed:
    """What a participation log says: no guarantee, but all of a log that guarantees depend on.

    Attributes:
      planned: the schema of the plan that the log was compared with.
      limits: the tightest schema that every client in the log kept; its rounds are those of the
        log.
      max_per_round: largest number of times that one client is listed in one round.
      pattern_sensitivity: for clip norm 1 under the adjacency, for exactly the rounds in which the
        clients of the log took part; it holds for these clients only.
      pattern_is_exact: whether a client attains it.
      clients: number of clients that took part.
      smallest_cohort: number of clients in the smallest cohort.
      largest_cohort: number of clients in the largest cohort.
      clients_by_participations: how many clients took part how often, as ((times, clients), ...).
      refutations: tests of the log that refute the sampling of the plan.
    """

    planned: Participation = dataclasses.field(compare=False)
    limits: Participation
    max_per_round: int
    pattern_sensitivity: float
    pattern_is_exact: bool
    clients: Count
    smallest_cohort: Count
    largest_cohort: Count
    clients_by_participations: tuple[tuple[Count, Count], ...]
    refutations: tuple[LogTest, ...]

    @property
    def repeats(self) -> Annotated[int, Limits(minimum=2)] | None:
        """How often a client was listed in one round; None if at most once."""
        return self.max_per_round if self.max_per_round > 1 else None

    @property
    def rounds(self) -> int:
        """Number of rounds in the log."""
        return self.limits.rounds

    @property
    def violations(self) -> tuple[str, ...]:
        """How the log breaks the plan or refutes its sampling, one sentence each."""
        return (
            *wider_limits(self.planned, self.limits, self.max_per_round),
            *(test.sentence for test in self.refutations),
        )

    def so_far(self, plan: PrivacyPlan) -> PrivacyPlan:
        """The plan of the rounds in the log.

        A plan that the log breaks keeps nothing of its sampling, and the limits are those that the
        clients of the log kept.
        """
        if self.violations or plan.sampling is None:
            return plan.without_sampling(self.limits)
        return plan.with_participation(plan.participation.within(self.rounds))

    def holding(self, plan: PrivacyPlan) -> PrivacyPlan:
        """The plan of the whole run, with all planned rounds.

        It is `plan` if the log keeps it. Otherwise nothing of the sampling counts, and the limits
        are those that the clients of the log kept. If planned rounds are missing in the log, they
        may come later: no limit is then tighter than that of the plan, and a client that came too
        soon may come again, each time after the planned separation.
        """
        if not self.violations:
            return plan
        planned, limits = plan.participation, self.limits
        if limits.rounds < planned.rounds:
            apart = planned.min_separation
            if limits.count > 1:
                apart = min(apart, limits.min_separation)
            last = (limits.count - 1) * limits.min_separation
            again = max(limits.rounds, last + planned.min_separation)
            most = limits.count + max(0, -(-(planned.rounds - again) // planned.min_separation))
            if planned.max_participations is not None:
                most = min(most, max(limits.count, planned.max_participations))
            limits = Participation(planned.rounds, apart, max(planned.count, most))
        return plan.without_sampling(limits)


def observe(plan: PrivacyPlan, log: ParticipationLog) -> Observed | None:
    """Compares a log with a plan; None if the log holds no round."""
    if not log.rounds:
        return None
    limits, sizes, statistics = log.observed(), log.cohort_sizes, log.statistics()
    limits = dataclasses.replace(limits, max_participations=limits.count)
    plain = plan.without_sampling(limits)
    patterns = (
        pattern_sensitivity.of_log(plain.mechanism, log)
        if sizes.any()
        else mechanisms.Sensitivity(0.0, is_exact=True)
    )
    return Observed(
        planned=plan.participation,
        limits=limits,
        max_per_round=log.max_per_round,
        pattern_sensitivity=plain.sensitivity_of_norm(rounding.root_up(patterns.squared)),
        pattern_is_exact=patterns.is_exact and all(part.is_attained for part in plain.parts),
        clients=statistics.clients,
        smallest_cohort=int(sizes.min()),
        largest_cohort=int(sizes.max()),
        clients_by_participations=tuple(statistics.participations.items()),
        refutations=refutation.refutations(plan, log),
    )


def wider_limits(planned: Participation, seen: Participation, max_per_round: int) -> list[str]:
    """How the limits that a log shows are wider than those of the plan, one sentence each."""
    violations: list[str] = []
    if seen.rounds > planned.rounds:
        violations.append(f'The run had {seen.rounds} rounds; the plan has {planned.rounds}.')
    if max_per_round > 1:
        violations.append(f'A client was counted {max_per_round} times in one round.')
    if seen.count > 1 and seen.min_separation < planned.min_separation:
        violations.append(
            f'A client took part in two rounds {seen.min_separation} apart; '
            f'the plan has at least {planned.min_separation}.'
        )
    if seen.count > planned.count:
        violations.append(
            f'A client took part in {seen.count} rounds; the plan has at most {planned.count}.'
        )
    return violations
