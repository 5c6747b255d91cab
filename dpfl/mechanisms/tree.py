"""Binary tree aggregation: plain, with online variance reduction, and with the best decoder."""

import abc
import dataclasses
from typing import ClassVar

import numpy as np
from scipy import linalg

from dpfl import _validate, errors
from dpfl.mechanisms import base
from dpfl.mechanisms.sensitivities import matrix_sensitivity, tree_sensitivity
from dpfl.mechanisms.streaming import kernels

_NODES_RELEASED = (
    'The noise on every node of the binary tree is counted as released, as in the published '
    'accounting; the prefix sums reveal less.'
)
RELEASED = ('nodes', 'prefix_sums')


@dataclasses.dataclass(frozen=True)
class _Tree(base.Mechanism):
    """What the trees share: the nodes, and the sensitivity of releasing all of them."""

    rounds: int
    released: str = 'nodes'

    def __post_init__(self):
        _validate.integer('rounds', self.rounds, minimum=1, maximum=_validate.MOST_ROUNDS)
        _validate.choice('released', self.released, RELEASED)

    def released_matrix(self) -> np.ndarray:
        """The nodes of the forest of complete subtrees, zeros and ones [nodes, rounds], or `C`."""
        if self.released == 'nodes':
            return node_matrix(self.rounds)
        return self.strategy_matrix()

    def describe_release(self) -> str:
        return _NODES_RELEASED if self.released == 'nodes' else super().describe_release()

    def _sensitivity(self, participation) -> base.Sensitivity:
        if self.released == 'nodes':
            forest = tree_sensitivity.Forest.of(self.rounds)
            return tree_sensitivity.sensitivity(participation, forest)
        return self._sensitivity_of_prefix_sums(participation)

    def _is_counted(self) -> bool:
        return self.released == 'nodes'

    @abc.abstractmethod
    def _sensitivity_of_prefix_sums(self, participation) -> base.Sensitivity:
        """Sensitivity of `C`: what the noised prefix sums alone reveal."""


@dataclasses.dataclass(frozen=True)
class BinaryTree(_Tree):
    """Tree aggregation: each prefix sum has the noise of the fewest subtrees that make it up.

    The subtree that ends with round t and is part of such a decomposition covers the last 2^l
    rounds, 2^l being the largest power of two that divides t + 1: there is one for every round,
    so `C` is square, with ones over those rounds in row t (a Fenwick tree).

    Attributes:
      rounds: number of rounds, at least 1.
      released: what the sensitivity takes as released. 'nodes', the published accounting of
        documents 000, 002 and 003: all nodes of the forest of complete subtrees, the unused right
        children as well. 'prefix_sums': what the mechanism in fact releases, `x + C^-1 z`, which
        is `C x + z` by an invertible map; the noise is the same and the sensitivity that of `C`.
    """

    name: ClassVar[str] = 'tree'

    def strategy_matrix(self) -> np.ndarray:
        widths = 2 ** _levels(self.rounds)
        lag = np.subtract.outer(np.arange(self.rounds), np.arange(self.rounds))
        return ((lag >= 0) & (lag < widths[:, None])).astype(np.float64)

    def kernel(self) -> kernels.StateSpace:
        """One buffer per level below the top: the noise of the subtrees in the current prefix.

        A subtree of level l takes the place of those of the levels below it.
        """
        levels = np.arange(self.rounds.bit_length())
        recall = np.zeros((levels.size, levels.size))
        return _prefix_kernel(self.rounds, np.ones(levels.size), recall)

    def _prefix_squared_error(self) -> np.ndarray:
        """Number of subtrees that make up each prefix: the ones in the binary form of t + 1."""
        return _bits(self.rounds).sum(axis=1).astype(np.float64)

    def _is_counted(self) -> bool:
        return True  # The prefix sums are made of nodes, too.

    def _sensitivity_of_prefix_sums(self, participation) -> base.Sensitivity:
        forest = tree_sensitivity.Forest.of(self.rounds, right_children=False)
        return tree_sensitivity.sensitivity(participation, forest)


@dataclasses.dataclass(frozen=True)
class HonakerTree(_Tree):
    """Tree aggregation with online variance reduction (Honaker 2015, estimation from below).

    As in tensorflow-privacy's efficient tree: the estimate of a subtree of level l weighs its own
    noised node by w_l = 1 / (2 - 2^-l) and the estimates of its two halves by 1 - w_l; its
    variance is then w_l. All nodes that a round completes enter one estimate only, so a single
    normal variable per round, with their summed variance, has the same distribution: `C` is
    square, and the state is one estimate per level.

    Attributes:
      rounds, released: as in `BinaryTree`; for 'prefix_sums' the sensitivity is an upper bound.
    """

    name: ClassVar[str] = 'honaker_tree'

    def strategy_matrix(self) -> np.ndarray:
        inverse = kernels.stream(self.kernel(), np.eye(self.rounds))
        return linalg.solve_triangular(inverse, np.eye(self.rounds), lower=True)

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

    def _sensitivity_of_prefix_sums(self, participation) -> base.Sensitivity:
        return matrix_sensitivity.of_matrix(self.strategy_matrix(), participation)


