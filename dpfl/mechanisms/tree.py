"""Binary tree aggregation: plain, with online variance reduction, and with all nodes."""

import dataclasses
from typing import ClassVar

import numpy as np
import scipy

from dpfl import _validate, errors
from dpfl.mechanisms import base, kernels
from dpfl.mechanisms.sensitivities import matrix_sensitivity, tree_sensitivity
from dpfl.mechanisms.sensitivities.matrix_sensitivity import Sensitivity
from dpfl.participation import Participation

_NODES_RELEASED = (
    'The noise on every node of the binary tree is counted as released, as in the published '
    'accounting; the prefix sums reveal less.'
)
RELEASED = ('nodes', 'prefix_sums')


@dataclasses.dataclass(frozen=True)
class _Tree(base.Mechanism):
    """Base class of both trees: their nodes, and the sensitivity of releasing all of them."""

    rounds: int
    released: str = 'nodes'

    def __post_init__(self):
        super().__post_init__()
        _validate.choice('released', self.released, RELEASED)

    def num_buffers(self) -> int:
        return self.rounds.bit_length() - 1

    def released_matrix(self) -> np.ndarray:
        """The nodes of the forest of complete subtrees, zeros and ones [nodes, rounds], or `C`."""
        if self.released == 'nodes':
            return node_matrix(self.rounds)
        return self.strategy_matrix()

    def forest(self) -> tree_sensitivity.Forest | None:
        if self.released == 'nodes':
            return tree_sensitivity.Forest.of(self.rounds)
        return None

    def describe_release(self) -> str:
        return _NODES_RELEASED if self.released == 'nodes' else super().describe_release()

    def is_counted(self) -> bool:
        return self.forest() is not None

    def _sensitivity(self, participation: Participation) -> Sensitivity:
        forest = self.forest()
        if forest is not None:
            return tree_sensitivity.sensitivity(participation, forest)
        return matrix_sensitivity.of_matrix(self.strategy_matrix(), participation)


@dataclasses.dataclass(frozen=True)
class BinaryTree(_Tree):
    """Tree aggregation: the noise of a prefix sum comes from the fewest subtrees that cover it.

    Exactly one of the subtrees that cover prefixes ends with round t. It covers the last 2^l
    rounds, where 2^l is the largest power of two that divides t + 1. So `C` is square, with ones
    over those rounds in row t (a Fenwick tree).

    Attributes:
      rounds: number of rounds, at least 1.
      released: what the sensitivity counts as released. 'nodes': all nodes of the forest of
        complete subtrees, including right children that no prefix sum uses. This is the published
        accounting ([Xu23], [McMahan24], [Xu23-accounting]). 'prefix_sums': what the mechanism
        really releases, `x + C^-1 z`, which an invertible map turns into `C x + z`. The noise is
        the same, and the sensitivity is that of `C`.

    Example:
      >>> BinaryTree(8).sensitivity(Participation(8, min_separation=8))  # A leaf has four nodes.
      2.0
    """

    name: ClassVar[str] = 'tree'

    def strategy_matrix(self) -> np.ndarray:
        widths = 2 ** _levels(self.rounds)
        lag = np.subtract.outer(np.arange(self.rounds), np.arange(self.rounds))
        return ((lag >= 0) & (lag < widths[:, None])).astype(np.float64)

    def kernel(self) -> kernels.StateSpace:
        """One buffer for each level below the top: the noise of a subtree of the current prefix.

        A completed subtree of level l replaces the subtrees of all lower levels.
        """
        levels = np.arange(self.rounds.bit_length())
        recall = np.zeros((levels.size, levels.size))
        return _prefix_kernel(self.rounds, np.ones(levels.size), recall)

    def forest(self) -> tree_sensitivity.Forest:
        # Prefix sums are made of nodes too: roots and left children.
        right_children = self.released == 'nodes'
        return tree_sensitivity.Forest.of(self.rounds, right_children=right_children)

    def _prefix_squared_error(self) -> np.ndarray:
        """The number of subtrees that make up each prefix: the ones in the binary form of t + 1."""
        return _bits(self.rounds).sum(axis=1).astype(np.float64)


