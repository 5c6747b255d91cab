"""Which sums of products of columns bound the sensitivity of a matrix that is not Toeplitz.

As `scaled_cuts`, for the products of columns themselves, of some rounds. The bound is that of
`matrix_sensitivity.upper_bound` with equal shares.
"""

import numpy as np

from dpfl.mechanisms.optimize import scaled_cuts
from dpfl.mechanisms.optimize.scaled_loss import PairSum
from dpfl.mechanisms.sensitivities import matrix_sensitivity
from dpfl.participation import Participation


class GramTable:
    """The products of columns as a table of pair bounds, see `scaled_toeplitz.PairTable`.

    Attributes:
      length: rounds of a cell, 1.
      lags: lag of each distance of two cells, int64 [rounds].
    """

    length = 1

    def __init__(self, products: np.ndarray, participation: Participation):
        """Sets the products.

        Args:
          products: G, symmetric and not negative, [participation.rounds, participation.rounds].
          participation: the schema.
        """
        self.lags = np.arange(len(products))
        self._products, self._participation = products, participation

    def position_weights(self, share: float) -> np.ndarray:
        """What each participation adds at most, [count, rounds]; -inf where it cannot be.

        Args:
          share: share of each pair that its earlier participation bears.
        """
        before, after = matrix_sensitivity.partners(self._products, self._participation)
        weights = np.diag(self._products) + 2 * share * after[::-1] + 2 * (1 - share) * before
        earliest = np.arange(len(weights)) * self._participation.min_separation
        weights[np.arange(weights.shape[1]) < earliest[:, None]] = -np.inf
        return weights

    def partner_weights(self, r: int) -> np.ndarray:
        """Products of each round with its partner number r + 1; -inf where there is no such."""
        place = self.lags
        near = place - place[:, None] < (r + 1) * self._participation.min_separation
        return np.where(near, -np.inf, self._products)


def cuts(products: np.ndarray, participation: Participation) -> scaled_cuts.Cuts:
    """The largest sums of the bound through each round.

    Args:
      products: G, its upper triangle, not negative, [participation.rounds, participation.rounds].
      participation: the schema.
    """
    symmetric = products + np.triu(products, 1).T
    return scaled_cuts.Cuts(GramTable(symmetric, participation), participation)


def in_rounds(one: PairSum, rounds: np.ndarray) -> PairSum:
    """A sum over pairs of places within some rounds, increasing, as one over pairs of rounds."""
    early, late = rounds[one.early], rounds[one.late]
    return PairSum(early, late, late - early, one.weight)
