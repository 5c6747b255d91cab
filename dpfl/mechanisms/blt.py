"""Buffered linear Toeplitz mechanism (BLT)."""

import dataclasses
from typing import ClassVar

import numpy as np

from dpfl import _validate
from dpfl.mechanisms import base, kernels, toeplitz


@dataclasses.dataclass(frozen=True, eq=False)
class Blt(base.Mechanism):
    """BLT(theta, omega): `C` is Toeplitz with c_0 = 1, c_i = sum_j scale_j decay_j^(i - 1).

    Document 002, equation 2; its noise is streamed by algorithm 3 with one buffer per parameter
    pair. The parameters hold for any number of rounds.

    Attributes:
      rounds: number of rounds, at least 1.
      decay: theta, float64 [d], each within [0, 1].
      scale: omega, float64 [d].

    Raises:
      ValueError: if a field is out of its range or the lengths differ.
    """

    name: ClassVar[str] = 'blt'
    rounds: int
    decay: np.ndarray
    scale: np.ndarray

    def __post_init__(self):
        _validate.integer('rounds', self.rounds, minimum=1)
        object.__setattr__(self, 'decay', _validate.vector('decay', self.decay))
        object.__setattr__(self, 'scale', _validate.vector('scale', self.scale))
        if self.decay.size != self.scale.size or not self.decay.size:
            raise ValueError(
                f'decay has {self.decay.size} and scale {self.scale.size} entries: '
                'must be the same number, at least 1'
            )
        if self.decay.min() < 0 or self.decay.max() > 1:
            raise ValueError(f'decay={self.decay.tolist()}: each entry must be within [0, 1]')

    def __eq__(self, other) -> bool:
        return isinstance(other, Blt) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash(self.digest())

    def coefficients(self) -> np.ndarray:
        """First column of `C`, float64 [rounds]."""
        lags = np.arange(self.rounds - 1)
        return np.concatenate([[1.0], self.scale @ self.decay[:, None] ** lags])

    def strategy_matrix(self) -> np.ndarray:
        return toeplitz.matrix(self.coefficients())

    def kernel(self) -> kernels.StateSpace:
        """Algorithm 3 of document 002: y = z - omega s, then s <- theta s + y."""
        output = np.concatenate([[1.0], -self.scale])
        kept = np.hstack([np.zeros((self.decay.size, 1)), np.diag(self.decay)])
        return kernels.StateSpace(np.vstack([output, kept + output])[None])

    def _prefix_squared_error(self) -> np.ndarray:
        impulse = np.zeros(self.rounds)
        impulse[0] = 1.0
        return toeplitz.squared_error(kernels.stream(self.kernel(), impulse))

    def _sensitivity(self, participation) -> base.Sensitivity:
        return toeplitz.sensitivity(self.coefficients(), participation)
