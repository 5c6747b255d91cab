"""Which clients take part in a round.

A sampler is a pure function of its seed and the round. Its `sampling` is the part of a plan with
which it draws cohorts, if a guarantee may rely on that.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import ClassVar, Protocol

import numpy as np

from dpfl import _validate, accounting, errors
from dpfl.accounting.sampling.base import STREAM
from dpfl.participation import Participation, ParticipationLog
from dpfl.simulation import population as population_lib


class Sampler(Protocol):
    """Draws the cohorts for the training loop."""

    @property
    def sampling(self) -> accounting.Sampling | None:
        """The sampling that a plan's guarantee may rely on; None for no amplification."""

    @property
    def participation(self) -> Participation:
        """The participation schema that all cohorts keep."""

    def cohort(self, round_index: int) -> np.ndarray:
        """Clients of a round, int64 [cohort size].

        Raises:
          ValueError: if the run has no such round.
        """


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

    sampling: ClassVar[None] = None
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
class RandomSampler:
    """Cohorts that a kind of sampling draws.

    Attributes:
      kind: draws the cohorts.
      rounds: number of rounds, at least 1.
      clients_per_round: size of a cohort, or its expected size; at most the population.
      seed: an integer >= 0.
      is_relied_on: whether the guarantee may rely on the sampling.

    Raises:
      ValueError: if a field is out of its range.
    """

    kind: accounting.Sampling
    rounds: int
    clients_per_round: int
    seed: int = 0
    is_relied_on: bool = True

    def __post_init__(self):
        _validate.integer('rounds', self.rounds, minimum=1)
        _validate.integer('clients_per_round', self.clients_per_round, minimum=1)
        _validate.integer('population', self.kind.population, minimum=self.clients_per_round)
        _validate.integer('seed', self.seed, minimum=0)

    @property
    def sampling(self) -> accounting.Sampling | None:
        """`kind`, if the guarantee may rely on it."""
        return self.kind if self.is_relied_on else None

    @property
    def participation(self) -> Participation:
        """The schema that is always kept."""
        return self.kind.schema(self.rounds)

    @functools.cached_property
    def _cohorts(self) -> Callable[[int], np.ndarray]:
        return self.kind.cohorts(self.clients_per_round, self.seed)

    def cohort(self, round_index: int) -> np.ndarray:
        """Clients of a round, int64 [any number]; may be empty.

        Raises:
          ValueError: if the run has no such round.
        """
        _validate.integer('round', round_index, minimum=0, maximum=self.rounds - 1)
        return self._cohorts(round_index)


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

    sampling: ClassVar[None] = None
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
    drawn, planned_kind = sampler.sampling, plan.sampling
    if type(drawn) is not type(planned_kind):
        name = 'none' if drawn is None else drawn.name
        raise errors.ArgumentError(
            'sampling', plan.sampling_name, f'must be {name}, which is how cohorts are drawn'
        )
    if drawn is not None and planned_kind is not None and isinstance(sampler, RandomSampler):
        has = drawn.to_dict() | {'clients_per_round': sampler.clients_per_round}
        wanted = planned_kind.to_dict() | {'clients_per_round': plan.clients_per_round}
        for name, value in has.items():
            if wanted[name] != value:
                raise errors.ArgumentError(
                    name, wanted[name], f'must be {value}, as the sampler has it'
                )
    kept, planned = sampler.participation, plan.participation
    for name, is_kept in (
        ('rounds', kept.rounds >= planned.rounds),
        ('min_separation', kept.min_separation >= planned.min_separation),
        ('max_participations', kept.count <= planned.count),
    ):
        if is_kept:
            continue
        raise errors.ArgumentError(
            name,
            getattr(planned, name),
            f'must be kept by the sampler, with at most {planned.count} participations in '
            f'{planned.rounds} rounds; {type(sampler).__name__} keeps {kept.min_separation} with '
            f'{kept.count} in {kept.rounds}',
        )
