"""Binary tree aggregation."""

import dataclasses
from typing import ClassVar

import numpy as np

from dpfl import _validate
from dpfl.mechanisms import base, kernels, tree_sensitivity


@dataclasses.dataclass(frozen=True)
class BinaryTree(base.Mechanism):
    """Tree aggregation: each prefix sum has the noise of the fewest subtrees that make it up.

    The subtree that ends with round t and is part of such a decomposition covers the last 2^l
    rounds, 2^l being the largest power of two that divides t + 1: there is one for every round,
    so `C` is square, with ones over those rounds in row t (a Fenwick tree).

    The sensitivity follows the published accounting (documents 000, 002, 003): it counts *all*
    nodes of the forest of complete subtrees as released, the unused right children as well. That
    is exact for the nodes, and an upper bound for the prefix sums alone.

    Attributes:
      rounds: number of rounds, at least 1.
    """

    name: ClassVar[str] = 'tree'
    rounds: int

    def __post_init__(self):
        _validate.integer('rounds', self.rounds, minimum=1)

    def strategy_matrix(self) -> np.ndarray:
        widths = 2 ** _levels(self.rounds)
        lag = np.subtract.outer(np.arange(self.rounds), np.arange(self.rounds))
        return ((lag >= 0) & (lag < widths[:, None])).astype(np.float64)

    def released_matrix(self) -> np.ndarray:
        """All nodes of the forest of complete subtrees: zeros and ones, [nodes, rounds]."""
        rows = []
        for level in range(self.rounds.bit_length()):
            width = 2**level
            for start in range(0, self.rounds - width + 1, width):
                row = np.zeros(self.rounds)
                row[start : start + width] = 1.0
                rows.append(row)
        return np.array(rows)

    def kernel(self) -> kernels.StateSpace:
        """One buffer per level below the top: the noise of the subtrees in the current prefix.

        A subtree of level l takes the place of those of the levels below it.
        """
        level = _levels(self.rounds)
        buffers = np.arange(self.rounds.bit_length() - 1)
        maps = np.zeros((self.rounds, buffers.size + 1, buffers.size + 1))
        maps[:, 0, 0] = 1.0
        maps[:, 0, 1:] -= buffers < level[:, None]
        maps[:, 1:, 0] = buffers == level[:, None]
        maps[:, 1 + buffers, 1 + buffers] = buffers > level[:, None]
        return kernels.StateSpace(maps)

    def _prefix_squared_error(self) -> np.ndarray:
        """Number of subtrees that make up each prefix: the ones in the binary form of t + 1."""
        rounds = np.arange(1, self.rounds + 1)
        bits = rounds[:, None] >> np.arange(self.rounds.bit_length()) & 1
        return bits.sum(axis=1).astype(np.float64)

    def _sensitivity(self, participation) -> base.Sensitivity:
        return tree_sensitivity.sensitivity(participation)


def _levels(rounds: int) -> np.ndarray:
    """Level of the subtree that ends with each round, int64 [rounds]."""
    ends = np.arange(1, rounds + 1)
    return np.round(np.log2(ends & -ends)).astype(np.int64)
