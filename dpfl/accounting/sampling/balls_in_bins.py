"""Balls-in-bins sampling and random allocation: clients pick their rounds by bins."""

import dataclasses
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dpfl import errors, mechanisms
from dpfl.accounting.evidence import bins as bins_evidence
from dpfl.accounting.evidence import unseen
from dpfl.accounting.evidence.refutation import LogTest
from dpfl.accounting.sampling import base, bins
from dpfl.accounting.sampling.estimates import Estimated
from dpfl.participation import Participation, ParticipationLog

if TYPE_CHECKING:
    from dpfl.accounting.plan import PrivacyPlan

# Relative error of the columns of C that the rounding of estimates covers.
_MOST_COLUMN_ERROR = 1e-9


@dataclasses.dataclass(frozen=True, kw_only=True)
class _InBins(Estimated):
    """Every client picks bins uniformly; round t has the clients of bin t mod `groups`.

    Cohorts have random sizes, and may be empty. Not for trees.
    """

    statistics = bins_evidence.STATISTICS

    @classmethod
    def defaults(
        cls, mechanism: mechanisms.Mechanism, population: int, clients_per_round: int
    ) -> dict[str, Any]:
        return {'groups': population // clients_per_round}

    def _check(self, plan: 'PrivacyPlan') -> None:
        if abs(plan.clients_per_round * self.groups - self.population) >= self.groups:
            raise errors.ArgumentError(
                'population',
                self.population,
                f'must be about {plan.clients_per_round * self.groups}, {self.groups} groups of '
                f'clients_per_round={plan.clients_per_round}, with sampling={self.name}',
            )
        if plan.mechanism.forest() is not None:
            raise errors.ArgumentError(
                'mechanism', plan.mechanism.name, f'cannot be a tree with sampling={self.name}'
            )
        if not plan.mechanism.column_error(plan.participation.rounds) <= _MOST_COLUMN_ERROR:
            raise errors.ArgumentError(
                'mechanism',
                plan.mechanism.name,
                f'must have parameters whose digits do not cancel with sampling={self.name}',
            )
        super()._check(plan)

    def _passes(self, seed: int) -> Callable[[int], list[np.ndarray]]:
        """The clients of each bin in a pass, by the number of the pass."""

        @functools.lru_cache(1)
        def clients(number: int) -> list[np.ndarray]:
            generator = np.random.default_rng([base.STREAM, seed, number])
            picked = generator.integers(self.groups, size=self.population)
            by_bin = np.argsort(picked, kind='stable')
            return np.split(by_bin, np.searchsorted(picked[by_bin], np.arange(1, self.groups)))

        return clients


@dataclasses.dataclass(frozen=True, kw_only=True)
class BallsInBins(_InBins):
    """Each client takes part in the rounds of one of `groups` bins ([Chua25], [Choquette25]).

    It picks its bin uniformly, once (docs/research/sampling_proofs.md).

    Attributes:
      groups: number of bins.
    """

    name: ClassVar[str] = 'balls_in_bins'

    def schema(self, rounds: int) -> Participation:
        return Participation(rounds, self.groups)

    def cohorts(self, clients_per_round: int, seed: int) -> Callable[[int], np.ndarray]:
        clients = self._passes(seed)
        return lambda t: clients(0)[t % self.groups]

    def mixtures(self, plan: 'PrivacyPlan') -> bins.Mixtures:
        return _mixtures(plan.mechanism_of_run, self.groups, bins.balls_in_bins)

    def log_tests(self, plan: 'PrivacyPlan', log: ParticipationLog) -> list[LogTest]:
        return bins_evidence.balls_in_bins(log, self.population, self.groups)

    def unseen(self, plan: 'PrivacyPlan', rounds: int) -> list[str]:
        return unseen.slots(self.population, self.groups, rounds, is_allocation=False)

    def title(self) -> str:
        return f'the rounds of one of {self.groups} bins for each client'

    def describe(self, plan: 'PrivacyPlan') -> str:
        return (
            f'each of the {self.population} clients has picked one of {self.groups} bins, '
            'uniformly and independently of all other clients, and never changes it. A client of '
            f'bin i takes part in the rounds i, i + {self.groups}, i + {2 * self.groups}, '
            f'... of {plan.participation.rounds} rounds, and in no others'
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomAllocation(_InBins):
    """Each client takes part in one random round of each `groups` rounds ([Feldman25]).

    It picks them uniformly and independently (docs/research/sampling_proofs.md).

    Attributes:
      groups: rounds of an epoch.
    """

    name: ClassVar[str] = 'random_allocation'

    def schema(self, rounds: int) -> Participation:
        # Rounds of two epochs may be neighbours.
        return Participation(rounds, 1, Participation(rounds, self.groups).count)

    def cohorts(self, clients_per_round: int, seed: int) -> Callable[[int], np.ndarray]:
        clients = self._passes(seed)
        return lambda t: clients(t // self.groups)[t % self.groups]

    def mixtures(self, plan: 'PrivacyPlan') -> bins.Mixtures:
        return _mixtures(plan.mechanism_of_run, self.groups, bins.allocation)

    def log_tests(self, plan: 'PrivacyPlan', log: ParticipationLog) -> list[LogTest]:
        return bins_evidence.random_allocation(log, self.population, self.groups)

    def unseen(self, plan: 'PrivacyPlan', rounds: int) -> list[str]:
        return unseen.slots(self.population, self.groups, rounds, is_allocation=True)

    def title(self) -> str:
        return f'one random round of each {self.groups} for each client'

    def describe(self, plan: 'PrivacyPlan') -> str:
        return (
            f'each of the {self.population} clients takes part in one round of each {self.groups}, '
            'which it picks uniformly and independently of all other clients and of its other '
            f'rounds, in {plan.participation.rounds} rounds'
        )


@functools.lru_cache(4)
def _mixtures(
    mechanism: mechanisms.Mechanism,
    groups: int,
    of_matrix: Callable[[np.ndarray, int], bins.Mixtures],
) -> bins.Mixtures:
    return of_matrix(np.abs(mechanism.strategy_matrix()), groups)
