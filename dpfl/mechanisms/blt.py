"""Buffered linear Toeplitz mechanisms (BLT)."""

import dataclasses
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dpfl import _validate, errors
from dpfl.mechanisms import (
    base,
    blt_inverse,
    rounding,
    toeplitz,
)
from dpfl.mechanisms.sensitivities import toeplitz_sensitivity
from dpfl.mechanisms.sensitivities.common import Sensitivity
from dpfl.mechanisms.streaming import kernels
from dpfl.participation import Participation

# Every buffer takes memory for each round. Published mechanisms have at most 10.
_MOST_BUFFERS = 1024


@dataclasses.dataclass(frozen=True, eq=False)
class Blt(base.Mechanism):
    """BLT(theta, omega): `C` is Toeplitz with c_0 = 1, c_i = sum_j scale_j decay_j^(i - 1).

    See [McMahan24], equation 2. The noise is streamed by algorithm 3 with one buffer for each
    pair of parameters. The parameters are valid for any number of rounds.

    Attributes:
      rounds: number of rounds, at least 1.
      decay: theta, float64 [d], each within [0, 1].
      scale: omega, float64 [d].

    Raises:
      ArgumentError: if a field is out of its range, or the lengths differ.
    """

    name: ClassVar[str] = 'blt'
    rounds: int
    decay: np.ndarray
    scale: np.ndarray

    def __post_init__(self):
        _validate.integer('rounds', self.rounds, minimum=1, maximum=_validate.MOST_ROUNDS)
        object.__setattr__(self, 'decay', _validate.vector('decay', self.decay))
        object.__setattr__(self, 'scale', _validate.vector('scale', self.scale))
        if self.decay.size != self.scale.size or not 1 <= self.decay.size <= _MOST_BUFFERS:
            raise errors.ArgumentError(
                'decay',
                self.decay.tolist(),
                f'must have as many entries as scale ({self.scale.size}), at least 1 and at most '
                f'{_MOST_BUFFERS}',
            )
        if self.decay.min() < 0 or self.decay.max() > 1:
            raise errors.ArgumentError(
                'decay', self.decay.tolist(), 'each entry must be within [0, 1]'
            )
        if np.abs(self.scale).max() > rounding.LARGEST:
            raise errors.ArgumentError(
                'scale', self.scale.tolist(), f'each entry must be <= {rounding.LARGEST:g} in size'
            )

    @classmethod
    def from_inverse_decay(cls, rounds: int, decay: ArrayLike, inverse_decay: ArrayLike) -> 'Blt':
        """The BLT with decays `decay` whose inverse has decays `inverse_decay`.

        See [McMahan24], algorithm 5.

        Raises:
          ArgumentError: if there is no such BLT, see `blt_inverse.output_scale`.
        """
        decay = _validate.vector('decay', decay)
        inverse_decay = _validate.vector('inverse_decay', inverse_decay)
        return cls(rounds, decay, blt_inverse.output_scale(decay, inverse_decay))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Blt) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash(self.digest())

    def coefficients(self) -> np.ndarray:
        """First column of `C`, float64 [rounds]."""
        return np.append(1.0, self.scale @ blt_inverse.powers(1 - self.decay, self.rounds - 1))

    def inverse_parameters(self) -> tuple[np.ndarray, np.ndarray]:
        """(theta^, omega^) with `C^-1 = BLT(theta^, omega^)`, float64 [at most d] each.

        The largest decay comes first. Equal decays count as one, and scale 0 as none.

        Raises:
          ValueError: if the inverse is not a BLT with real decays.
        """
        found = blt_inverse.inverse(self.decay, self.scale)
        return found.decay, found.scale

    def is_monotone(self) -> bool:
        """Whether the parameters prove that coefficients are non-negative and non-increasing.

        A sufficient condition: every scale is non-negative, and their sum, c_1, is at most
        c_0 = 1.
        """
        return bool(self.scale.min() >= 0 and self.scale.sum() <= 1)

    def toeplitz_column(self, rounds: int) -> np.ndarray:
        return self.with_rounds(rounds).coefficients()

    def strategy_matrix(self) -> np.ndarray:
        return toeplitz.matrix(self.coefficients())

    def kernel(self) -> kernels.StateSpace:
        """[McMahan24], algorithm 3: y = z - omega s, then s <- theta s + y."""
        output = np.concatenate([[1.0], -self.scale])
        kept = np.hstack([np.zeros((self.decay.size, 1)), np.diag(self.decay)])
        return kernels.StateSpace(np.vstack([output, kept + output])[None])

    def squared_error(self, workload: np.ndarray | None = None) -> np.ndarray:
        if workload is not None and np.ndim(workload) != 1:
            return super().squared_error(workload)
        return toeplitz.workload_squared_error(self._prefix_coefficients(), workload)

    def _prefix_coefficients(self) -> np.ndarray:
        """First column of `B = A C^-1` for the prefix sums, float64 [rounds].

        With non-negative scales it is a sum of exponentials with non-negative weights, so no
        digits cancel. Otherwise the inverse may oscillate or grow, and only the recurrence itself
        is always accurate.
        """
        if self.scale.min() < 0:
            return np.cumsum(self._recurrence())
        found = blt_inverse.inverse(self.decay, self.scale)
        rates = 1 - self.decay
        if (self.scale[rates == 0] > 0).any():
            constant = 0.0
        else:
            active = self.scale > 0
            constant = 1 / (1 + (self.scale[active] / rates[active]).sum())
        weights = -found.scale / found.rate
        return constant + weights @ blt_inverse.powers(found.rate, self.rounds)

    def _recurrence(self) -> np.ndarray:
        """First column of `C^-1` by [McMahan24], algorithm 3, float64 [rounds]."""
        state = np.zeros(self.decay.size)
        column = np.empty(self.rounds)
        impulse = 1.0
        for t in range(self.rounds):
            output = impulse - self.scale @ state
            state = self.decay * state + output
            column[t], impulse = output, 0.0
        return column

    def _sensitivity(self, participation: Participation) -> Sensitivity:
        return toeplitz_sensitivity.sensitivity(
            self.coefficients(), participation, known_monotone=self.is_monotone()
        )
