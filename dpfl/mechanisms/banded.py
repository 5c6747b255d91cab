"""Banded mechanisms (BandMF): `C` has few bands, of any entries."""

import collections
import dataclasses
import functools
import hashlib
from typing import Any, ClassVar, NoReturn

import numpy as np
from scipy import linalg

from dpfl import _validate, errors
from dpfl.mechanisms import base, kernels, rounding
from dpfl.mechanisms.sensitivities import matrix_sensitivity
from dpfl.mechanisms.sensitivities.matrix_sensitivity import Sensitivity
from dpfl.participation import Participation

# Rows of C^-1 that are solved for at once: enough for matrix products to dominate.
_ROWS_AT_ONCE = 256


@dataclasses.dataclass(frozen=True, eq=False)
class Banded(base.Mechanism):
    """`C` with b bands: C[i, j] = 0 for i - j >= b. Its noise needs b - 1 buffers.

    This is the strategy of banded matrix factorisation ([McMahan24], section 2.3), made by
    `optimize_banded`. The table is made for a fixed number of rounds: a shorter run uses the
    leading block, a longer run is refused.

    If b is at most the minimum separation, no two columns of a pattern overlap. The sensitivity
    is then exact for entries of any sign: the heaviest pattern of squared column norms. For
    larger b it is a proven upper bound (`matrix_sensitivity.upper_bound`).

    Attributes:
      diagonals: float64 [rounds, b] with 1 <= b <= rounds: `diagonals[t, j] = C[t, t - j]`, zero
        for j > t (left of the matrix); `diagonals[:, 0]` is positive. A row that is given with
        a negative entry there has its sign turned: `C^T C`, and with it the sensitivity, stays, and
        so does the distribution of `C^-1 z`, because z and -z have the same.

    Raises:
      ArgumentError: if the table has another shape, or an entry that is not allowed. Entries above
        1e100, and diagonal entries below 1e-100, are refused because their squares would
        overflow or lose digits.

    Example:
      >>> Banded(np.array([[1.0, 0.0], [1.0, 0.5], [1.0, 0.5]])).strategy_matrix()
      array([[1. , 0. , 0. ],
             [0.5, 1. , 0. ],
             [0. , 0.5, 1. ]])
    """

    name: ClassVar[str] = 'banded'
    extends: ClassVar[bool] = False
    diagonals: np.ndarray

    def __post_init__(self):
        object.__setattr__(self, 'diagonals', _table(self.diagonals))

    @classmethod
    def from_matrix(cls, matrix: np.ndarray, bands: int) -> 'Banded':
        """The mechanism of a lower-triangular matrix [n, n]: its first `bands` diagonals."""
        _validate.integer('bands', bands, minimum=1, maximum=len(matrix))
        return cls(diagonals_of(matrix, bands))

    @property
    def rounds(self) -> int:  # type: ignore[override]
        """Number of rounds n."""
        return self.diagonals.shape[0]

    @property
    def bands(self) -> int:
        """Number of bands b, including the main diagonal."""
        return self.diagonals.shape[1]

    @property
    def strategy_bands(self) -> int:
        return self.bands

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Banded) and np.array_equal(self.diagonals, other.diagonals)

    def __hash__(self) -> int:
        return hash(self.digest())

    def digest(self) -> str:
        """SHA-256 of the shape and the bytes of the table, hexadecimal.

        It hashes bytes, not text as other mechanisms do, because the table may have millions of
        entries.
        """
        table = np.ascontiguousarray(self.diagonals, dtype='<f8')
        header = f'{self.name} {table.shape}'.encode()
        return hashlib.sha256(header + table.tobytes()).hexdigest()

    def strategy_matrix(self) -> np.ndarray:
        return _strip(self.diagonals, 0, self.rounds)

    def kernel(self) -> kernels.BandedSolve:
        return kernels.BandedSolve(bands=self.diagonals)

    def column_norms(self) -> np.ndarray:
        return _column_norms(self.diagonals)

    def with_rounds(self, rounds: int) -> 'Banded':
        """The leading block: the same noise, stopped early.

        The last b - 1 columns of the block lack their last entries, so their norms and the
        sensitivity are at most those of the full matrix.

        Raises:
          ArgumentError: if there are more rounds than the table has.
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

    def _sensitivity_of_first(self, participation: Participation) -> Sensitivity:
        """With separate columns, the sums of all first rounds of a run come from one table.

        Stopping after some rounds cuts off the last b - 1 columns. At most one of them is in a
        pattern: the last, after a pattern of whole columns.
        """
        separation, rounds = participation.min_separation, participation.rounds
        if self.bands > separation:
            return super()._sensitivity_of_first(participation)
        before, best = self._best_patterns(participation.within(self.rounds))
        whole = max(rounds - self.bands + 1, 0)
        last = _column_norms(self.diagonals[whole:rounds]) ** 2
        earlier = max(whole - separation, 0)
        with_cut = before[earlier : max(rounds - separation, 0)]
        last[last.size - with_cut.size :] += with_cut
        squared = max(last.max(initial=0.0), best[whole - 1] if whole else 0.0)
        return Sensitivity(float(squared), is_exact=True)

    def _best_patterns(self, participation: Participation) -> list[np.ndarray]:
        """The last two of `matrix_sensitivity.best_patterns` for the squared column norms."""
        key = participation.min_separation, participation.count
        last_two = self._tables.get(key)
        if last_two is None:
            sums = matrix_sensitivity.best_patterns(self.column_norms() ** 2, *key)
            last_two = list(collections.deque(sums, maxlen=2))
            self._tables.clear()
            self._tables[key] = last_two
        return last_two

    @functools.cached_property
    def _tables(self) -> dict[tuple[int, int], list[np.ndarray]]:
        return {}

    def _sensitivity(self, participation: Participation) -> Sensitivity:
        return matrix_sensitivity.of_matrix(self.strategy_matrix(), participation)

    def _prefix_squared_error(self) -> np.ndarray:
        """Squared row norms of the cumulative sums of C^-1, by blocks of rows: O(n^2 b)."""
        n, reach = self.rounds, self.bands - 1
        squared = np.empty(n)
        inverse = np.zeros((0, n))  # The last b - 1 rows of C^-1.
        prefix = np.zeros(n)
        for low in range(0, n, _ROWS_AT_ONCE):
            high = min(low + _ROWS_AT_ONCE, n)
            strip = _strip(self.diagonals, low, high)
            known = strip.shape[1] - (high - low)
            right = np.eye(high - low, n, k=low)
            right[:, :low] -= strip[:, :known] @ inverse[:, :low]
            rows = linalg.solve_triangular(strip[:, known:], right, lower=True)
            sums = prefix + np.cumsum(rows, axis=0)
            squared[low:high] = (sums**2).sum(axis=1)
            prefix = sums[-1]
            inverse = np.concatenate([inverse, rows])[-reach:] if reach else inverse
        return squared


def _table(value: Any) -> np.ndarray:
    """The checked table of diagonals as a read-only array."""
    try:
        table = _validate.floats(value)
    except ValueError:
        _refuse('must be a table of numbers, [rounds, bands]')
    if table.ndim != 2 or not 1 <= table.shape[1] <= table.shape[0]:
        _refuse(f'has shape {table.shape}, must have [rounds, bands] with 1 <= bands <= rounds')
    if not (np.abs(table) <= _validate.MOST_ENTRY).all():
        _refuse(
            'has an entry that is not finite, or too large: each must be a finite number of at '
            f'most {_validate.MOST_ENTRY:g}'
        )
    corner = np.triu(table[: table.shape[1]], 1)
    if corner.any():
        t, j = np.argwhere(corner)[0]
        _refuse(f'has the entry {table[t, j]} at [{t}, {j}], must have 0 left of the matrix')
    if not table[:, 0].all():
        t = int(np.flatnonzero(table[:, 0] == 0)[0])
        _refuse(f'has 0 at [{t}, 0], each entry of [:, 0] must be other than 0')
    # Independent normal noise has no sign, so a row of C and its negative are the same.
    turned = table[:, 0] < 0
    table[turned] = 0.0 - table[turned]
    # Within these limits squares of entries neither overflow nor lose digits.
    if table[:, 0].min() < rounding.SMALLEST:
        _refuse(
            f'has the entry {table[:, 0].min()} in [:, 0], where each must be >= '
            f'{rounding.SMALLEST:g}'
        )
    if np.abs(table).max() > rounding.LARGEST:
        _refuse(f'has an entry of size {np.abs(table).max()}, each must be <= {rounding.LARGEST:g}')
    table.setflags(write=False)
    return table


def _refuse(allowed: str) -> NoReturn:
    raise errors.ArgumentError('diagonals', errors.NOT_SHOWN, allowed) from None


def column_sums(table: np.ndarray) -> np.ndarray:
    """Sums over the columns of the matrix that a table of diagonals [m, b] holds, float64 [m]."""
    sums = np.zeros(len(table))
    for j in range(min(table.shape)):
        sums[: sums.size - j] += table[j:, j]
    return sums


def _column_norms(table: np.ndarray) -> np.ndarray:
    return np.sqrt(column_sums(table**2))


def diagonals_of(matrix: np.ndarray, bands: int) -> np.ndarray:
    """The first diagonals of a lower-triangular matrix [n, n] as a table, float64 [n, bands]."""
    table = np.zeros((len(matrix), bands))
    for j in range(bands):
        table[j:, j] = np.diagonal(matrix, -j)
    return table


def _strip(diagonals: np.ndarray, low: int, high: int) -> np.ndarray:
    """Rows low .. high - 1 of C as a dense matrix, starting at the first column within the bands.

    Returns:
      float64 [high - low, high - max(low - b + 1, 0)].
    """
    reach = diagonals.shape[1] - 1
    height, width = high - low, high - low + reach
    dense = np.zeros((height, width))
    # Entry (t, t - j) is j places left of the diagonal, which advances by width + 1 per row.
    step = dense.itemsize
    band = np.lib.stride_tricks.as_strided(
        dense[:, reach:], shape=(height, reach + 1), strides=((width + 1) * step, -step)
    )
    band[...] = diagonals[low:high]
    return dense[:, max(reach - low, 0) :]
