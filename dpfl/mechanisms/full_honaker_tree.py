"""Binary tree aggregation with the best decoder: all nodes are used for every prefix sum."""

import dataclasses
from typing import ClassVar

import numpy as np
from scipy import linalg

from dpfl import _validate, errors
from dpfl.mechanisms import base, kernels, tree
from dpfl.mechanisms.sensitivities import tree_sensitivity
from dpfl.mechanisms.sensitivities.common import Sensitivity
from dpfl.participation import Participation


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
        return tree.node_matrix(self.rounds, self.completed)

    def released_until(self, rounds: int) -> np.ndarray:
        """All nodes, [nodes, rounds]: more than a run that stops early releases."""
        return self.released_matrix()[:, :rounds]

    def describe_release(self) -> str:
        return tree.NODES_RELEASED

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