@dataclasses.dataclass(frozen=True)
class HonakerTree(_Tree):
    """Tree aggregation with online variance reduction ([Honaker15], estimation from below).

    This is the efficient tree of tensorflow-privacy. The estimate of a subtree of level l weighs
    the subtree's own noised node by w_l = 1 / (2 - 2^-l) and the estimates of its two halves by
    1 - w_l. Its variance is then w_l. All nodes that a round completes enter only one estimate, so
    one normal variable per round with their summed variance has the same distribution. `C` is
    therefore square, and the state is one estimate per level.

    Attributes:
      rounds: number of rounds, at least 1.
      released: as in `BinaryTree`. For 'prefix_sums' the sensitivity is an upper bound.

    Example:
      >>> schema = Participation(1024, min_separation=1024)
      >>> HonakerTree(1024).max_loss(schema) < BinaryTree(1024).max_loss(schema)
      True
    """

    name: ClassVar[str] = 'honaker_tree'

    def strategy_matrix(self) -> np.ndarray:
        inverse = kernels.stream(self.kernel(), np.eye(self.rounds))
        return scipy.linalg.solve_triangular(inverse, np.eye(self.rounds), lower=True)

    def kernel(self) -> kernels.StateSpace:
        weights = _weights(self.rounds.bit_length())
        variance = np.ones_like(weights)
        recall = np.zeros((weights.size, weights.size))
        for level in range(1, weights.size):
            halves = 1 - weights[level]
            variance[level] = weights[level] ** 2 + halves**2 * variance[level - 1]
            recall[level, :level] = halves * recall[level - 1, :level]
            recall[level, level - 1] = halves
        return _prefix_kernel(self.rounds, np.sqrt(variance), recall)

    def _prefix_squared_error(self) -> np.ndarray:
        bits = _bits(self.rounds)
        return bits @ _weights(bits.shape[1])


def node_matrix(rounds: int, completed: bool = False) -> np.ndarray:
    """Which rounds each node of the tree sums: zeros and ones, [nodes, rounds].

    Args:
      rounds: number of rounds.
      completed: whether to include the nodes of a complete tree that reach beyond the last round.
    """
    rows = []
    top = (rounds - 1).bit_length() if completed else rounds.bit_length() - 1
    for level in range(top + 1):
        width = 2**level
        last_start = rounds - 1 if completed else rounds - width
        for start in range(0, last_start + 1, width):
            row = np.zeros(rounds)
            row[start : start + width] = 1.0
            rows.append(row)
    return np.array(rows)


def _prefix_kernel(rounds: int, stddev: np.ndarray, recall: np.ndarray) -> kernels.StateSpace:
    """Kernel whose buffers hold the noise of the estimates of the current prefix's subtrees.

    In a round that completes a subtree of level l, the noise of the subtree's estimate is
    `e = stddev[l] z + sum_{j<l} recall[l, j] s_j`. The prefix loses s_0 .. s_{l-1} and gains e.

    Args:
      rounds: number of rounds.
      stddev: standard deviations of the new noise by level, [levels].
      recall: weights of the lower levels' noise, [levels, levels].
    """
    levels = _levels(rounds)
    size = rounds.bit_length() - 1  # No higher level would read the noise of the top level.
    buffers = np.arange(size)
    estimate = np.hstack([stddev[levels][:, None], recall[levels][:, :size]])
    maps = np.zeros((rounds, 1 + size, 1 + size))
    maps[:, 0] = estimate
    maps[:, 0, 1:] -= buffers < levels[:, None]
    maps[:, 1 + buffers, 1 + buffers] = buffers > levels[:, None]
    stored = np.flatnonzero(levels < size)
    maps[stored, 1 + levels[stored]] = estimate[stored]
    return kernels.StateSpace(maps)


