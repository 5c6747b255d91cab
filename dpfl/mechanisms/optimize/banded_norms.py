"""The squared column norms that a sensitivity of 1 leaves to a banded strategy.

With at most as many bands as the separation b, the squared sensitivity is the heaviest pattern of
squared column norms d ([McMahan24], section 3.1). Patterns are the vertices of the polytope of all
x >= 0 with sum(x) <= k and a sum of at most 1 over any b consecutive rounds: its constraints have
the consecutive-ones property, so its vertices are integral. By the duality of linear programs the
heaviest pattern is at most 1 if and only if, for some y, z >= 0 with sum(y) + k z <= 1,

    d_t  <=  z + sum of y_w over all windows [w, w + b) that contain round t.

More of any d_t lowers the error of a banded X with diagonal d, so equality loses nothing, and the
least loss over all banded C is the least over y, z and the unit columns. With z alone all norms are
equal, and with the windows 0, b, 2b, .. there is one norm for each block of b rounds.
"""

import dataclasses

import numpy as np

from dpfl.participation import Participation


@dataclasses.dataclass(frozen=True)
class Norms:
    """Squared column norms d as a function of weights >= 0: y of windows, then z.

    Attributes:
      starts: first rounds of the windows, int64 [m]. A window may end after the last round.
      ends: rounds after their last ones, at most n, int64 [m].
      has_common: whether z is a weight.
      count: k, the largest number of participations.
      rounds: n.
    """

    starts: np.ndarray
    ends: np.ndarray
    has_common: bool
    count: int
    rounds: int

    @classmethod
    def of(cls, participation: Participation, starts: np.ndarray, has_common: bool) -> 'Norms':
        """With windows of `min_separation` rounds."""
        n = participation.rounds
        ends = np.minimum(starts + participation.min_separation, n)
        return cls(starts, ends, has_common, participation.count, n)

    @classmethod
    def equal(cls, participation: Participation) -> 'Norms':
        """One norm for all columns."""
        return cls.of(participation, np.zeros(0, np.int64), True)

    @classmethod
    def free(cls, participation: Participation) -> 'Norms':
        """All norms."""
        windows = max(participation.rounds - participation.min_separation, 0) + 1
        return cls.of(participation, np.arange(windows), True)

    @property
    def costs(self) -> np.ndarray:
        """Share of each weight in the squared sensitivity, float64 [m or m + 1]."""
        return np.append(np.ones(self.starts.size), [float(self.count)] * self.has_common)

    def start(self, participation: Participation) -> np.ndarray:
        """Weights of about equal norms: windows side by side, or z if there are too many."""
        weights = np.zeros(self.costs.size)
        blocks = _blocks(participation)
        if self.starts.size and (blocks.size <= participation.count or not self.has_common):
            weights[np.searchsorted(self.starts, np.minimum(blocks, self.starts[-1]))] = 1.0
        else:
            weights[-1] = 1.0
        return weights

    def refined(
        self, coarse: 'Norms', weights: np.ndarray, participation: Participation
    ) -> np.ndarray:
        """Weights from those for half the rounds and half the separation.

        Each weight goes to the window at twice its first round. If that leaves a column with less
        than half of its squared norm, it returns `start`.
        """
        place = np.searchsorted(self.starts, 2 * coarse.starts, side='right') - 1
        refined = np.bincount(place, weights[: place.size], self.starts.size)
        refined = np.append(refined, weights[place.size :])
        before = np.repeat(coarse.squared(weights), 2)[: self.rounds]
        if (2 * self.squared(refined) < before).any():
            return self.start(participation)
        return refined

    def squared(self, weights: np.ndarray) -> np.ndarray:
        """d, float64 [n]."""
        windows = weights[: self.starts.size]
        changes = np.bincount(self.starts, windows, self.rounds + 1)
        changes -= np.bincount(self.ends, windows, self.rounds + 1)
        common = weights[-1] if self.has_common else 0.0
        # A sum of differences may fall below zero by rounding.
        return np.maximum(np.cumsum(changes)[:-1], 0.0) + common

    def gradient(self, by_squared: np.ndarray) -> np.ndarray:
        """Derivatives with respect to the weights, from those with respect to d."""
        sums = np.append(0.0, np.cumsum(by_squared))
        windows = sums[self.ends] - sums[self.starts]
        return np.append(windows, [sums[-1]] * self.has_common)


def _blocks(participation: Participation) -> np.ndarray:
    return np.arange(0, participation.rounds, participation.min_separation)
