"""How likely uniformly random cohorts keep limits of participation, where only counts are known.

These are statements about a deployment, for its planning. A guarantee that holds with probability 1
cannot follow from them, and nothing here lowers one.
"""

import bisect
import dataclasses

import scipy

from dpfl import _validate

# Relative error of the binomial tail, generously.
_SLACK = 1 + 1e-9


@dataclasses.dataclass(frozen=True, kw_only=True)
class UniformCohorts:
    """Cohorts that are drawn uniformly from all clients, afresh and independently in each round.

    A client is then in each round with probability `clients_per_round / population`, independently
    of the other rounds. Clients are not independent of each other, so the union bound adds up their
    probabilities: a returned probability is at least the true one.

    Attributes:
      population: number of clients.
      clients_per_round: clients in each cohort.
      rounds: number of rounds.

    Raises:
      ArgumentError: if a field is out of its range.

    Example:
      >>> drawn = UniformCohorts(population=1000, clients_per_round=10, rounds=100)
      >>> most = drawn.most_participations(failure=1e-6)  # Of any client.
      >>> drawn.exceeds(most) <= 1e-6 < drawn.exceeds(most - 1)
      True
    """

    population: int
    clients_per_round: int
    rounds: int

    def __post_init__(self) -> None:
        _validate.integer('population', self.population, minimum=1, maximum=10**15)
        _validate.integer(
            'clients_per_round', self.clients_per_round, minimum=1, maximum=self.population
        )
        _validate.integer('rounds', self.rounds, minimum=1, maximum=_validate.MOST_ROUNDS)

    def exceeds(self, max_participations: int) -> float:
        """Bound on the probability that any client takes part in more rounds than that.

        It is the binomial tail of one client, times the number of clients.
        """
        _validate.integer('max_participations', max_participations, minimum=0)
        if max_participations >= self.rounds:
            return 0.0
        return self._of_any(
            float(scipy.special.bdtrc(max_participations, self.rounds, self._share))
        )

    def most_participations(self, failure: float) -> int:
        """Least number that any client exceeds with a probability of at most `failure`."""
        _validate.number('failure', failure, above=0, below=1)
        return bisect.bisect_left(
            range(self.rounds), True, key=lambda most: self.exceeds(most) <= failure
        )

    def breaks(self, min_separation: int) -> float:
        """Bound on the probability that any client takes part in two rounds closer than that.

        It adds up the probabilities of all pairs of rounds i < j with j - i < min_separation, and
        of all clients.
        """
        _validate.integer('min_separation', min_separation, minimum=1)
        closest = min(min_separation, self.rounds) - 1
        pairs = closest * self.rounds - closest * (closest + 1) // 2
        return self._of_any(pairs * self._share**2)

    def likely_separation(self, failure: float) -> int:
        """Largest separation that any client breaks with a probability of at most `failure`."""
        _validate.number('failure', failure, above=0, below=1)
        wider = range(2, self.rounds + 1)  # A separation of 1 is never broken.
        return 1 + bisect.bisect_left(wider, True, key=lambda apart: self.breaks(apart) > failure)

    def sentences(self, min_separation: int, max_participations: int, failure: float) -> list[str]:
        """Sentences about limits of participation and their assumptions, one item each.

        Args:
          min_separation, max_participations: the limits.
          failure: probability with which other limits may be broken.
        """
        most, least = self.most_participations(failure), self.likely_separation(failure)
        kept = (
            f'no two rounds of a client would be less than {least} apart'
            if least > 1
            else 'a client may come back in the next round'
        )
        return [
            f'If every cohort were a uniformly random set of {self.clients_per_round} of '
            f'{self.population} clients, drawn afresh in each of {self.rounds} rounds, any client '
            f'would take part in more than {max_participations} rounds with a probability '
            f'{_shown(self.exceeds(max_participations))}, and in two rounds less than '
            f'{min_separation} apart with a probability {_shown(self.breaks(min_separation))}.',
            f'Except with a probability of {failure:g}, no such client would take part in more '
            f'than {most} rounds, and, except with as much again, {kept}; real cohorts are less '
            'uniform, and the guarantee does not rely on this, but on limits that are enforced or '
            'shown by a log.',
        ]

    @property
    def _share(self) -> float:
        return self.clients_per_round / self.population

    def _of_any(self, probability: float) -> float:
        return min(1.0, self.population * probability * _SLACK)


def _shown(probability: float) -> str:
    """A bound in words, with two digits, rounded up."""
    text = f'{probability:.1e}'
    if float(text) < probability:
        text = f'{probability * 1.05:.1e}'
    return 'that may be 1' if float(text) >= 1 else f'of at most {float(text):g}'
