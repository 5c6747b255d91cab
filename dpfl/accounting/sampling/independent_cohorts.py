"""Cohorts that are drawn independently of each other: Poisson samples, and sets of one size.

Poisson samples, of which each client is a part by a draw of its own, also come with a cap, and in
turns.

In turns it is cyclic Poisson sampling with correlated noise ([Choquette23], theorem 4 and algorithm
3). Clients are divided into b groups, once and without looking at their data. Round t draws its
cohort from group t mod b: each client of the group takes part with probability q, independently. If
the strategy C has at most b bands, no row of C mixes two turns of one group. So each turn is a
Poisson sampled Gaussian release of its own, whose sensitivity is the norm of its column of C, and a
run is the composition of the turns of one group. docs/research/sampling_proofs.md has the proof.
"""

import abc
import dataclasses
import functools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np

from dpfl import _validate, errors, mechanisms
from dpfl._validate import Limits
from dpfl.accounting import dp
from dpfl.accounting.evidence import independent_rounds, unseen
from dpfl.accounting.evidence.refutation import LogTest
from dpfl.accounting.sampling import base
from dpfl.participation import Participation, ParticipationLog

if TYPE_CHECKING:
    from dpfl.accounting.plan import PrivacyPlan

# Turns of one group: (norm of the column, number of such turns), the largest norm first.
Turns = tuple[tuple[float, int], ...]

# Norms that differ by less than this share count as the largest of them. If there are too many
# different ones, larger shares do.
_SHARE, _COARSER = 1e-9, 8.0
_MOST_NORMS = 16
_MOST_GROUPS = 8
# Most different groups whose turns are compared pair by pair.
_MOST_PAIRED = 256


def bands(mechanism: mechanisms.Mechanism, sampling: str) -> int:
    """Number of diagonals of C outside of which all entries are 0, from how the mechanism is held.

    A lower-triangular matrix has at most one diagonal for each round.

    Raises:
      ArgumentError: if the accounting of the mechanism counts other releases than `C x + z`, as
        that of trees does.
    """
    if mechanism.forest() is not None:
        raise errors.ArgumentError(
            'mechanism',
            mechanism.name,
            f'cannot be a tree with sampling={sampling}, which needs a banded strategy',
        )
    diagonals = mechanism.strategy_bands
    return mechanism.rounds if diagonals is None else min(diagonals, mechanism.rounds)


@functools.lru_cache(16)
def worst_groups(mechanism: mechanisms.Mechanism, groups: int) -> tuple[Turns, ...]:
    """The turns of the groups that can be the worst, at most a few.

    A group is left out if another group dominates it: has no fewer turns, and norms that are at
    least as large, compared from the largest down. Norms are rounded up where necessary, so that
    few different releases remain.

    Args:
      mechanism: over the rounds of the run, with at most `groups` bands.
      groups: number of groups, at least 1.
    """
    table = _norms(mechanism, groups)
    share = _SHARE
    while True:
        rounded = _rounded_up(table, share)
        candidates = np.unique(rounded, axis=1)
        envelope = candidates.max(axis=1)
        attained = (candidates == envelope[:, None]).all(axis=0)
        if attained.any():
            candidates = envelope[:, None]
        if candidates.shape[1] <= _MOST_PAIRED:
            # Without columns that are at most as large as another one in all rows.
            below = np.all(candidates[:, :, None] <= candidates[:, None, :], axis=0)
            np.fill_diagonal(below, False)
            candidates = candidates[:, ~np.any(below, axis=1)]
            norms = np.count_nonzero(np.unique(candidates))
            if norms <= _MOST_NORMS and candidates.shape[1] <= _MOST_GROUPS:
                return tuple(_counted(turns) for turns in candidates.T)
        share *= _COARSER


