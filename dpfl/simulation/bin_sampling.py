"""Cohorts by balls in bins and by random allocation."""

import dataclasses

import numpy as np

from dpfl import _validate
from dpfl.participation import Participation
from dpfl.simulation import sampling


@dataclasses.dataclass(frozen=True)
class BinSampler:
    """Balls in bins ([Chua25]) and random allocation ([Feldman25]): cohorts of one bin each.

    Every client picks one of the bins uniformly, independently of all others, and takes part in the
    round of its bin in each pass over the bins. Cohorts have random sizes, and may be empty.

    Attributes:
      rounds: number of rounds, at least 1.
      population: number of clients; they are 0 .. population - 1.
      clients_per_round: expected size of a cohort, population / groups rounded up or down.
      groups: number of bins, at least 1.
      seed: an integer >= 0.
      picks_once: whether clients keep their bins in all passes (balls in bins), or pick another one
        for each pass (random allocation).

    Raises:
      ValueError: if a field is out of its range.
    """

    rounds: int
    population: int
    clients_per_round: int
    groups: int
    seed: int = 0
    picks_once: bool = True

    def __post_init__(self):
        sampling.check_sizes(self)
        _validate.integer('groups', self.groups, minimum=1)
        _validate.truth('picks_once', self.picks_once)

    @property
    def amplification(self) -> str:
        """The sampling that a plan's guarantee may rely on."""
        return 'balls_in_bins' if self.picks_once else 'random_allocation'

    @property
    def participation(self) -> Participation:
        """The schema that is always kept."""
        by_bins = Participation(self.rounds, self.groups)
        return by_bins if self.picks_once else Participation(self.rounds, 1, by_bins.count)

    def cohort(self, round_index: int) -> np.ndarray:
        """Clients of a round, int64 [any number]; may be empty.

        Raises:
          ValueError: if the run has no such round.
        """
        _validate.integer('round', round_index, minimum=0, maximum=self.rounds - 1)
        bins = self._bins(0 if self.picks_once else round_index // self.groups)
        return np.flatnonzero(bins == round_index % self.groups)

    def _bins(self, number: int) -> np.ndarray:
        """The bin of every client in a pass, int64 [population]."""
        generator = np.random.default_rng([sampling.STREAM, self.seed, number])
        return generator.integers(self.groups, size=self.population)
