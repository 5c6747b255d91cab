"""Which clients take part in a round.

A sampler is a pure function of its seed and the round. Its `amplification` names the sampling that
a plan's guarantee may rely on. It is 'none' unless cohorts are uniformly random and independent of
other rounds.
"""

import dataclasses
import functools
from typing import Any, ClassVar, Protocol, cast

import numpy as np

from dpfl import _validate, accounting, errors
from dpfl.participation import Participation, ParticipationLog
from dpfl.simulation import population as population_lib

# Separates this random stream from the others that a run derives from the same seed.
STREAM = 0x73616D70


class Sampler(Protocol):
    """Draws the cohorts for the training loop."""

    @property
    def amplification(self) -> str:
        """The sampling that a plan's guarantee may rely on; 'none' for no amplification."""

    @property
    def participation(self) -> Participation:
        """The participation schema that all cohorts keep."""

    def cohort(self, round_index: int) -> np.ndarray:
        """Clients of a round, int64 [cohort size].

        Raises:
          ValueError: if the run has no such round.
        """


class AmplifyingSampler(Sampler, Protocol):
    """A sampler with an `amplification` other than 'none'."""

    @property
    def population(self) -> int:
        """Number of clients from which cohorts are drawn."""

    @property
    def clients_per_round(self) -> int:
        """Size of a cohort; the expected size if sizes are random."""


@dataclasses.dataclass(frozen=True)
class MinSeparationSampler:
    """Cohorts that keep a participation schema over the whole run.

    The population is shuffled once with the seed, and the cohorts go through it in that order,
    round after round. A client returns after population / clients_per_round rounds, rounded down or
    up. The order stays the same in later passes: reshuffling could bring a client back in the very
    next round. A cohort is a pure function of (seed, round). The guarantee must not claim
    amplification by sampling.

    Attributes:
      participation: the schema; its rounds are those of the run.
      population: number of clients; they are 0 .. population - 1.
      clients_per_round: size of every cohort.
      seed: seed of the order of the clients, an integer >= 0.

    Raises:
      ValueError: if the population is too small for the schema.
    """

    amplification: ClassVar[str] = 'none'
    participation: Participation
    population: int
    clients_per_round: int
    seed: int = 0

    def __post_init__(self):
        schema = self.participation
        _validate.integer('clients_per_round', self.clients_per_round, minimum=1)
        _validate.integer('population', self.population, minimum=self.clients_per_round)
        _validate.integer('seed', self.seed, minimum=0)
        places = schema.rounds * self.clients_per_round
        apart = self.population // self.clients_per_round
        if places > self.population and apart < schema.min_separation:
            raise errors.ArgumentError(
                'population',
                self.population,
                f'must be at least {self.clients_per_round * schema.min_separation} for '
                f'clients_per_round={self.clients_per_round} and '
                f'min_separation={schema.min_separation}',
            )
        if places > self.population * schema.count:
            raise errors.ArgumentError(
                'population',
                self.population,
                f'must be at least {-(-places // schema.count)} for '
                f'rounds={schema.rounds}, clients_per_round={self.clients_per_round} and '
                f'max_participations={schema.count}',
            )

    @functools.cached_property
    def _order(self) -> np.ndarray:
        generator = np.random.default_rng([STREAM, self.seed])
        return generator.permutation(self.population)

    def cohort(self, round_index: int) -> np.ndarray:
        """Clients of a round, int64 [clients_per_round].

        Raises:
          ValueError: if the run has no such round.
        """
        _validate.integer('round', round_index, minimum=0, maximum=self.participation.rounds - 1)
        first = round_index * self.clients_per_round
        places = np.arange(first, first + self.clients_per_round) % self.population
        return self._order[places]


