"""b-min-sep sampling: Poisson samples of the clients that have not just taken part."""

import dataclasses
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dpfl import mechanisms
from dpfl.accounting.evidence import separated as separated_evidence
from dpfl.accounting.evidence import unseen
from dpfl.accounting.evidence.refutation import LogTest
from dpfl.accounting.sampling import base, independent_cohorts, separated
from dpfl.accounting.sampling.estimates import Estimated
from dpfl.participation import Participation, ParticipationLog

if TYPE_CHECKING:
    from dpfl.accounting.plan import PrivacyPlan


@dataclasses.dataclass(frozen=True, kw_only=True)
class BMinSep(Estimated):
    """Each client that took part in none of the last `groups` - 1 rounds may take part ([Dong26]).

    All of these do so with one probability, independently of each other
    (docs/research/sampling_proofs.md). Waiting times start in their stationary distribution, so all
    cohorts have the same expected size.

    Attributes:
      groups: b, the separation of the rounds of a client, at least the bands of the strategy.
    """

    name: ClassVar[str] = 'b_min_sep'
    statistics = separated_evidence.STATISTICS

    @classmethod
    def defaults(
        cls, mechanism: mechanisms.Mechanism, population: int, clients_per_round: int
    ) -> dict[str, Any]:
        return {'groups': independent_cohorts.bands(mechanism, cls.name)}

    def _check(self, plan: 'PrivacyPlan') -> None:
        independent_cohorts.check_groups(self, plan, self.groups)
        super()._check(plan)

    def schema(self, rounds: int) -> Participation:
        return Participation(rounds, self.groups)

    def _probability(self, clients_per_round: int) -> float:
        return separated.probability(self.population, clients_per_round, self.groups)

    def cohorts(self, clients_per_round: int, seed: int) -> Callable[[int], np.ndarray]:
        p = self._probability(clients_per_round)
        waits = np.full(self.groups, p / (1 + (self.groups - 1) * p))
        waits[0] = 1 - waits[1:].sum()
        generator = np.random.default_rng([base.STREAM, seed])
        # First round in which each client may take part after the cohorts so far.
        returns = generator.choice(self.groups, size=self.population, p=waits)
        cohorts: list[np.ndarray] = []

        def cohort(round_index: int) -> np.ndarray:
            while len(cohorts) <= round_index:
                number = len(cohorts)
                # The size of a Poisson sample is binomial, all sets of that size equally likely.
                generator = base.generator_of(seed, number)
                size = generator.binomial(self.population, p)
                sample = generator.choice(self.population, size, replace=False)
                free = sample[returns[sample] <= number]
                returns[free] = number + self.groups
                cohorts.append(free)
            return cohorts[round_index]

        return cohort

    def mixtures(self, plan: 'PrivacyPlan') -> separated.Separated:
        probability = self._probability(plan.clients_per_round)
        return _mixtures(plan.mechanism_of_run, self.groups, probability)

    def log_tests(self, plan: 'PrivacyPlan', log: ParticipationLog) -> list[LogTest]:
        return separated_evidence.b_min_sep(
            log, self.population, plan.clients_per_round, self.groups
        )

    def unseen(self, plan: 'PrivacyPlan', rounds: int) -> list[str]:
        return unseen.separated_cohorts(
            self.population, plan.clients_per_round, self.groups, rounds
        )

    def title(self) -> str:
        return f'clients that took part in none of the last {self.groups - 1} rounds'

    def describe(self, plan: 'PrivacyPlan') -> str:
        waiting = self.groups - 1
        free = self.population - waiting * plan.clients_per_round
        return (
            f'in each of {plan.participation.rounds} rounds every client that took part in none of '
            f'the last {waiting} rounds takes part with probability '
            f'{plan.clients_per_round}/{free}, independently of all other clients and of its other '
            'rounds. Waiting times start in their stationary distribution: in round 0 a client has '
            f'yet to wait w rounds, for each w from 1 to {waiting} with probability '
            f'{plan.clients_per_round}/{self.population}, and otherwise may take part'
        )


@functools.lru_cache(4)
def _mixtures(
    mechanism: mechanisms.Mechanism, groups: int, probability: float
) -> separated.Separated:
    return separated.Separated.of_mechanism(mechanism, groups, probability)
