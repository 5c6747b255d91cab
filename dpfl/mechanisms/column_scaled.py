"""Mechanisms whose columns are scaled: `C` is a base matrix times a diagonal one."""

import dataclasses
from typing import ClassVar

import numpy as np

from dpfl import _validate, errors
from dpfl.mechanisms import kernels, rounding, toeplitz
from dpfl.mechanisms.base import Mechanism
from dpfl.mechanisms.block_blt import BlockBlt, prefix_squared_error
from dpfl.mechanisms.blt import Blt
from dpfl.mechanisms.sensitivities import matrix_sensitivity, scaled_toeplitz
from dpfl.mechanisms.sensitivities.matrix_sensitivity import Sensitivity
from dpfl.participation import Participation


@dataclasses.dataclass(frozen=True, eq=False)
class ColumnScaled(Mechanism):
    """`C = L diag(s)`: the noise `L^-1 z` of a base mechanism, divided by s_t in round t.

    A larger scale means less noise in a round, and more sensitivity to who takes part in it. It
    takes no more memory than the base. docs/research/mechanisms.md has the sensitivity.

    Attributes:
      base: the mechanism of L; its number of rounds becomes that of this mechanism.
      scale: s of each block of rounds, float64 [any], each > 0; the last one goes on after the
        last block, and blocks after the last round are not used.
      rounds: number of rounds, at least 1.
      block_length: rounds that share a scale, at least 1.

    Raises:
      ArgumentError: if a field is out of its range.

    Example:
      >>> ColumnScaled(Identity(3), np.array([2.0, 1.0, 0.5]), rounds=3).strategy_matrix()
      array([[2. , 0. , 0. ],
             [0. , 1. , 0. ],
             [0. , 0. , 0.5]])
    """

    name: ClassVar[str] = 'column_scaled'
    base: Mechanism
    scale: np.ndarray
    rounds: int
    block_length: int = 1

    def __post_init__(self):
        super().__post_init__()
        length = _validate.integer(
            'block_length', self.block_length, minimum=1, maximum=_validate.MOST_ROUNDS
        )
        object.__setattr__(self, 'block_length', length)
        if not isinstance(self.base, Mechanism):
            raise errors.ArgumentError('base', self.base, 'must be a mechanism')
        base = self.base
        if isinstance(base, ColumnScaled) or not (base.extends and base.shortens):
            raise errors.ArgumentError(
                'base',
                base.name,
                'must be a mechanism that can have any number of rounds, and is not scaled itself',
            )
        object.__setattr__(self, 'base', base.with_rounds(self.rounds))
        scale = _validate.vector('scale', self.scale)
        object.__setattr__(self, 'scale', scale)
        smallest, largest = rounding.SMALLEST**0.5, rounding.LARGEST**0.5
        if not scale.size or scale.min() < smallest or scale.max() > largest:
            raise errors.ArgumentError(
                'scale',
                errors.NOT_SHOWN,
                f'must have at least 1 entry, each >= {smallest:g} and <= {largest:g}',
            )

    @classmethod
    def normalized(cls, base: Mechanism) -> 'ColumnScaled':
        """The mechanism whose columns all have the norm of the first column of the base.

        The last columns of a Toeplitz matrix are cut off. With normalized columns their rounds have
        less noise. If bands do not exceed the separation, the sensitivity is no larger than that of
        k first columns.

        Args:
          base: as the field `base`.
        """
        norms = base.column_norms()
        return cls(base, norms[0] / norms, base.rounds)

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

    def released_matrix(self) -> np.ndarray:
        return self.base.released_matrix() * self.column_scales()

    def column_norms(self) -> np.ndarray:
        return self.base.column_norms() * self.column_scales()

    @property
    def strategy_bands(self) -> int | None:
        return self.base.strategy_bands

    def column_error(self, rounds: int) -> float:
        return self.base.column_error(rounds)

    def describe_release(self) -> str:
        return f'Each round is counted with the scale of its column. {self.base.describe_release()}'

    def kernel(self) -> kernels.Kernel:
        """The kernel of the base, with the outputs divided by the scales."""
        kernel, scale = self.base.kernel(), self.column_scales()
        rows = kernel.table.shape[0]
        table = np.repeat(kernel.table, self.rounds if rows == 1 else 1, axis=0)[: self.rounds]
        if isinstance(kernel, kernels.StateSpace):
            table = table.copy()
            table[:, 0] /= scale[:, None]
            return dataclasses.replace(kernel, maps=table)
        if isinstance(kernel, kernels.BandedProduct):
            return kernels.BandedProduct(table / scale[:, None])
        # Entry j of row t belongs to column t - j.
        column = np.arange(self.rounds)[:, None] - np.arange(table.shape[1])
        return kernels.BandedSolve(table * scale[np.maximum(column, 0)])

    def num_buffers(self) -> int:
        return self.base.num_buffers()

    def _prefix_squared_error(self) -> np.ndarray:
        """Adds up the rows of `B = A C^-1` for a Toeplitz base, one after the other.

        The buffers of a base with blocks have a covariance instead.
        """
        if isinstance(self.base, BlockBlt):
            return prefix_squared_error(self.kernel().table)
        column = self.base.toeplitz_column(self.rounds)
        if column is None:
            return super()._prefix_squared_error()
        inverse = toeplitz.reciprocal(column, self.rounds)[::-1]
        row, squared = np.zeros(self.rounds), np.empty(self.rounds)
        for t, scale in enumerate(self.column_scales().tolist(), 1):
            row[:t] += inverse[-t:] / scale
            squared[t - 1] = row[:t] @ row[:t]
        return squared

    def _sensitivity(self, participation: Participation) -> Sensitivity:
        """Exact for bands within the separation, and where the bound of the base finds it to be."""
        if isinstance(self.base, BlockBlt):
            return self.base.scaled_sensitivity(self.column_scales(), participation)
        separate = self._of_separate_columns(self.strategy_bands, participation)
        if separate is not None:
            return separate
        column = self.base.toeplitz_column(self.rounds)
        if column is None:
            released = self.released_matrix()
            return matrix_sensitivity.upper_bound(released.T @ released, participation)
        return scaled_toeplitz.sensitivity(
            column,
            self.column_scales(),
            self.block_length,
            participation,
            known_monotone=isinstance(self.base, Blt) and self.base.is_monotone(),
        )