@dataclasses.dataclass(frozen=True)
class FixedSizeSampler:
    """Uniformly random cohorts of one size, drawn afresh in every round ([Augenstein20]).

    There is no bound on how often, or how soon again, a client takes part.

    Attributes:
      rounds: number of rounds, at least 1.
      population: number of clients; they are 0 .. population - 1.
      clients_per_round: size of every cohort.
      seed: an integer >= 0.
      amplification: 'without_replacement' if the guarantee relies on the sampling, else 'none'.

    Raises:
      ValueError: if a field is out of its range.
    """

    rounds: int
    population: int
    clients_per_round: int
    seed: int = 0
    amplification: str = 'without_replacement'

    def __post_init__(self):
        check_sizes(self)
        _validate.choice('amplification', self.amplification, ('none', 'without_replacement'))

    @property
    def participation(self) -> Participation:
        """The schema that is always kept: only the number of rounds."""
        return Participation(self.rounds)

    def cohort(self, round_index: int) -> np.ndarray:
        """Clients of a round, int64 [clients_per_round].

        Raises:
          ValueError: if the run has no such round.
        """
        generator = generator_of(self, round_index)
        return generator.choice(self.population, self.clients_per_round, replace=False)


@dataclasses.dataclass(frozen=True)
class PoissonSampler:
    """Poisson sampling: each client takes part in each round independently ([McMahan18]).

    With a cap it is truncated Poisson sampling: a uniformly random subset of larger samples takes
    part.

    Attributes:
      rounds: number of rounds, at least 1.
      population: number of clients; they are 0 .. population - 1.
      clients_per_round: expected size of a cohort. The probability of taking part is
        clients_per_round / population.
      seed: an integer >= 0.
      cohort_cap: largest size of a cohort, at least 1; None for any size.

    Raises:
      ValueError: if a field is out of its range.
    """

    rounds: int
    population: int
    clients_per_round: int
    seed: int = 0
    cohort_cap: int | None = None

    def __post_init__(self):
        check_sizes(self)
        if self.cohort_cap is not None:
            _validate.integer('cohort_cap', self.cohort_cap, minimum=1, maximum=self.population)

    @property
    def amplification(self) -> str:
        """The sampling that a plan's guarantee may rely on."""
        return 'poisson' if self.cohort_cap is None else 'truncated_poisson'

    @property
    def participation(self) -> Participation:
        """The schema that is always kept: only the number of rounds."""
        return Participation(self.rounds)

    def cohort(self, round_index: int) -> np.ndarray:
        """Clients of a round, int64 [any number]; may be empty.

        Raises:
          ValueError: if the run has no such round.
        """
        generator = generator_of(self, round_index)
        # The size of a Poisson sample is binomial, and all sets of that size are equally likely.
        size = generator.binomial(self.population, self.clients_per_round / self.population)
        size = size if self.cohort_cap is None else min(size, self.cohort_cap)
        return generator.choice(self.population, size, replace=False)


@dataclasses.dataclass(frozen=True)
class CyclicPoissonSampler:
    """Poisson sampling within groups that take turns ([Choquette23], algorithm 3).

    The clients are divided into groups of equal size, up to one client, at random by the seed.
    Round t draws its cohort from group t mod groups.

    Attributes:
      rounds: number of rounds, at least 1.
      population: number of clients; they are 0 .. population - 1.
      clients_per_round: expected size of a cohort. The probability with which a client takes part
        in a turn of its group is clients_per_round * groups / population, at most 1. If the groups
        are not equally large, the expected size is exact on average over the groups.
      groups: number of groups, at least 1.
      seed: an integer >= 0.

    Raises:
      ValueError: if a field is out of its range.
    """

    amplification: ClassVar[str] = 'cyclic_poisson'
    rounds: int
    population: int
    clients_per_round: int
    groups: int
    seed: int = 0

    def __post_init__(self):
        check_sizes(self)
        _validate.integer('groups', self.groups, minimum=1)
        _validate.integer(
            'population', self.population, minimum=self.clients_per_round * self.groups
        )

    @property
    def participation(self) -> Participation:
        """The schema that is always kept: a client returns in the next turn of its group."""
        return Participation(self.rounds, self.groups)

    @functools.cached_property
    def _order(self) -> np.ndarray:
        return np.random.default_rng([STREAM, self.seed]).permutation(self.population)

    def group(self, index: int) -> np.ndarray:
        """The clients of a group, int64 [about population / groups]."""
        return self._order[index :: self.groups]

    def cohort(self, round_index: int) -> np.ndarray:
        """Clients of a round, int64 [any number]; may be empty.

        Raises:
          ValueError: if the run has no such round.
        """
        generator = generator_of(self, round_index)
        group = self.group(round_index % self.groups)
        probability = self.clients_per_round * self.groups / self.population
        size = generator.binomial(group.size, probability)
        return generator.choice(group, size, replace=False)


