"""Independent Gaussian noise in every round: `C` is the identity."""

import dataclasses
from typing import ClassVar

import numpy as np

from dpfl.mechanisms import base, kernels
from dpfl.mechanisms.sensitivities.matrix_sensitivity import Sensitivity
from dpfl.participation import Participation


@dataclasses.dataclass(frozen=True)
class Identity(base.Mechanism):
    """Independent noise (DP-FedAvg and DP-SGD without amplification by sampling).

    Attributes:
      rounds: number of rounds, at least 1.

    Example:
      >>> Identity(100).sensitivity(Participation(100, min_separation=25))  # Root of four rounds.
      2.0
    """

    name: ClassVar[str] = 'gaussian'
    is_independent: ClassVar[bool] = True
    starts_afresh: ClassVar[bool] = True
    rounds: int

    @property
    def fresh_rounds(self) -> tuple[int, ...]:
        return tuple(range(1, self.rounds))

    @property
    def strategy_bands(self) -> int:
        return 1

    def strategy_matrix(self) -> np.ndarray:
        return np.eye(self.rounds)

    def kernel(self) -> kernels.StateSpace:
        return kernels.StateSpace(np.ones((1, 1, 1)))

    def column_norms(self) -> np.ndarray:
        return np.ones(self.rounds)

    def is_counted(self) -> bool:
        return True

    def _prefix_squared_error(self) -> np.ndarray:
        return np.arange(1.0, self.rounds + 1)

    def _sensitivity(self, participation: Participation) -> Sensitivity:
        return Sensitivity(float(participation.count), is_exact=True)
