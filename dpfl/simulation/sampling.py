"""Which clients take part in a round."""

import dataclasses
import functools

import numpy as np

from dpfl import _validate
from dpfl.participation import Participation

# Keeps this stream apart from others that a run derives from the same seed.
_STREAM = 0x73616D70


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
            raise ValueError(
                f'population={self.population}: must be at least '
                f'{self.clients_per_round * schema.min_separation} for clients_per_round='
                f'{self.clients_per_round} and min_separation={schema.min_separation}'
            )
        if places > self.population * schema.count:
            raise ValueError(
                f'population={self.population}: must be at least {-(-places // schema.count)} for '
                f'rounds={schema.rounds}, clients_per_round={self.clients_per_round} and '
                f'max_participations={schema.count}'
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
