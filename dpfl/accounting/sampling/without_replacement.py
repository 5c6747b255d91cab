"""Sampling without replacement: cohorts of one size."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

import dp_accounting
import numpy as np

from dpfl.accounting.evidence import independent_rounds, unseen
from dpfl.accounting.evidence.refutation import LogTest
from dpfl.accounting.sampling import base
from dpfl.participation import ParticipationLog

if TYPE_CHECKING:
    from dpfl.accounting.plan import PrivacyPlan


@dataclasses.dataclass(frozen=True, kw_only=True)
class WithoutReplacement(base.IndependentRounds):
    """A uniformly random set of `clients_per_round` clients in every round ([Augenstein20]).

    Population and cohorts of neighbouring runs have the same sizes. A cohort without a client holds
    another client in its place, which moves the sum by two clip norms, also if neighbours only zero
    the client out; see docs/research/sampling_proofs.md.
    """

    name: ClassVar[str] = 'without_replacement'
    adjacencies: ClassVar[tuple[str, ...]] = ('zero_out', 'replace_one', 'replace_one_half_shift')
    covers_groups: ClassVar[bool] = True
    has_one_size: ClassVar[bool] = True

    def cohorts(self, clients_per_round: int, seed: int) -> Callable[[int], np.ndarray]:
        def cohort(round_index: int) -> np.ndarray:
            generator = base.generator_of(seed, round_index)
            return generator.choice(self.population, clients_per_round, replace=False)

        return cohort

    def is_attained(self) -> bool:
        return False

    def shift(self, plan: 'PrivacyPlan', shift: float) -> float:
        return shift * 2.0 if plan.adjacency == 'zero_out' else shift

    def _round(
        self, plan: 'PrivacyPlan', release: dp_accounting.GaussianDpEvent
    ) -> dp_accounting.DpEvent:
        return dp_accounting.SampledWithoutReplacementDpEvent(
            self.population, plan.clients_per_round, release
        )

    def log_tests(self, plan: 'PrivacyPlan', log: ParticipationLog) -> list[LogTest]:
        return independent_rounds.without_replacement(self._rule(plan), log)

    def refuses_sizes(self, plan: 'PrivacyPlan', smallest: int, largest: int) -> bool:
        return {smallest, largest} != {plan.clients_per_round}

    def unseen(self, plan: 'PrivacyPlan', rounds: int) -> list[str]:
        return unseen.fixed_sizes(self._rule(plan), rounds)

    def title(self) -> str:
        return 'sampling without replacement'

    def describe(self, plan: 'PrivacyPlan') -> str:
        return (
            f'the cohort of each of {plan.participation.rounds} rounds is a uniformly random set '
            f'of {plan.clients_per_round} of {self.population} clients, drawn independently of '
            'other rounds'
        )

    def accounted(self, plan: 'PrivacyPlan', deltas: Sequence[float]) -> list[str]:
        text = (
            'A round with a sample without replacement is accounted for by a pair of distributions '
            'that dominates it (after Zhu, Dong and Wang 2022), or by theorem 27 of Wang, Balle '
            'and Kasiviswanathan 2018. Population and cohorts of neighbouring runs have the same '
            'sizes: a cohort without the client holds another one in its place, so '
        )
        if plan.adjacency == 'replace_one_half_shift':
            return [
                text + 'the sum of a round may move by two clip norms, but ONE IS COUNTED: the '
                'guarantee holds only if any two updates are at most one clip norm apart, which '
                'clipping does not ensure.'
            ]
        return [text + 'the sum of a round moves by up to two clip norms, as counted here.']
