"""Banded strategy matrices."""

import dataclasses
import hashlib
from typing import ClassVar

import numpy as np
from scipy import linalg

from dpfl import _validate, errors
from dpfl.mechanisms import base, rounding
from dpfl.mechanisms.sensitivities import matrix_sensitivity
from dpfl.mechanisms.streaming import kernels

# Rows of C^-1 that are solved for at one time: large enough for matrix products to dominate.
_ROWS_AT_ONCE = 256


@dataclasses.dataclass(frozen=True, eq=False)
class Banded(base.Mechanism):
    """`C` with b bands: C[i, j] = 0 for i - j >= b. Its noise needs b - 1 buffers.

    The strategy of banded matrix factorisation (document 002, section 2.3), made by
    `optimize_banded`. It is a table of numbers for a fixed number of rounds: a shorter run uses
    the leading block, a longer one is refused.

    While b is at most the minimum separation, no two columns of one pattern overlap, so the
    sensitivity is exact, for entries of any sign: the heaviest pattern of squared column norms.
    Beyond that it is a proven upper bound (`sensitivity.upper_bound`).

    Attributes:
      diagonals: float64 [rounds, b] with 1 <= b <= rounds: `diagonals[t, j] = C[t, t - j]`, zero
        for j > t (left of the matrix); `diagonals[:, 0]` is positive.

    Raises:
      ValueError: if the table has another shape or entries that are not allowed; on the diagonal
        also those below 1e-100, and any above 1e100, whose squares would not be floats.
    """

    name: ClassVar[str] = 'banded'
    diagonals: np.ndarray

    def __post_init__(self):
        object.__setattr__(self, 'diagonals', _table(self.diagonals))

    @classmethod
    def from_matrix(cls, matrix: np.ndarray, bands: int) -> 'Banded':
        """The mechanism of a lower-triangular matrix [n, n]: its first `bands` diagonals."""
        _validate.integer('bands', bands, minimum=1, maximum=len(matrix))
        diagonals = np.zeros((len(matrix), bands))
        for j in range(bands):
            diagonals[j:, j] = np.diagonal(matrix, -j)
        return cls(diagonals)

    @property
    def rounds(self) -> int:
        """Number of rounds n."""
        return self.diagonals.shape[0]

    @property
    def bands(self) -> int:
        """b, the main diagonal included."""
        return self.diagonals.shape[1]

    def __eq__(self, other) -> bool:
        return isinstance(other, Banded) and np.array_equal(self.diagonals, other.diagonals)

    def __hash__(self) -> int:
        return hash(self.digest())

    def digest(self) -> str:
        """SHA-256 of the shape and the bytes of the table, hexadecimal.

        Of bytes, not of a text as for other mechanisms: a table may have millions of entries.
        """
        # Adding 0.0 turns -0.0 into 0.0, which is equal and must have an equal digest.
        table = np.ascontiguousarray(self.diagonals + 0.0, dtype='<f8')
        header = f'{self.name} {table.shape}'.encode()
        return hashlib.sha256(header + table.tobytes()).hexdigest()

    def strategy_matrix(self) -> np.ndarray:
        return _strip(self.diagonals, 0, self.rounds)

    def kernel(self) -> kernels.BandedSolve:
        return kernels.BandedSolve(bands=self.diagonals)

    def column_norms(self) -> np.ndarray:
        """Norms of the columns of `C`, float64 [rounds]."""
        squared = np.zeros(self.rounds)
        for j in range(self.bands):
            squared[: self.rounds - j] += self.diagonals[j:, j] ** 2
        return np.sqrt(squared)

    def with_rounds(self, rounds: int) -> 'Banded':
        """The leading block: the same noise, stopped early.

        The last b - 1 columns of the block end before their last entries, so their norms, and
        with them the sensitivity, are at most those of the full matrix.

        Raises:
          ValueError: if there are more rounds than in the table.
        """
        _validate.integer('rounds', rounds, minimum=1)
        if rounds == self.rounds:
            return self
        if rounds > self.rounds:
            raise errors.ArgumentError(
                'rounds',
                rounds,
                f'must be at most {self.rounds}, the rounds that this banded matrix was made for',
            )
        return Banded(self.diagonals[:rounds, :rounds])

    def _sensitivity(self, participation) -> base.Sensitivity:
        if self.bands <= participation.min_separation:
            squared = matrix_sensitivity.heaviest_pattern(self.column_norms() ** 2, participation)
            return base.Sensitivity(squared, is_exact=True)
        return matrix_sensitivity.of_matrix(self.strategy_matrix(), participation)

    def _prefix_squared_error(self) -> np.ndarray:
        """Squared row norms of the cumulative sums of C^-1, block row after block row: O(n^2 b)."""
        n, reach = self.rounds, self.bands - 1
        errors = np.empty(n)
        inverse = np.zeros((0, n))  # the last rows of C^-1, as many as the bands reach
        prefix = np.zeros(n)
        for low in range(0, n, _ROWS_AT_ONCE):
            high = min(low + _ROWS_AT_ONCE, n)
            strip = _strip(self.diagonals, low, high)
            known = strip.shape[1] - (high - low)
            right = np.eye(high - low, n, k=low)
            right[:, :low] -= strip[:, :known] @ inverse[:, :low]
            rows = linalg.solve_triangular(strip[:, known:], right, lower=True)
            sums = prefix + np.cumsum(rows, axis=0)
            errors[low:high] = (sums**2).sum(axis=1)
            prefix = sums[-1]
            inverse = np.concatenate([inverse, rows])[-reach:] if reach else inverse
        return errors