@dataclasses.dataclass(frozen=True)
class FullHonakerTree(base.Mechanism):
    """Best unbiased prefix sums from all noised nodes: `B = A N^+` (document 002, TreeAgg-Full).

    N is the matrix of the nodes. `C` is the square matrix with `C^T C = N^T N`: it gives the same
    noise, and has the sensitivity of the nodes for every pattern. No streaming with little memory
    is known: the kernel keeps the noise of all earlier rounds.

    Attributes:
      rounds: number of rounds, at least 1.
      completed: use one complete tree over at least `rounds` rounds (tree completion) in place of
        the forest of complete subtrees.
    """

    name: ClassVar[str] = 'full_honaker_tree'
    rounds: int
    completed: bool = False

    def __post_init__(self):
        _validate.integer('rounds', self.rounds, minimum=1, maximum=_validate.MOST_ROUNDS)
        _validate.truth('completed', self.completed)

    def released_matrix(self) -> np.ndarray:
        """The nodes, [nodes, rounds]."""
        return node_matrix(self.rounds, self.completed)

    def describe_release(self) -> str:
        return _NODES_RELEASED

    def strategy_matrix(self) -> np.ndarray:
        nodes = self.released_matrix()
        # C^T C = N^T N with a lower-triangular C is a Cholesky factor from the last row upwards.
        reversed_gram = (nodes.T @ nodes)[::-1, ::-1]
        return linalg.cholesky(reversed_gram, lower=False)[::-1, ::-1]

    def kernel(self) -> kernels.BandedSolve:
        matrix = self.strategy_matrix()
        lag = np.subtract.outer(np.arange(self.rounds), np.arange(self.rounds))
        bands = np.where(lag >= 0, np.take_along_axis(matrix, np.maximum(lag, 0), axis=1), 0.0)
        return kernels.BandedSolve(bands)

    def with_rounds(self, rounds: int) -> 'FullHonakerTree':
        """Only itself: every row of `C` depends on how many rounds there are to come."""
        if rounds != self.rounds:
            raise errors.ArgumentError(
                'rounds', rounds, f'must be {self.rounds}, those of the decoder'
            )
        return self

    def sensitivity_bound(self, participation) -> base.Sensitivity:
        _validate.integer('rounds', participation.rounds, minimum=1, maximum=self.rounds)
        bound = self._sensitivity(participation)
        # A run that stops early releases less than all nodes.
        return bound._replace(is_exact=bound.is_exact and participation.rounds == self.rounds)

    def _sensitivity(self, participation) -> base.Sensitivity:
        kind = tree_sensitivity.Forest
        forest = kind.completed(self.rounds) if self.completed else kind.of(self.rounds)
        return tree_sensitivity.sensitivity(participation, forest)


def node_matrix(rounds: int, completed: bool = False) -> np.ndarray:
    """Which rounds each node of the tree sums: zeros and ones, [nodes, rounds].

    Args:
      rounds: number of rounds.
      completed: also the nodes of a complete tree that reach beyond the last round.
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
    """Kernel whose buffers are the estimates' noise of the subtrees of the current prefix.

    In a round that completes a subtree of level l, its estimate has the noise
    `e = stddev[l] z + sum_{j<l} recall[l, j] s_j`; the prefix loses s_0 .. s_{l-1} and gains e.

    Args:
      rounds: number of rounds.
      stddev: [levels].
      recall: [levels, levels].
    """
    levels = _levels(rounds)
    size = rounds.bit_length() - 1  # The top level has nothing above that would read it.
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
    """w_l of Honaker 2015 for l = 0 .. levels - 1: weight of a node against its two halves."""
    return 1 / (2 - 0.5 ** np.arange(levels))


def _bits(rounds: int) -> np.ndarray:
    """Binary forms of 1 .. rounds, lowest bit first: levels of each prefix's subtrees."""
    return np.arange(1, rounds + 1)[:, None] >> np.arange(rounds.bit_length()) & 1


def _levels(rounds: int) -> np.ndarray:
    """Level of the subtree that ends with each round, int64 [rounds]."""
    ends = np.arange(1, rounds + 1)
    return np.round(np.log2(ends & -ends)).astype(np.int64)