def every_group(mechanism: mechanisms.Mechanism, groups: int) -> Turns:
    """Turns that are at least as bad as those of every group, for composition with other runs.

    The largest norms of all groups, the second largest of all groups, and so on.
    """
    worst = worst_groups(mechanism, groups)
    most = max(sum(count for _, count in turns) for turns in worst)
    table = np.zeros((len(worst), most))
    for row, turns in zip(table, worst, strict=True):
        norms = np.repeat([norm for norm, _ in turns], [count for _, count in turns])
        row[: norms.size] = norms
    return _counted(table.max(axis=0))


def _norms(mechanism: mechanisms.Mechanism, groups: int) -> np.ndarray:
    """Norms of the columns of C, never below the true ones, by turn and group.

    Returns:
      float64 [turns, groups], the largest of each group first.
    """
    norms = mechanism.column_norms()
    if not mechanism.is_identity:
        # A sum of at most `rounds` squares, and a root; see `rounding.sum_up`.
        norms = norms * (1 + 2 * (2 * mechanism.rounds + 4) * 2.0**-53)
    turns = -(-norms.size // groups)
    padded = np.zeros(turns * groups)
    padded[: norms.size] = norms
    return np.sort(padded.reshape(turns, groups), axis=0)[::-1]


def _rounded_up(table: np.ndarray, share: float) -> np.ndarray:
    """Each norm becomes the largest of those that are within about the share of it."""
    values, places = np.unique(table, return_inverse=True)
    positive = values > 0
    levels = np.full(values.size, -1, np.int64)
    levels[positive] = np.log(values[-1] / values[positive]) / share
    # Values ascend, so the last of each level is the largest of it.
    last = np.append(levels[1:] != levels[:-1], True)
    largest = values[np.flatnonzero(last)]
    return largest[np.cumsum(np.append(0, last[:-1]))][places].reshape(table.shape)


def _counted(norms: np.ndarray) -> Turns:
    """Norms as pairs of norm and count."""
    counts = Counter(norms[norms > 0].tolist())
    return tuple(sorted(counts.items(), reverse=True))


class IndependentRounds(base.Sampling):
    """Rounds that draw their cohorts independently of each other, for independent noise."""

    statistics = independent_rounds.STATISTICS

    def covers_hardened(self, plan: 'PrivacyPlan') -> bool:
        return plan.mechanism.is_identity

    def _check(self, plan: 'PrivacyPlan') -> None:
        if not plan.mechanism.is_identity:
            raise errors.ArgumentError(
                'sampling',
                self.name,
                'must be none, or cyclic_poisson, with correlated noise (mechanism '
                f'{plan.mechanism.name})',
            )

    def schema(self, rounds: int) -> Participation:
        return Participation(rounds)

    def cohorts(self, clients_per_round: int, seed: int) -> Callable[[int], np.ndarray]:
        def cohort(round_index: int) -> np.ndarray:
            generator = base.generator_of(seed, round_index)
            size = self._size(generator, clients_per_round)
            return generator.choice(self.population, size, replace=False)

        return cohort

    def _size(self, generator: np.random.Generator, clients_per_round: int) -> int:
        """The size of a cohort, by default the planned one; all sets of it are equally likely."""
        return clients_per_round

    def event(self, plan: 'PrivacyPlan', noise_multiplier: float) -> dp.Event:
        release = dp.GaussianDpEvent(noise_multiplier / plan.shift)
        one_round = self._round(plan, release)
        return dp.SelfComposedDpEvent(one_round, plan.participation.rounds)

    @abc.abstractmethod
    def _round(self, plan: 'PrivacyPlan', release: dp.Event) -> dp.Event:
        """A round, whose sum is released with noise."""

    def _rule(self, plan: 'PrivacyPlan') -> independent_rounds.Rule:
        return independent_rounds.Rule(self.population, plan.clients_per_round)


@dataclasses.dataclass(frozen=True, kw_only=True)
class WithoutReplacement(IndependentRounds):
    """A uniformly random set of `clients_per_round` clients in every round ([Augenstein20]).

    Population and cohorts of neighbouring runs have the same sizes. A cohort without a client holds
    another client in its place, which moves the sum by two clip norms, also if neighbours only zero
    the client out; see docs/research/sampling_proofs.md.

    Example:
      >>> WithoutReplacement(population=1000).cohorts(3, seed=0)(0).size
      3
    """

    name: ClassVar[str] = 'without_replacement'
    help: ClassVar[str] = 'a random sample of the planned size in every round'
    adjacencies: ClassVar[tuple[str, ...]] = ('zero_out', 'replace_one', 'replace_one_half_shift')
    covers_groups: ClassVar[bool] = True
    has_one_size: ClassVar[bool] = True
    is_attained = False

    def _check(self, plan: 'PrivacyPlan') -> None:
        super()._check(plan)
        for name in ('adaptive_clip', 'discretization'):
            # However near two updates are, their counts differ by 1, and so does their rounding.
            if plan.adjacency == 'replace_one_half_shift' and getattr(plan, name) is not None:
                raise errors.ArgumentError(
                    'adjacency', plan.adjacency, f'must be zero_out or replace_one with {name}'
                )

    def shift(self, plan: 'PrivacyPlan', shift: float) -> float:
        return shift * 2.0 if plan.adjacency == 'zero_out' else shift

    def _round(self, plan: 'PrivacyPlan', release: dp.Event) -> dp.Event:
        return dp.SampledWithoutReplacementDpEvent(self.population, plan.clients_per_round, release)

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Poisson(IndependentRounds):
    """Each client takes part with probability `clients_per_round / population` ([McMahan18]).

    It does so independently of the others. Zeroing a client out is then the same as removing it.

    Example:
      >>> cohort = Poisson(population=1000).cohorts(clients_per_round=3, seed=0)
      >>> cohort(0).size  # 3 on average.
      1
    """

    name: ClassVar[str] = 'poisson'
    help: ClassVar[str] = 'each client with one probability in every round'
    adjacencies: ClassVar[tuple[str, ...]] = ('zero_out', 'replace_one')
    covers_groups: ClassVar[bool] = True

    def _size(self, generator: np.random.Generator, clients_per_round: int) -> int:
        return generator.binomial(self.population, clients_per_round / self.population)

    def _round(self, plan: 'PrivacyPlan', release: dp.Event) -> dp.Event:
        return dp.PoissonSampledDpEvent(self._rule(plan).rate, release)

    def log_tests(self, plan: 'PrivacyPlan', log: ParticipationLog) -> list[LogTest]:
        return independent_rounds.poisson(self._rule(plan), log)

    def unseen(self, plan: 'PrivacyPlan', rounds: int) -> list[str]:
        return unseen.independent_cohorts(self._rule(plan), rounds)

    def title(self) -> str:
        return 'Poisson sampling'

    def describe(self, plan: 'PrivacyPlan') -> str:
        return (
            f'every client takes part in each of {plan.participation.rounds} rounds with '
            f'probability {plan.clients_per_round}/{self.population}, independently of all other '
            'clients and of other rounds'
        )

    def accounted(self, plan: 'PrivacyPlan', deltas: Sequence[float]) -> list[str]:
        text = 'Each round is accounted for as a Gaussian release of the sum over its sample.'
        if plan.group_size > 1:
            text += ' Members of a group are in the sample independently of each other.'
        if plan.adjacency == 'replace_one':
            text += ' A client that is replaced is in the sample as often as before.'
        return [text]

    def of_adjacency(self, adjacency: str) -> str:
        if adjacency != 'zero_out':
            return ''
        return 'With Poisson sampling this is the same as adding or removing the client.'


@dataclasses.dataclass(frozen=True, kw_only=True)
class TruncatedPoisson(Poisson):
    """Poisson sampling, but of more than `cohort_cap` clients a random subset of that size.

    [Ganesh25]; docs/research/sampling_proofs.md.

    Attributes:
      cohort_cap: largest size of a cohort, within 1 and the population.

    Example:
      >>> TruncatedPoisson(population=1000, cohort_cap=5).cohorts(3, seed=0)(0).size <= 5
      True
    """

    name: ClassVar[str] = 'truncated_poisson'
    help: ClassVar[str] = 'poisson with a largest cohort, --cohort_cap'
    adjacencies: ClassVar[tuple[str, ...]] = ('zero_out',)
    covers_groups: ClassVar[bool] = False

    cohort_cap: base.Clients

    def _check(self, plan: 'PrivacyPlan') -> None:
        super()._check(plan)
        _validate.integer('cohort_cap', self.cohort_cap, minimum=1, maximum=self.population)

    def covers_hardened(self, plan: 'PrivacyPlan') -> bool:
        return False

    def _size(self, generator: np.random.Generator, clients_per_round: int) -> int:
        return min(super()._size(generator, clients_per_round), self.cohort_cap)

    def _round(self, plan: 'PrivacyPlan', release: dp.Event) -> dp.Event:
        rate = self._rule(plan).rate
        return dp.TruncatedPoissonDpEvent(self.population, rate, self.cohort_cap, release)

    def scaled(self, population: int, ratio: float) -> 'TruncatedPoisson':
        cap = min(math.ceil(self.cohort_cap * ratio), population)
        return dataclasses.replace(self, population=population, cohort_cap=cap)

    def _rule(self, plan: 'PrivacyPlan') -> independent_rounds.Rule:
        return super()._rule(plan)._replace(cap=self.cohort_cap)

    def log_tests(self, plan: 'PrivacyPlan', log: ParticipationLog) -> list[LogTest]:
        return independent_rounds.truncated_poisson(self._rule(plan), log)

    def refuses_sizes(self, plan: 'PrivacyPlan', smallest: int, largest: int) -> bool:
        return largest > self.cohort_cap

    def title(self) -> str:
        return f'Poisson sampling, cut off at {self.cohort_cap} clients'

    def describe(self, plan: 'PrivacyPlan') -> str:
        return (
            f'every client is chosen in each of {plan.participation.rounds} rounds with '
            f'probability {plan.clients_per_round}/{self.population}, independently of all other '
            f'clients and of other rounds; of more than {self.cohort_cap} chosen clients, a '
            f'uniformly random set of {self.cohort_cap} takes part'
        )

    def accounted(self, plan: 'PrivacyPlan', deltas: Sequence[float]) -> list[str]:
        return [
            'Each round is accounted for as a Gaussian release on a Poisson sample if fewer '
            'other clients than the cap are chosen, and otherwise as one in which a client '
            'takes the place of another one (Ganesh et al. 2025). A client that is zeroed out '
            'keeps its place.'
        ]

    def of_adjacency(self, adjacency: str) -> str:
        return ''


@dataclasses.dataclass(frozen=True, kw_only=True)
class CyclicPoisson(Poisson):
    """Poisson sampling within groups that take turns; the noise may be correlated.

    Round t draws its cohort from group t mod `groups` ([Choquette23], theorem 4 and algorithm 3;
    docs/research/sampling_proofs.md): a client takes part in a turn of its group with probability
    `clients_per_round * groups / population`.

    Attributes:
      groups: number of groups, at least the bands of the strategy.

    Example:
      >>> CyclicPoisson(population=1000, groups=4).schema(10).min_separation
      4
    """

    name: ClassVar[str] = 'cyclic_poisson'
    help: ClassVar[str] = 'poisson within --groups that take turns, for banded noise too'
    adjacencies: ClassVar[tuple[str, ...]] = ('zero_out',)
    # Members of different groups share rows of the strategy, so that their turns do not compose.
    covers_groups: ClassVar[bool] = False

    groups: Annotated[int, Limits('groups', minimum=1)]

    @classmethod
    def defaults(
        cls, mechanism: mechanisms.Mechanism, population: int, clients_per_round: int
    ) -> dict[str, Any]:
        return {'groups': bands(mechanism, cls.name)}

    def _check(self, plan: 'PrivacyPlan') -> None:
        check_groups(self, plan, self.groups)

    def schema(self, rounds: int) -> Participation:
        return Participation(rounds, self.groups)

    def cohorts(self, clients_per_round: int, seed: int) -> Callable[[int], np.ndarray]:
        order = self._order(seed)
        probability = clients_per_round * self.groups / self.population

        def cohort(round_index: int) -> np.ndarray:
            generator = base.generator_of(seed, round_index)
            group = order[round_index % self.groups :: self.groups]
            size = generator.binomial(group.size, probability)
            # Places, since `choice` would copy the whole group.
            return group[generator.choice(group.size, size, replace=False)]

        return cohort

    def norm(self, plan: 'PrivacyPlan') -> float:
        return max(turns[0][0] for turns in self._worst_groups(plan))

    def event(self, plan: 'PrivacyPlan', noise_multiplier: float) -> dp.Event:
        turns = every_group(plan.mechanism_of_run, self.groups)
        return self._of_turns(plan, turns, noise_multiplier)

    def worst_events(self, plan: 'PrivacyPlan') -> Sequence[dp.Event]:
        return [
            self._of_turns(plan, turns, plan.noise_multiplier) for turns in self._worst_groups(plan)
        ]

    def _worst_groups(self, plan: 'PrivacyPlan') -> tuple[Turns, ...]:
        return worst_groups(plan.mechanism_of_run, self.groups)

    def _of_turns(self, plan: 'PrivacyPlan', turns: Turns, noise_multiplier: float) -> dp.Event:
        return dp.ComposedDpEvent(
            [
                dp.SelfComposedDpEvent(
                    self._round(
                        plan,
                        dp.GaussianDpEvent(noise_multiplier / plan.shift / norm),
                    ),
                    count,
                )
                for norm, count in turns
            ]
        )

    @property
    def public_groups(self) -> int:
        return self.groups

    def _order(self, seed: int) -> np.ndarray:
        return base.generator_before(seed).permutation(self.population)

    def group(self, index: int, seed: int) -> np.ndarray:
        # The first groups have one client more if they are not equally large.
        return self._order(seed)[index :: self.groups]

    @property
    def turn(self) -> int:
        return self.groups

    def _rule(self, plan: 'PrivacyPlan') -> independent_rounds.Rule:
        return super()._rule(plan)._replace(groups=self.groups)

    def title(self) -> str:
        return f'cyclic Poisson sampling from {self.groups} groups in turn'

    def describe(self, plan: 'PrivacyPlan') -> str:
        return (
            f'the {self.population} clients were divided into {self.groups} groups in advance, '
            'without looking at their data, and never change group. Round t chooses from group t '
            f'mod {self.groups} only: in each of {plan.participation.rounds} rounds every client '
            'of the group takes part with probability '
            f'{plan.clients_per_round * self.groups}/{self.population}, independently of all other '
            'clients and of other rounds'
        )

    def accounted(self, plan: 'PrivacyPlan', deltas: Sequence[float]) -> list[str]:
        return [
            'No row of the strategy C of the noise mixes two turns of a group, as C has at '
            f'most {self.groups} bands. Each turn is accounted for as a Gaussian release on a '
            'Poisson sample, with the norm of its column of C as sensitivity (Choquette-Choo '
            'et al. 2023, theorem 4). Epsilon is that of the worst group.'
        ]

    def of_adjacency(self, adjacency: str) -> str:
        return (
            'With cyclic Poisson sampling this is the same as adding or removing the client, if '
            'all other clients stay in their groups.'
        )


def check_groups(sampling: base.Sampling, plan: 'PrivacyPlan', groups: int) -> None:
    """Checks that no row of C mixes rounds of one client, which are at least `groups` apart.

    Raises:
      ArgumentError: if the population has too few clients, or the mechanism too many bands.
    """
    if plan.clients_per_round * groups > sampling.population:
        raise errors.ArgumentError(
            'population',
            sampling.population,
            f'must be at least {plan.clients_per_round * groups}, {groups} groups of '
            f'clients_per_round={plan.clients_per_round}',
        )
    widest = bands(plan.mechanism_of_run, sampling.name)
    if groups < widest:
        raise errors.ArgumentError(
            'groups',
            groups,
            f'must be at least {widest}, the bands of the strategy of mechanism '
            f'{plan.mechanism.name}',
        )