@dataclasses.dataclass(frozen=True)
class TimerSampler:
    """Cohorts of a simulated population with timers ([Xu23], section 2.4).

    Attributes:
      participation: the schema; its rounds are those of the run.
      devices: the population, see `population.Population`.

    Raises:
      ValueError: if the cohorts do not keep the schema. Their separation follows from the timer and
        the duration of the rounds, so it is known only after the simulation.
    """

    amplification: ClassVar[str] = 'none'
    participation: Participation
    devices: population_lib.Population

    def __post_init__(self):
        seen, planned = self._log.observed(), self.participation
        if seen.count > 1 and seen.min_separation < planned.min_separation:
            raise errors.ArgumentError(
                'min_separation',
                planned.min_separation,
                f'must be at most {seen.min_separation}, '
                f'which timer_hours={self.devices.timer_hours:g} gives',
            )
        if seen.max_participations > planned.count:
            raise errors.ArgumentError(
                'max_participations',
                planned.count,
                f'must be at least {seen.max_participations}, '
                f'which timer_hours={self.devices.timer_hours:g} gives',
            )

    @functools.cached_property
    def _log(self) -> ParticipationLog:
        rounds = zip(range(self.participation.rounds), self.devices.rounds(), strict=False)
        return ParticipationLog(closed.clients for _, closed in rounds)

    def cohort(self, round_index: int) -> np.ndarray:
        """Clients of a round, int64 [clients_per_round].

        Raises:
          ValueError: if the run has no such round.
        """
        _validate.integer('round', round_index, minimum=0, maximum=self.participation.rounds - 1)
        return self._log.cohort(round_index)


def check(sampler: Sampler, plan: accounting.PrivacyPlan) -> None:
    """Checks that a sampler draws the cohorts that the plan's guarantee relies on.

    Raises:
      ValueError: if it does not.
    """
    if sampler.amplification != plan.sampling:
        raise errors.ArgumentError(
            'sampling',
            plan.sampling,
            f'must be {sampler.amplification}, which is how {type(sampler).__name__} draws cohorts',
        )
    if plan.sampling != 'none':
        random = cast(AmplifyingSampler, sampler)
        drawn = (random.population, random.clients_per_round)
        if drawn != (plan.population, plan.clients_per_round):
            raise errors.ArgumentError(
                'population',
                plan.population,
                f'must be {drawn[0]} with clients_per_round={drawn[1]}, as the sampler draws them, '
                f'not with {plan.clients_per_round}',
            )
        for name in ('groups', 'cohort_cap'):
            value, has = getattr(plan, name), getattr(sampler, name, None)
            if value != has:
                raise errors.ArgumentError(name, value, f'must be {has}, as the sampler has it')
    kept, planned = sampler.participation, plan.participation
    if (
        kept.rounds < planned.rounds
        or kept.min_separation < planned.min_separation
        or kept.count > planned.count
    ):
        raise errors.ArgumentError(
            'min_separation',
            planned.min_separation,
            f'must be kept by the sampler, with at most {planned.count} participations in '
            f'{planned.rounds} rounds; {type(sampler).__name__} keeps {kept.min_separation} with '
            f'{kept.count} in {kept.rounds}',
        )


def check_sizes(sampler: Any) -> None:
    """Checks the rounds, clients_per_round, population and seed of a sampler.

    Raises:
      ValueError: if one is out of its range.
    """
    _validate.integer('rounds', sampler.rounds, minimum=1)
    _validate.integer('clients_per_round', sampler.clients_per_round, minimum=1)
    _validate.integer('population', sampler.population, minimum=sampler.clients_per_round)
    _validate.integer('seed', sampler.seed, minimum=0)


def generator_of(sampler: Any, round_index: int) -> np.random.Generator:
    """The random numbers of a round of a sampler.

    Raises:
      ValueError: if the run has no such round.
    """
    _validate.integer('round', round_index, minimum=0, maximum=sampler.rounds - 1)
    return np.random.default_rng([STREAM, sampler.seed, round_index])