def _weights(levels: int) -> np.ndarray:
    """w_l of [Honaker15] for l = 0 .. levels - 1: weight of a node against its two halves."""
    return 1 / (2 - 0.5 ** np.arange(levels))


def _bits(rounds: int) -> np.ndarray:
    """Binary forms of 1 .. rounds, lowest bit first: the levels of each prefix's subtrees."""
    return np.arange(1, rounds + 1)[:, None] >> np.arange(rounds.bit_length()) & 1


def _levels(rounds: int) -> np.ndarray:
    """Level of the largest subtree that ends with each round, int64 [rounds]."""
    ends = np.arange(1, rounds + 1)
    return np.round(np.log2(ends & -ends)).astype(np.int64)


@dataclasses.dataclass(frozen=True)
class FullHonakerTree(base.Mechanism):
    """Best unbiased prefix sums from all noised nodes: `B = A N^+` ([McMahan24], TreeAgg-Full).

    N is the matrix of the nodes. `C` is the square matrix with `C^T C = N^T N`, so it gives the
    same noise and, for every pattern, the sensitivity of the nodes. No way to stream this noise
    with little memory is known: the kernel keeps the noise of all earlier rounds.

    Attributes:
      rounds: number of rounds, at least 1.
      completed: whether to use one complete tree over at least `rounds` rounds (tree completion)
        instead of the forest of complete subtrees.

    Example:
      >>> schema = Participation(64, min_separation=64)
      >>> FullHonakerTree(64).rms_loss(schema) < HonakerTree(64).rms_loss(schema)
      True
    """

    name: ClassVar[str] = 'full_honaker_tree'
    shortens: ClassVar[bool] = False
    extends: ClassVar[bool] = False
    rounds: int
    completed: bool = False

    def __post_init__(self):
        super().__post_init__()
        _validate.truth('completed', self.completed)

    def num_buffers(self) -> int:
        return self.rounds - 1

    def released_matrix(self) -> np.ndarray:
        """The nodes, zeros and ones [nodes, rounds]."""
        return node_matrix(self.rounds, self.completed)

    def released_until(self, rounds: int) -> np.ndarray:
        """All nodes, [nodes, rounds]: more than a run that stops early releases."""
        return self.released_matrix()[:, :rounds]

    def describe_release(self) -> str:
        return _NODES_RELEASED

    def strategy_matrix(self) -> np.ndarray:
        nodes = self.released_matrix()
        # C^T C = N^T N with a lower-triangular C is a Cholesky factor from the last row upwards.
        reversed_gram = (nodes.T @ nodes)[::-1, ::-1]
        return scipy.linalg.cholesky(reversed_gram, lower=False)[::-1, ::-1]

    def kernel(self) -> kernels.BandedSolve:
        matrix = self.strategy_matrix()
        lag = np.subtract.outer(np.arange(self.rounds), np.arange(self.rounds))
        bands = np.where(lag >= 0, np.take_along_axis(matrix, np.maximum(lag, 0), axis=1), 0.0)
        return kernels.BandedSolve(bands)

    def with_rounds(self, rounds: int) -> 'FullHonakerTree':
        """Returns the mechanism itself: every row of `C` depends on the number of rounds to come.

        Raises:
          ArgumentError: for any other number of rounds.
        """
        if rounds != self.rounds:
            raise errors.ArgumentError(
                'rounds', rounds, f"must be {self.rounds}, the decoder's number of rounds"
            )
        return self

    def sensitivity_bound(self, participation: Participation) -> Sensitivity:
        _validate.integer('rounds', participation.rounds, minimum=1, maximum=self.rounds)
        bound = self._sensitivity(participation)
        # A run that stops early releases less than all nodes.
        return bound._replace(is_exact=bound.is_exact and participation.rounds == self.rounds)

    def _sensitivity(self, participation: Participation) -> Sensitivity:
        kind = tree_sensitivity.Forest
        forest = kind.completed(self.rounds) if self.completed else kind.of(self.rounds)
        return tree_sensitivity.sensitivity(participation, forest)