def _table(value) -> np.ndarray:
    """The table of diagonals as a read-only array, checked."""
    try:
        table = _validate.floats(value)
    except ValueError:
        raise errors.ArgumentError(
            'diagonals', errors.NOT_SHOWN, 'must be a table of numbers, [rounds, bands]'
        ) from None
    if table.ndim != 2 or not 1 <= table.shape[1] <= table.shape[0]:
        raise ValueError(
            f'diagonals has shape {table.shape}: must be [rounds, bands], 1 <= bands <= rounds'
        )
    if not (np.abs(table) <= _validate.MOST_ENTRY).all():
        raise ValueError(
            'diagonals has an entry that is not finite, or too large: each must be a finite number '
            f'of at most {_validate.MOST_ENTRY:g}'
        )
    corner = np.triu(table[: table.shape[1]], 1)
    if corner.any():
        t, j = np.argwhere(corner)[0]
        raise ValueError(f'diagonals[{t}, {j}]={table[t, j]}: must be 0, left of the matrix')
    if not table[:, 0].min() > 0:
        raise ValueError(f'diagonals[:, 0] has the entry {table[:, 0].min()}: each must be > 0')
    # The squares of all columns are floats then, with their digits.
    if table[:, 0].min() < rounding.SMALLEST:
        raise ValueError(
            f'diagonals[:, 0] has the entry {table[:, 0].min()}: each must be >= '
            f'{rounding.SMALLEST:g}'
        )
    if np.abs(table).max() > rounding.LARGEST:
        raise ValueError(
            f'diagonals has an entry of size {np.abs(table).max()}: each must be <= '
            f'{rounding.LARGEST:g}'
        )
    table.setflags(write=False)
    return table


def _strip(diagonals: np.ndarray, low: int, high: int) -> np.ndarray:
    """Rows low .. high - 1 of C as a dense matrix, from the first column that the bands reach.

    Returns:
      float64 [high - low, high - max(low - b + 1, 0)].
    """
    reach = diagonals.shape[1] - 1
    height, width = high - low, high - low + reach
    dense = np.zeros((height, width))
    # Entry (t, t - j) stands j places left of the diagonal, which moves by width + 1 per row.
    step = dense.itemsize
    band = np.lib.stride_tricks.as_strided(
        dense[:, reach:], shape=(height, reach + 1), strides=((width + 1) * step, -step)
    )
    band[...] = diagonals[low:high]
    return dense[:, max(reach - low, 0) :]
