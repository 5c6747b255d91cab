"""b-min-sep sampling of cohorts."""

import dataclasses
import functools
from typing import ClassVar

import numpy as np

from dpfl import _validate
from dpfl.accounting.sampling import separated
from dpfl.participation import Participation
from dpfl.simulation import sampling


@dataclasses.dataclass(frozen=True)
class MinSepSampler:
    """b-min-sep sampling ([Dong26]): Poisson samples of the clients that have not just taken part.

    In each round every client that took part in none of the last groups - 1 rounds takes part with
    one probability, independently of all others. In round 0 clients are as in the middle of a long
    run, so that all cohorts have the same expected size. A round follows from the seed and the
    rounds before it.

    Attributes:
      rounds: number of rounds, at least 1.
      population: number of clients; they are 0 .. population - 1. At least clients_per_round *
        groups.
      clients_per_round: expected size of a cohort.
      groups: b, the separation of the rounds of a client, at least 1.
      seed: an integer >= 0.

    Raises:
      ValueError: if a field is out of its range.
    """

    amplification: ClassVar[str] = separated.SAMPLING
    rounds: int
    population: int
    clients_per_round: int
    groups: int
    seed: int = 0

    def __post_init__(self):
        sampling.check_sizes(self)
        _validate.integer('groups', self.groups, minimum=1)
        _validate.integer(
            'population', self.population, minimum=self.clients_per_round * self.groups
        )

    @property
    def participation(self) -> Participation:
        """The schema that is always kept."""
        return Participation(self.rounds, self.groups)

    @functools.cached_property
    def _probability(self) -> float:
        return separated.probability(self.population, self.clients_per_round, self.groups)

    @functools.cached_property
    def _cohorts(self) -> list[np.ndarray]:
        """Those of the first rounds, as many as were asked for."""
        return []

    @functools.cached_property
    def _returns(self) -> np.ndarray:
        """First round in which each client may take part after these, int64 [population]."""
        p = self._probability
        waits = np.full(self.groups, p / (1 + (self.groups - 1) * p))
        waits[0] = 1 - waits[1:].sum()
        generator = np.random.default_rng([sampling.STREAM, self.seed])
        return generator.choice(self.groups, size=self.population, p=waits)

    def cohort(self, round_index: int) -> np.ndarray:
        """Clients of a round, int64 [any number]; may be empty.

        Raises:
          ValueError: if the run has no such round.
        """
        _validate.integer('round', round_index, minimum=0, maximum=self.rounds - 1)
        while len(self._cohorts) <= round_index:
            number = len(self._cohorts)
            # The size of a Poisson sample is binomial, and all sets of that size equally likely.
            generator = sampling.generator_of(self, number)
            size = generator.binomial(self.population, self._probability)
            sample = generator.choice(self.population, size, replace=False)
            cohort = sample[self._returns[sample] <= number]
            self._returns[cohort] = number + self.groups
            self._cohorts.append(cohort)
        return self._cohorts[round_index]
