"""Banded mechanisms: few diagonals of `C`, or of its inverse, are not zero.

- `Banded` (BandMF): `C` has few bands, of any entries.
- `BandedToeplitz` (BandToep): `C` is Toeplitz with few bands.
- `BandedInverse` (BandInvMF): `C^-1` is Toeplitz with few bands.
"""

import collections
import dataclasses
import functools
import hashlib
from typing import ClassVar, NoReturn

import numpy as np
import scipy

from dpfl import _validate, errors
from dpfl.mechanisms import base, kernels, rounding, toeplitz
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
        try:
            table = _validate.floats(self.diagonals)
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
            _refuse(
                f'has an entry of size {np.abs(table).max()}, each must be <= {rounding.LARGEST:g}'
            )
        table.setflags(write=False)
        object.__setattr__(self, 'diagonals', table)

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
            rows = scipy.linalg.solve_triangular(strip[:, known:], right, lower=True)
            sums = prefix + np.cumsum(rows, axis=0)
            squared[low:high] = (sums**2).sum(axis=1)
            prefix = sums[-1]
            inverse = np.concatenate([inverse, rows])[-reach:] if reach else inverse
        return squared


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


@dataclasses.dataclass(frozen=True, eq=False)
class BandedToeplitz(base.Mechanism):
    """`C` is Toeplitz with b bands: C[i, j] = coefficients[i - j] for 0 <= i - j < b, else 0.

    This is BandToep ([McMahan24], section 4.2), made by `optimize_banded_toeplitz`. Its noise
    needs b - 1 buffers. The coefficients are valid for any number of rounds.

    Attributes:
      rounds: number of rounds, at least 1; bands beyond it are not used.
      coefficients: float64 [b], b >= 1, the first one positive. If it is given as negative, all
        signs are turned: -C is the same mechanism, because z and -z have the same distribution.

    Raises:
      ArgumentError: if a field is out of its range.

    Example:
      >>> mechanism = BandedToeplitz(rounds=6, coefficients=np.array([1.0, 0.5]))
      >>> round(mechanism.sensitivity(Participation(6, min_separation=3)), 4)
      1.5811
    """

    name: ClassVar[str] = 'banded_toeplitz'
    rounds: int
    coefficients: np.ndarray

    def __post_init__(self):
        super().__post_init__()
        coefficients = _validate.vector('coefficients', self.coefficients)
        if not coefficients.size or coefficients[0] == 0:
            raise errors.ArgumentError(
                'coefficients', coefficients.tolist(), 'must start with a number other than 0'
            )
        if coefficients[0] < 0:  # Independent normal noise has no sign: -C is the same mechanism.
            coefficients = _validate.vector('coefficients', 0.0 - coefficients)
        object.__setattr__(self, 'coefficients', coefficients)
        if coefficients[0] < rounding.SMALLEST or np.abs(coefficients).max() > rounding.LARGEST:
            raise errors.ArgumentError(
                'coefficients',
                coefficients.tolist(),
                f'the first must be >= {rounding.SMALLEST:g} and all <= {rounding.LARGEST:g} in '
                'size, so that their squares are floats',
            )

    @classmethod
    def fichtenberger(cls, rounds: int, bands: int | None = None) -> 'BandedToeplitz':
        """BandFHU: the first `bands` coefficients of (1 - x)^(-1/2), without an optimiser.

        All `rounds` coefficients together are the square root of the prefix-sum matrix, which is
        optimal for one participation and the max loss ([Fichtenberger23]). With fewer bands it
        suits several participations ([McMahan24], section 4.2).

        Args:
          rounds: number of rounds, at least 1.
          bands: b, at least 1; `rounds` if None.
        """
        _validate.integer('rounds', rounds, minimum=1, maximum=_validate.MOST_ROUNDS)
        if bands is None:
            bands = rounds
        _validate.integer('bands', bands, minimum=1, maximum=_validate.MOST_ROUNDS)
        return cls(rounds, toeplitz.square_root_coefficients(bands))

    @property
    def bands(self) -> int:
        """b, the main diagonal included."""
        return self.coefficients.size

    @property
    def strategy_bands(self) -> int:
        return self.bands

    def strategy_matrix(self) -> np.ndarray:
        return toeplitz.matrix(self.toeplitz_column(self.rounds))

    def kernel(self) -> kernels.BandedSolve:
        return kernels.BandedSolve(bands=self.coefficients[None])

    def _prefix_coefficients(self) -> np.ndarray:
        return toeplitz.divided(np.ones(self.rounds), self.coefficients)

    def toeplitz_column(self, rounds: int) -> np.ndarray:
        column = np.zeros(rounds)
        used = min(rounds, self.bands)
        column[:used] = self.coefficients[:used]
        return column

    def column_norms(self) -> np.ndarray:
        return np.sqrt(np.cumsum(self.toeplitz_column(self.rounds) ** 2)[::-1])

    def _sensitivity(self, participation: Participation) -> Sensitivity:
        """Exact if the bands do not exceed the separation, or the coefficients are monotone.

        In the first case the columns of a pattern do not overlap, whatever the signs, so the
        squared sensitivity is a sum of squared column norms. Column norms do not increase from
        left to right, because the last columns are cut off, so the pattern 0, b, 2b, .. has the
        largest sum. In other cases it is the proven bound of `toeplitz.sensitivity`.
        """
        separation = participation.min_separation
        column = self.toeplitz_column(participation.rounds)
        if self.bands > separation:
            return toeplitz.sensitivity(column, participation)
        squared_norms = np.cumsum(column**2)[::-1]
        squared = squared_norms[::separation][: participation.count].sum()
        return Sensitivity(float(squared), is_exact=True)


