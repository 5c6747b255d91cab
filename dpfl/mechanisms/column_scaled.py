"""Mechanisms whose columns are scaled: `C` is a base matrix times a diagonal one."""

import dataclasses
from typing import ClassVar

import numpy as np

from dpfl import _validate, errors
from dpfl.mechanisms import kernels, rounding
from dpfl.mechanisms.base import Mechanism
from dpfl.mechanisms.block_blt import BlockBlt, prefix_squared_error
from dpfl.mechanisms.blt import Blt
from dpfl.mechanisms.sensitivities import matrix_sensitivity, scaled_toeplitz
from dpfl.mechanisms.sensitivities.matrix_sensitivity import Sensitivity
from dpfl.participation import Participation


@dataclasses.dataclass(frozen=True, eq=False)
class ColumnScaled(Mechanism):
    """`C = L diag(s)`: the noise `L^-1 z` of a BLT, divided by s_t in round t.

    A larger scale means less noise in a round, and more sensitivity to who takes part in it. It
    takes no more memory than the base. docs/research/mechanisms.md has the sensitivity.

    Attributes:
      base: the `Blt` or `BlockBlt` of L; its number of rounds becomes that of this mechanism.
      scale: s of each block of rounds, float64 [any], each > 0; the last one goes on after the
        last block, and blocks after the last round are not used.
      rounds: number of rounds, at least 1.
      block_length: rounds that share a scale, at least 1.

    Raises:
      ArgumentError: if a field is out of its range.

    Example:
      >>> blt = Blt(3, decay=np.array([0.5]), scale=np.array([0.5]))
      >>> ColumnScaled(blt, np.array([2.0, 1.0, 0.5]), rounds=3).strategy_matrix()
      array([[2. , 0. , 0. ],
             [1. , 1. , 0. ],
             [0.5, 0.5, 0.5]])
    """

    name: ClassVar[str] = 'column_scaled'
    base: Blt | BlockBlt
    scale: np.ndarray
    rounds: int
    block_length: int = 1

    def __post_init__(self):
        super().__post_init__()
        length = _validate.integer(
            'block_length', self.block_length, minimum=1, maximum=_validate.MOST_ROUNDS
        )
        object.__setattr__(self, 'block_length', length)
        if not isinstance(self.base, Blt | BlockBlt):
            raise errors.ArgumentError('base', errors.NOT_SHOWN, 'must be a Blt or a BlockBlt')
        object.__setattr__(self, 'base', self.base.with_rounds(self.rounds))
        scale = _validate.vector('scale', self.scale)
        object.__setattr__(self, 'scale', scale)
        smallest, largest = rounding.SMALLEST**0.5, rounding.LARGEST**0.5
        if not scale.size or scale.min() < smallest or scale.max() > largest:
            raise errors.ArgumentError(
                'scale',
                errors.NOT_SHOWN,
                f'must have at least 1 entry, each >= {smallest:g} and <= {largest:g}',
            )

    def column_scales(self) -> np.ndarray:
        """The scale of the column of each round, float64 [rounds]."""
        block = np.arange(self.rounds) // self.block_length
        return self.scale[np.minimum(block, self.scale.size - 1)]

    def with_rounds(self, rounds: int) -> 'ColumnScaled':
        return ColumnScaled(self.base, self.scale, rounds, self.block_length)

    def begins_like(self, other: Mechanism, rounds: int) -> bool:
        if not isinstance(other, ColumnScaled) or rounds > min(self.rounds, other.rounds):
            return False
        same = np.array_equal(self.column_scales()[:rounds], other.column_scales()[:rounds])
        return same and self.base.begins_like(other.base, rounds)

    def strategy_matrix(self) -> np.ndarray:
        return self.base.strategy_matrix() * self.column_scales()

    def column_norms(self) -> np.ndarray:
        return self.base.column_norms() * self.column_scales()

    def describe_release(self) -> str:
        return f'Each round is counted with the scale of its column. {self.base.describe_release()}'

    def kernel(self) -> kernels.StateSpace:
        """The kernel of the base, with the outputs divided by the scales."""
        maps = self.base.kernel().maps
        maps = np.repeat(maps, self.rounds if len(maps) == 1 else 1, axis=0)[: self.rounds]
        maps[:, 0] /= self.column_scales()[:, None]
        return kernels.StateSpace(maps)

    def num_buffers(self) -> int:
        return self.base.num_buffers()

    def _prefix_squared_error(self) -> np.ndarray:
        return prefix_squared_error(self.kernel().maps)

    def _sensitivity(self, participation: Participation) -> Sensitivity:
        """Exact where the bound of the base finds it to be."""
        if isinstance(self.base, BlockBlt):
            return self.base.scaled_sensitivity(self.column_scales(), participation)
        if not self.base.is_monotone():
            return matrix_sensitivity.of_matrix(self.strategy_matrix(), participation)
        return scaled_toeplitz.sensitivity(
            self.base.coefficients(), self.column_scales(), self.block_length, participation
        )
