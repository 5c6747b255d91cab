"""Which clients take part in a round.

A sampler is a pure function of its seed and the round. `amplification` is the sampling that a
plan may rest its guarantee on when cohorts are drawn so: 'none' for all that are not uniformly
random and independent of other rounds.
"""

import dataclasses
import functools
from typing import ClassVar, Protocol, cast

import numpy as np

from dpfl import _validate, accounting, errors
from dpfl.participation import Participation, ParticipationLog
from dpfl.simulation import population as population_lib

# Keeps this stream apart from others that a run derives from the same seed.
_STREAM = 0x73616D70


class Sampler(Protocol):
    """What the training loop needs to know of cohorts."""

    @property
    def amplification(self) -> str:
        """The sampling that a guarantee may count on: 'none', or a sampling of a plan."""

    @property
    def participation(self) -> Participation:
        """The schema that the cohorts are sure to keep."""

    def cohort(self, round_index: int) -> np.ndarray:
        """Clients of a round, int64 [cohort size]; raises ValueError if there is no such round."""


class AmplifyingSampler(Sampler, Protocol):
    """A sampler whose `amplification` is not 'none'."""

    @property
    def population(self) -> int:
        """Number of clients that cohorts are drawn from."""

    @property
    def clients_per_round(self) -> int:
        """Size of a cohort, the expected one where sizes are random."""


@dataclasses.dataclass(frozen=True)
class MinSeparationSampler:
    """Cohorts that keep a participation schema over the whole run.

    The population is shuffled once, by the seed, and the cohorts walk through it, round after
    round: a client comes back after population / clients_per_round rounds, rounded down or up.
    Nothing is reshuffled between two passes: that could bring a client back in the next round.
    A cohort is a pure function of (seed, round). No amplification by sampling may be claimed.

    Attributes:
      participation: the schema; its rounds are those of the run.
      population: number of clients; they are 0 .. population - 1.
      clients_per_round: size of every cohort.
      seed: of the order of the clients, an integer >= 0.

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
                f'must be at least '
                f'{self.clients_per_round * schema.min_separation} for clients_per_round='
                f'{self.clients_per_round} and min_separation={schema.min_separation}',
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
        generator = np.random.default_rng([_STREAM, self.seed])
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
    """Uniformly random cohorts of one size, drawn afresh in every round (document 004).

    Nothing bounds how often, or how soon again, a client takes part.

    Attributes:
      rounds: number of rounds, at least 1.
      population: number of clients; they are 0 .. population - 1.
      clients_per_round: size of every cohort.
      seed: an integer >= 0.
      amplification: 'without_replacement' if the guarantee rests on the sampling, else 'none'.

    Raises:
      ValueError: if a field is out of its range.
    """

    rounds: int
    population: int
    clients_per_round: int
    seed: int = 0
    amplification: str = 'without_replacement'

    def __post_init__(self):
        _check_sizes(self)
        _validate.choice('amplification', self.amplification, ('none', 'without_replacement'))

    @property
    def participation(self) -> Participation:
        """What is sure to be kept: nothing but the number of rounds."""
        return Participation(self.rounds)

    def cohort(self, round_index: int) -> np.ndarray:
        """Clients of a round, int64 [clients_per_round].

        Raises:
          ValueError: if the run has no such round.
        """
        generator = _generator(self, round_index)
        return generator.choice(self.population, self.clients_per_round, replace=False)


@dataclasses.dataclass(frozen=True)
class PoissonSampler:
    """Each client takes part in each round by itself, with one probability (document 001).

    Attributes:
      rounds: number of rounds, at least 1.
      population: number of clients; they are 0 .. population - 1.
      clients_per_round: expected size of a cohort; the probability is its share of the population.
      seed: an integer >= 0.

    Raises:
      ValueError: if a field is out of its range.
    """

    amplification: ClassVar[str] = 'poisson'
    rounds: int
    population: int
    clients_per_round: int
    seed: int = 0

    def __post_init__(self):
        _check_sizes(self)

    @property
    def participation(self) -> Participation:
        """What is sure to be kept: nothing but the number of rounds."""
        return Participation(self.rounds)

    def cohort(self, round_index: int) -> np.ndarray:
        """Clients of a round, int64 [any number]; may be empty.

        Raises:
          ValueError: if the run has no such round.
        """
        generator = _generator(self, round_index)
        # The size of a Poisson sample is binomial, and all sets of that size are as likely.
        size = generator.binomial(self.population, self.clients_per_round / self.population)
        return generator.choice(self.population, size, replace=False)


@dataclasses.dataclass(frozen=True)
class TimerSampler:
    """Cohorts of a simulated population with timers (document 000, section 2.4).

    Attributes:
      participation: the schema; its rounds are those of the run.
      devices: the population, see `population.Population`.

    Raises:
      ValueError: if the cohorts do not keep the schema: their separation follows from the timer
        and the time that rounds take, and is known only once they have been simulated.
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
    """Refuses a sampler whose cohorts are not those that the plan's guarantee rests on.

    Raises:
      ValueError: if they do not go together.
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
                f'must be {drawn[0]} with clients_per_round='
                f'{drawn[1]}, as the sampler draws them, not with {plan.clients_per_round}',
            )
    kept, planned = sampler.participation, plan.participation
    if (
        kept.rounds < planned.rounds
        or kept.min_separation < planned.min_separation
        or kept.count > planned.count
    ):
        raise errors.ArgumentError(
            'min_separation',
            planned.min_separation,
            f'must be kept by the sampler, with at most '
            f'{planned.count} participations in {planned.rounds} rounds; {type(sampler).__name__} '
            f'keeps {kept.min_separation} with {kept.count} in {kept.rounds}',
        )


def _check_sizes(sampler) -> None:
    _validate.integer('rounds', sampler.rounds, minimum=1)
    _validate.integer('clients_per_round', sampler.clients_per_round, minimum=1)
    _validate.integer('population', sampler.population, minimum=sampler.clients_per_round)
    _validate.integer('seed', sampler.seed, minimum=0)


def _generator(sampler, round_index: int) -> np.random.Generator:
    _validate.integer('round', round_index, minimum=0, maximum=sampler.rounds - 1)
    return np.random.default_rng([_STREAM, sampler.seed, round_index])
