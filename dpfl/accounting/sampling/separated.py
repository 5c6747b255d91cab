"""b-min-sep sampling with banded noise ([Dong26]): mixtures over all separated sets of rounds.

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
- for Q from N(-r v), as in `tilted`, with v = E m_i and h = E |m_i|^2.
"""

import functools
import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from dpfl import mechanisms
from dpfl.accounting.sampling.bins import REACH, Range, entropy

# Added to losses, and to logarithms of weights, for the rounding of the recursion.
_LOSS_ROUNDING = 1e-6
# Entries of C are raised by this share, above the rounding of their products.
_ROUNDING = 1e-9
# Fewest columns whose products with the noise are computed at once.
_BLOCK = 64


def probability(population: int, clients_per_round: int, separation: int) -> float:
    """p, with which cohorts have the expected size: a client takes part in 1 of b - 1 + 1/p rounds.

    Args:
      population: number of clients, at least `clients_per_round * separation`.
      clients_per_round: expected size of a cohort.
      separation: b.
    """
    return clients_per_round / (population - (separation - 1) * clients_per_round)


@dataclass(frozen=True, eq=False)
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

    @classmethod
    def of_mechanism(
        cls, mechanism: mechanisms.Mechanism, separation: int, probability: float
    ) -> 'Separated':
        """For a mechanism over the rounds of the run, with at most `separation` bands."""
        matrix = np.abs(mechanism.strategy_matrix()) * (1 + _ROUNDING)
        return cls(matrix, separation, probability)

    @functools.cached_property
    def squared_norm(self) -> float:
        """Largest squared norm of the mean of a set of rounds."""
        best = np.zeros(len(self.matrix) + self.separation)
        for t in range(len(self.matrix) - 1, -1, -1):
            best[t] = max(best[t + 1], self.norms[t] + best[t + self.separation])
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


class Release:
    """Mixtures over separated sets in units of the noise, and the grid of their losses."""

    rounding = _LOSS_ROUNDING

    def __init__(self, separated: Separated, stddev: float):
        self._apart, self._probability = separated.separation, separated.probability
        self._matrix = separated.matrix / stddev
        self._bands = separated.bands
        self.largest = separated.squared_norm / stddev**2
        self._norms = separated.norms / stddev**2
        rounds = len(self._matrix)
        self.width = rounds
        # A column and the columns that overlap with it: [rounds, 2 bands - 1].
        gram = self._matrix.T @ self._matrix
        offsets = np.arange(1 - self._bands, self._bands)
        places = np.arange(rounds)[:, None] + offsets
        inside = (places >= 0) & (places < rounds)
        self._overlaps = np.where(
            inside, gram[np.arange(rounds)[:, None], np.clip(places, 0, rounds - 1)], 0.0
        )
        self._rate = 1 / (self._apart - 1 + 1 / self._probability)
        self._towards = gram.sum(axis=0) * self._rate
        self._mean_square = float(self._norms.sum() * self._rate)
        self._square_of_mean = float(self._towards.sum() * self._rate)
        with np.errstate(divide='ignore'):
            self._log_absent = float(np.log1p(-self._probability))
        self._log_present = math.log(self._probability)
        self._log_totals: dict[float, float] = {}
        # In round 0 a client may take part, or must wait for 1 .. b - 1 rounds.
        waits = np.full(self._apart, self._log_present)
        waits[0] = 0.0
        self._log_waits = waits - math.log1p((self._apart - 1) * self._probability)

    @property
    def end(self) -> float:
        """Of the grid of losses: where the Gaussian without sampling has no mass left."""
        return self.largest / 2 + REACH * math.sqrt(self.largest)

    def removed_range(self, tilt: float) -> Range:
        """Of samples from the tilted mixture: B >= A^s / Z."""
        order = tilt - 1
        most = self._log_total(tilt) + self.rounding
        return Range(order, most, -entropy(order, tilt), self.end, self.rounding)

    def added_range(self, tilt: float) -> Range:
        """Of samples from N(-r v): B >= A^-r exp(-r h / 2 - r^2 |v|^2 / 2)."""
        most = tilt * self._mean_square / 2 + tilt**2 * self._square_of_mean / 2
        return Range(tilt, most, -entropy(tilt, tilt + 1), self.end, self.rounding)

    def samples(
        self, generator: np.random.Generator, count: int, tilts: tuple[float, float]
    ) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
        """Losses and logarithms of weights, [count] each, of a removed and of an added client.

        Both directions share the noise, as only the mean of each counts.

        Raises:
          OverflowError: if rounding may have been larger than is allowed for.
        """
        s, r = tilts
        margin = self._bands - 1
        padded = np.zeros((self.width + 2 * margin, count))
        products = padded[margin : margin + self.width]
        self._inner_products(generator.standard_normal((self.width, count)), products)
        half = self._norms[:, None] / 2
        along = self._rate * products.sum(axis=0) - r * self._square_of_mean
        counterweight = r * along + r * r * self._square_of_mean / 2
        gain = -self._log_ratio(products - half - r * self._towards[:, None])
        columns = np.arange(count)
        for rounds in self._sets(generator, count, s):
            (some,) = np.nonzero(rounds < self.width)
            at = rounds[some]
            rows = at[:, None] + np.arange(2 * margin + 1)
            padded[rows, columns[some, None]] += s * self._overlaps[at]
        products -= half
        loss = self._log_ratio(products)
        if s == 1:
            return (loss, np.zeros(count)), (gain, counterweight)
        tilted = self._log_ratio(s * products) - self._log_total(s)
        return (loss, loss - tilted), (gain, counterweight)

    def _inner_products(self, noise: np.ndarray, out: np.ndarray) -> None:
        """Of the noise [rounds, count] with all columns, into [rounds, count]."""
        block = max(self._bands, _BLOCK)
        for first in range(0, self.width, block):
            columns = slice(first, first + block)
            rows = slice(first, first + block + self._bands)
            out[columns] = self._matrix[rows, columns].T @ noise[rows]

    def _log_ratio(self, logs: np.ndarray) -> np.ndarray:
        """Logarithm of the mean over sets of the product of `exp(logs)` of their rounds, [count].

        Args:
          logs: [rounds, count].
        """
        suffixes = self._suffixes(logs, keep=False)
        return special.logsumexp(suffixes + self._log_waits[:, None], axis=0)

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