@dataclasses.dataclass(frozen=True, eq=False)
class BandedInverse(base.Mechanism):
    """`C^-1` is lower-triangular Toeplitz with p bands: its first column is (1, a_1, .., a_{p-1}).

    The noise of a round is a weighted sum of the last p independent noises. These can be drawn
    again from their keys, so no noise has to be kept. `C` is a full Toeplitz matrix whose
    coefficients are the power series 1 / (1 + a_1 x + .. + a_{p-1} x^{p-1}). The coefficients are
    valid for any number of rounds. The optimised form is called BandInvMF in arXiv 2505.12128.

    Attributes:
      rounds: number of rounds, at least 1.
      inverse_coefficients: (1, a_1, .., a_{p-1}), float64 [p]; p may exceed `rounds`. If they start
        with -1, all signs are turned: the noise has the same distribution.

    Raises:
      ArgumentError: if a field is out of its range, or the entries of `C` overflow.

    Example:
      >>> inverse = BandedInverse(rounds=4, inverse_coefficients=np.array([1.0, -0.5]))
      >>> inverse.strategy_matrix()[:, 0]
      array([1.   , 0.5  , 0.25 , 0.125])
    """

    name: ClassVar[str] = 'banded_inverse'
    rounds: int
    inverse_coefficients: np.ndarray

    def __post_init__(self):
        super().__post_init__()
        taps = _validate.vector('inverse_coefficients', self.inverse_coefficients)
        if not taps.size or abs(taps[0]) != 1:
            raise errors.ArgumentError(
                'inverse_coefficients',
                taps.tolist(),
                'must have at least 1 entry, the first 1 or -1',
            )
        if taps[0] < 0:  # Independent normal noise has no sign: -C is the same mechanism.
            taps = _validate.vector('inverse_coefficients', 0.0 - taps)
        object.__setattr__(self, 'inverse_coefficients', taps)
        with np.errstate(over='ignore', invalid='ignore'):
            # Bounds every norm of C u; its square must be a float.
            largest = np.abs(self.coefficients()).sum() * self.rounds
        if not largest < 1e150:
            raise errors.ArgumentError(
                'inverse_coefficients',
                taps.tolist(),
                f'the inverse grows to a sum of {largest:g} over rounds={self.rounds}, must stay '
                'below 1e150',
            )

    @classmethod
    def square_root(cls, rounds: int, bands: int) -> 'BandedInverse':
        """BISR, the banded inverse square root of the prefix sums (arXiv 2505.12128).

        Args:
          rounds: number of rounds, at least 1.
          bands: p, at least 1.
        """
        return cls.fractional_power(rounds, bands, 0.5)

    @classmethod
    def fractional_power(cls, rounds: int, bands: int, power: float) -> 'BandedInverse':
        """The mechanism whose `C^-1` has the first `bands` coefficients of (1 - x)^power.

        Power 1/2 is BISR. With two bands `C^-1` is 1 - power x, the single step of DP-lambda-CGD
        (arXiv 2601.22334). With few bands a power near 1 has far less loss than 1/2 (compare
        gamma-BIFR, arXiv 2605.18379).

        Args:
          rounds: number of rounds, at least 1.
          bands: p, at least 1.
          power: within [0, 1]; 0 gives independent noise.
        """
        _validate.integer('bands', bands, minimum=1, maximum=_validate.MOST_ROUNDS)
        _validate.number('power', power, minimum=0, maximum=1)
        orders = np.arange(1, bands)
        return cls(rounds, np.cumprod(np.concatenate([[1.0], (orders - 1 - power) / orders])))

    @property
    def bands(self) -> int:
        """Number of bands p of `C^-1`: the noise of a round is a sum of p independent ones."""
        return self.inverse_coefficients.size

    def coefficients(self) -> np.ndarray:
        """First column of `C`, float64 [rounds]."""
        return toeplitz.reciprocal(self.inverse_coefficients, self.rounds)

    def column_error(self, rounds: int) -> float:
        """Bound of the relative error of the computed columns of `C`; 0 if nothing cancels.

        Each coefficient c_i is a sum of p products `a_j c_{i-j}`. What its rounding adds goes
        through the recursion like the impulse. To first order the errors are therefore at most
        `|c| * r`, where `*` is convolution and r = (p + 1) UNIT |a| * |c| bounds the roundings.
        """
        if (self.inverse_coefficients[1:] <= 0).all():
            return 0.0
        taps, column = np.abs(self.inverse_coefficients), np.abs(self.toeplitz_column(rounds))
        convolve = np.convolve if rounds <= 512 else scipy.signal.fftconvolve
        with np.errstate(over='ignore', invalid='ignore'):
            roundings = convolve(taps, column)[:rounds] * ((taps.size + 1) * rounding.UNIT)
            errors = convolve(column, roundings)[:rounds]
        return toeplitz.column_error(column, errors)

    def toeplitz_column(self, rounds: int) -> np.ndarray:
        return self.with_rounds(rounds).coefficients()

    def strategy_matrix(self) -> np.ndarray:
        return toeplitz.matrix(self.coefficients())

    def kernel(self) -> kernels.BandedProduct:
        return kernels.BandedProduct(taps=self.inverse_coefficients[None])

    def _prefix_coefficients(self) -> np.ndarray:
        taps = np.zeros(self.rounds)
        used = min(self.rounds, self.bands)
        taps[:used] = self.inverse_coefficients[:used]
        return np.cumsum(taps)

    def _sensitivity(self, participation: Participation) -> Sensitivity:
        return toeplitz.sensitivity(self.coefficients(), participation)
