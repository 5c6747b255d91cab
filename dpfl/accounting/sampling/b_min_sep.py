"""b-min-sep sampling ([Dong26]): Poisson samples of the clients that have not just taken part.

With banded noise it releases mixtures over all separated sets of rounds.

In every round, each client that took part in none of the last b - 1 rounds takes part with
probability p, independently of all others. The process is stationary from round 0 on: before it a
client has waited as long as it would have in the middle of a long run.

As with balls in bins, zeroing a client out compares Q = N(0, I) with a mixture P of N(m_i, I) over
the sets i of rounds in which it may take part, m_i = |C| u_i / z (docs/research/sampling_proofs.md
has the proof). If C has at most b bands, the columns of C of the rounds of a set do not overlap, so
that the density ratio is a sum over sets of products over their rounds, which a recursion over the
rounds computes. `Release` draws samples of the losses from these proposals:

- for P from the mixture of N(s m_i) with weights in proportion to `w_i exp(s (s - 1) |m_i|^2 / 2)`.
  With Z the sum of these, its density ratio B to Q is `sum_i w_i X_i^s / Z`, with X_i that of
  N(m_i), and so at least `A^s / Z` by Jensen's inequality;
- for Q from N(-r v), as in `balls_in_bins`, with v = E m_i and h = E |m_i|^2.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import scipy

from dpfl import _cache, mechanisms
from dpfl.accounting.evidence import separated as separated_evidence
from dpfl.accounting.evidence import unseen
from dpfl.accounting.evidence.refutation import LogTest
from dpfl.accounting.sampling import base, independent_cohorts, monte_carlo
from dpfl.accounting.sampling.monte_carlo import Estimated
from dpfl.participation import Participation, ParticipationLog

if TYPE_CHECKING:
    from dpfl.accounting.plan import PrivacyPlan

# Added to losses, and to logarithms of weights, for the rounding of the recursion.
_LOSS_ROUNDING = 1e-6
# Entries of C are raised by this share, above the rounding of their products.
_ROUNDING = 1e-9
# Fewest columns whose products with the noise are computed at once.
_BLOCK = 64


@dataclasses.dataclass(frozen=True, eq=False)
class Separated:
    """What the rounds of a mechanism release about one client, in clip norms.

    Attributes:
      matrix: |C|, float64 [rounds, rounds], lower-triangular with at most `separation` bands.
      separation: b, at least 1.
      probability: p, above 0 and at most 1.
    """

    matrix: np.ndarray
    separation: int
    probability: float

    @functools.cached_property
    def squared_norm(self) -> float:
        """Largest squared norm of the mean of a set of rounds."""
        rounds = len(self.matrix)
        best = np.zeros(rounds + 1)
        for t in range(rounds - 1, -1, -1):
            best[t] = max(best[t + 1], self.norms[t] + best[min(t + self.separation, rounds)])
        return float(best[0])

    @functools.cached_property
    def norms(self) -> np.ndarray:
        """Squared norms of the columns, float64 [rounds]."""
        return np.einsum('ij,ij->j', self.matrix, self.matrix)

    @property
    def bands(self) -> int:
        """Number of diagonals that are not 0."""
        rows, columns = np.nonzero(self.matrix)
        return int((rows - columns).max(initial=0)) + 1

    @property
    def cost(self) -> int:
        """Of one sample, in units of one component of a mixture."""
        return len(self.matrix) * (1 + self.bands // 128)

    @property
    def is_mixed(self) -> bool:
        """Whether there are several sets of rounds."""
        return True

    @property
    def key(self) -> list:
        return [_cache.array_key(self.matrix), self.separation, self.probability]

    def release(self, stddev: float) -> 'Release':
        return Release(self, stddev)


class Release(monte_carlo.Release):
    """Mixtures over separated sets in units of the noise."""

    rounding = _LOSS_ROUNDING

    def __init__(self, separated: Separated, stddev: float):
        separation, self._probability = separated.separation, separated.probability
        self._matrix = separated.matrix / stddev
        self._bands = separated.bands
        self.largest = separated.squared_norm / stddev**2
        self._norms = separated.norms / stddev**2
        rounds = len(self._matrix)
        self.width = rounds
        # Whoever waits longer than all rounds takes part in none, however long it is.
        self._apart = min(separation, rounds + 1)
        # A column and the columns that overlap with it: [rounds, 2 bands - 1].
        gram = self._matrix.T @ self._matrix
        offsets = np.arange(1 - self._bands, self._bands)
        places = np.arange(rounds)[:, None] + offsets
        inside = (places >= 0) & (places < rounds)
        self._overlaps = np.where(
            inside, gram[np.arange(rounds)[:, None], np.clip(places, 0, rounds - 1)], 0.0
        )
        self._rate = 1 / (separation - 1 + 1 / self._probability)
        self._towards = gram.sum(axis=0) * self._rate
        self.mean_square = float(self._norms.sum() * self._rate)
        self.square_of_mean = float(self._towards.sum() * self._rate)
        with np.errstate(divide='ignore'):
            self._log_absent = float(np.log1p(-self._probability))
        self._log_present = math.log(self._probability)
        self._log_totals: dict[float, float] = {}
        # In round 0 a client may take part, or must wait for 1 .. b - 1 rounds.
        waits = np.full(self._apart, self._log_present)
        waits[-1] += math.log(separation - self._apart + 1)
        waits[0] = 0.0
        self._log_waits = waits - math.log1p((separation - 1) * self._probability)

    def most_log_total(self, tilt: float) -> float:
        return self._log_total(tilt) + self.rounding

    def samples(
        self, generator: np.random.Generator, count: int, tilts: tuple[float, float]
    ) -> tuple[monte_carlo.Samples, monte_carlo.Samples]:
        s, r = tilts
        margin = self._bands - 1
        padded = np.zeros((self.width + 2 * margin, count))
        products = padded[margin : margin + self.width]
        noise = generator.standard_normal((self.width, count))
        block = max(self._bands, _BLOCK)
        for first in range(0, self.width, block):
            rows = slice(first, first + block + self._bands)
            columns = slice(first, first + block)
            products[columns] = self._matrix[rows, columns].T @ noise[rows]
        half = self._norms[:, None] / 2
        along = self._rate * products.sum(axis=0) - r * self.square_of_mean
        counterweight = r * along + r * r * self.square_of_mean / 2
        gain = -self._log_ratio(products - half - r * self._towards[:, None])
        samples = np.arange(count)
        for rounds in self._sets(generator, count, s):
            (some,) = np.nonzero(rounds < self.width)
            at = rounds[some]
            near = at[:, None] + np.arange(2 * margin + 1)
            padded[near, samples[some, None]] += s * self._overlaps[at]
        products -= half
        loss = self._log_ratio(products)
        if s == 1:
            return (loss, np.zeros(count)), (gain, counterweight)
        tilted = self._log_ratio(s * products) - self._log_total(s)
        return (loss, loss - tilted), (gain, counterweight)

    def _log_ratio(self, logs: np.ndarray) -> np.ndarray:
        """Logarithm of the mean over sets of the product of `exp(logs)` of their rounds, [count].

        Args:
          logs: [rounds, count].
        """
        suffixes = self._suffixes(logs, keep=False)
        return scipy.special.logsumexp(suffixes + self._log_waits[:, None], axis=0)

    def _suffixes(self, logs: np.ndarray, keep: bool) -> np.ndarray:
        """The same logarithms for a client that may take part from a round on.

        Returns:
          [b, count], for the first b rounds; with `keep` [rounds + b, count], for all rounds, and b
          rows of zeros.
        """
        rounds, count = logs.shape
        apart = self._apart
        size = rounds + apart if keep else apart
        suffixes = np.zeros((size, count))
        reached = 0.0
        for t in range(rounds - 1, -1, -1):
            present = logs[t] + suffixes[(t + apart) % size]
            present += self._log_present
            absent = suffixes[(t + 1) % size] + self._log_absent
            new = np.logaddexp(absent, present, out=suffixes[t % size])
            reached += max(new.max(), -new.min())
        rounding = 8 * np.finfo(float).eps * (reached + rounds * np.abs(logs).max(initial=0.0))
        if not rounding < self.rounding / 8:
            raise OverflowError('losses are too large for the recursion')
        return suffixes

    def _log_total(self, tilt: float) -> float:
        """Logarithm of Z."""
        if tilt not in self._log_totals:
            self._log_totals[tilt] = float(self._log_ratio(self._tilted_weights(tilt))[0])
        return self._log_totals[tilt]

    def _tilted_weights(self, tilt: float) -> np.ndarray:
        return tilt * (tilt - 1) / 2 * self._norms[:, None]

    def _sets(self, generator: np.random.Generator, count: int, tilt: float) -> list[np.ndarray]:
        """Random sets of rounds, by their tilted weights: the first round of each, the second, ...

        Returns:
          int64 [count] each; the number of rounds or more if the set has no such round.
        """
        weights = self._tilted_weights(tilt)
        suffixes = self._suffixes(weights, keep=True)[:, 0]
        present = self._log_present + weights[:, 0] + suffixes[self._apart :]
        # One that is certain is lost with a probability that no sample shows.
        hazards = np.minimum(np.exp(present - suffixes[: self.width]), 1 - 2.0**-53)
        survived = np.append(0.0, np.cumsum(-np.log1p(-hazards)))
        waits = np.exp(self._log_waits + suffixes[: self._apart] - self._log_total(tilt))
        place = generator.choice(self._apart, size=count, p=waits / waits.sum())
        rounds = []
        while (place < self.width).any():
            start = survived[np.minimum(place, self.width)]
            chosen = np.searchsorted(survived[1:], start + generator.exponential(size=count))
            # Whoever has no rounds left gets none by chance of rounding either.
            place = np.where(place < self.width, chosen, self.width)
            rounds.append(place)
            place = place + self._apart
        return rounds


@dataclasses.dataclass(frozen=True, kw_only=True)
class BMinSep(Estimated):
    """Each client that took part in none of the last `groups` - 1 rounds may take part ([Dong26]).

    All of these do so with one probability, independently of each other
    (docs/research/sampling_proofs.md). Waiting times start in their stationary distribution, so all
    cohorts have the same expected size.

    Attributes:
      groups: b, the separation of the rounds of a client, at least the bands of the strategy.

    Example:
      >>> BMinSep(population=1000, groups=4).schema(10)
      Participation(rounds=10, min_separation=4, max_participations=None)
    """

    name: ClassVar[str] = 'b_min_sep'
    help: ClassVar[str] = (
        'each client that took part in none of the last --groups - 1 rounds, with one '
        'probability, for banded noise too; epsilon is estimated'
    )
    statistics = separated_evidence.STATISTICS

    @classmethod
    def defaults(
        cls, mechanism: mechanisms.Mechanism, population: int, clients_per_round: int
    ) -> dict[str, Any]:
        return {'groups': independent_cohorts.bands(mechanism, cls.name)}

    def _check(self, plan: 'PrivacyPlan') -> None:
        independent_cohorts.check_groups(self, plan, self.groups)
        super()._check(plan)

    def schema(self, rounds: int) -> Participation:
        return Participation(rounds, self.groups)

    def _probability(self, clients_per_round: int) -> float:
        return separated_evidence.probability(self.population, clients_per_round, self.groups)

    def cohorts(self, clients_per_round: int, seed: int) -> Callable[[int], np.ndarray]:
        p = self._probability(clients_per_round)
        waits = np.full(self.groups, p / (1 + (self.groups - 1) * p))
        waits[0] = 1 - waits[1:].sum()
        generator = base.generator_before(seed)
        # First round in which each client may take part after the cohorts so far.
        returns = generator.choice(self.groups, size=self.population, p=waits)
        cohorts: list[np.ndarray] = []

        def cohort(round_index: int) -> np.ndarray:
            while len(cohorts) <= round_index:
                number = len(cohorts)
                # The size of a Poisson sample is binomial, all sets of that size equally likely.
                generator = base.generator_of(seed, number)
                size = generator.binomial(self.population, p)
                sample = generator.choice(self.population, size, replace=False)
                free = sample[returns[sample] <= number]
                returns[free] = number + self.groups
                cohorts.append(free)
            return cohorts[round_index]

        return cohort

    def mixtures(self, plan: 'PrivacyPlan') -> Separated:
        probability = self._probability(plan.clients_per_round)
        return _mixtures(plan.mechanism_of_run, self.groups, probability)

    def log_tests(self, plan: 'PrivacyPlan', log: ParticipationLog) -> list[LogTest]:
        return separated_evidence.b_min_sep(
            log, self.population, plan.clients_per_round, self.groups
        )

    def unseen(self, plan: 'PrivacyPlan', rounds: int) -> list[str]:
        return unseen.separated_cohorts(
            self.population, plan.clients_per_round, self.groups, rounds
        )

    def title(self) -> str:
        return f'clients that took part in none of the last {self.groups - 1} rounds'

    def describe(self, plan: 'PrivacyPlan') -> str:
        waiting = self.groups - 1
        free = self.population - waiting * plan.clients_per_round
        return (
            f'in each of {plan.participation.rounds} rounds every client that took part in none of '
            f'the last {waiting} rounds takes part with probability '
            f'{plan.clients_per_round}/{free}, independently of all other clients and of its other '
            'rounds. Waiting times start in their stationary distribution: in round 0 a client has '
            f'yet to wait w rounds, for each w from 1 to {waiting} with probability '
            f'{plan.clients_per_round}/{self.population}, and otherwise may take part'
        )


@functools.lru_cache(4)
def _mixtures(mechanism: mechanisms.Mechanism, groups: int, probability: float) -> Separated:
    matrix = np.abs(mechanism.strategy_matrix()) * (1 + _ROUNDING)
    return Separated(matrix, groups, probability)
