"""Squared errors of banded strategies, with their gradient in the entries of C.

In this file a lower-triangular banded matrix is a table, float64 [n, bands]: entry (t, j) is
C[t, t - j], and entries left of the matrix are zero.
"""

from collections.abc import Callable

import numpy as np
import scipy

from dpfl.mechanisms import banded

# Rounds per block for few bands: enough for matrix products to dominate.
_LEAST_BLOCK = 24
# Most bands of the inverse of a workload, and how exactly they must invert it.
_MOST_WORKLOAD_BANDS = 16
_INVERSE_TOLERANCE = 1e-9
# Squared errors above this only occur far from any optimum.
_OVERFLOW = 1e30

# From the errors e, [n], to a value and its derivatives with respect to e, [n].
Weigh = Callable[[np.ndarray], tuple[float, np.ndarray]]


def workload_inverse(workload: np.ndarray | None, rounds: int) -> np.ndarray | None:
    """The inverse of a workload as a table [rounds, few bands]; None if it has many bands.

    The inverse has 2 bands for the prefix sums, and 3 for momentum with any learning rates.
    """
    if workload is None:
        table = np.tile([1.0, -1.0], (rounds, 1))[:, :rounds]
        table[0, 1:] = 0.0
        return table
    inverse = scipy.linalg.solve_triangular(workload, np.eye(rounds), lower=True)
    for bands in range(1, min(_MOST_WORKLOAD_BANDS, rounds) + 1):
        few = np.triu(inverse, 1 - bands)
        if np.abs(workload @ few - np.eye(rounds)).max() < _INVERSE_TOLERANCE:
            return banded.diagonals_of(few, bands)
    return None


class BlockError:
    """e = squared row norms of B = A C^-1 for a workload whose inverse has few bands.

    M = C A^-1 is then banded too, and B = M^-1. If the number of rounds in a block is at least the
    number of bands of M below its diagonal, M has blocks L_k^-1 on its diagonal and N_k left of
    them, and the products of the rows of B within a block are

        P_k = L_k (I + N_k P_{k-1} N_k^T) L_k^T.

    So e, the diagonals of all P_k, takes O(n b^2), and so does the gradient, by the same recursion
    backwards.

    Args:
      bands: number of bands of C.
      inverse: table of A^-1, float64 [n, r].
    """

    def __init__(self, bands: int, inverse: np.ndarray):
        self._n, self._bands = inverse.shape[0], bands
        self._width = bands + inverse.shape[1] - 1
        self._size = max(self._width - 1, _LEAST_BLOCK)
        self._count = -(-self._n // self._size)
        # Entry (q, t, i) is A^-1[t - i, t - i - q].
        self._inverse = np.zeros((inverse.shape[1], self._n, bands))
        for i in range(min(bands, self._n)):
            self._inverse[:, i:, i] = inverse[: self._n - i].T

    def __call__(self, strategy: np.ndarray, weigh: Weigh) -> tuple[float, np.ndarray] | None:
        """Value of `weigh(e)` and its gradient in the table of C; None if e overflows."""
        n, size = self._n, self._size
        table = np.zeros((self._count * size, self._width))
        table[n:, 0] = 1.0  # Rounds after the last one stand alone.
        for q, inverse in enumerate(self._inverse):
            table[:n, q : q + self._bands] += strategy * inverse
        matrix = np.zeros((self._count, size, 2 * size))
        self._bands_of(matrix)[...] = table.reshape(self._count, size, self._width)
        solver = np.array(
            [scipy.linalg.lapack.dtrtri(block, lower=True)[0] for block in matrix[:, :, size:]]
        )
        step = solver @ matrix[:, :, :size]
        products = solver @ solver.transpose(0, 2, 1)
        with np.errstate(over='ignore', invalid='ignore'):
            for k in range(1, self._count):
                products[k] += step[k] @ products[k - 1] @ step[k].T
        errors = np.einsum('kii->ki', products).ravel()[:n]
        if not np.abs(errors).max() < _OVERFLOW:
            return None
        value, shares = weigh(errors)
        return value, self._gradient(solver, step, products, shares)

    def _gradient(self, solver, step, products, shares):
        size = self._size
        weights = np.zeros((self._count, size))
        weights.flat[: self._n] = shares
        # Derivative with respect to P_k, through all later blocks.
        adjoint = np.zeros_like(products)
        np.einsum('kii->ki', adjoint)[...] = weights
        for k in range(self._count - 1, 0, -1):
            adjoint[k - 1] += step[k].T @ adjoint[k] @ step[k]
        back = -2 * solver.transpose(0, 2, 1) @ adjoint
        matrix = np.zeros((self._count, size, 2 * size))
        matrix[:, :, size:] = back @ products
        matrix[1:, :, :size] = -(back[1:] @ step[1:]) @ products[:-1]
        table = self._bands_of(matrix).reshape(-1, self._width)[: self._n]
        gradient = np.zeros((self._n, self._bands))
        for q, inverse in enumerate(self._inverse):
            gradient += table[:, q : q + self._bands] * inverse
        return gradient

    def _bands_of(self, matrix: np.ndarray) -> np.ndarray:
        """View of the bands of rows [.., size, 2 size] of M whose diagonal starts in the middle."""
        block, row, column = matrix.strides
        return np.lib.stride_tricks.as_strided(
            matrix[:, :, self._size :],
            (self._count, self._size, self._width),
            (block, row + column, -column),
        )


class DenseError:
    """The same for any workload, in O(n^3)."""

    def __init__(self, bands: int, workload: np.ndarray):
        self._workload = workload
        n = len(workload)
        rows, lags = np.divmod(np.arange(n * bands), bands)
        inside = lags <= rows
        self._table = rows[inside], lags[inside]
        self._matrix = rows[inside], (rows - lags)[inside]
        self._shape = n, bands

    def __call__(self, strategy: np.ndarray, weigh: Weigh) -> tuple[float, np.ndarray] | None:
        """As `BlockError.__call__`."""
        matrix = np.zeros(self._workload.shape)
        matrix[self._matrix] = strategy[self._table]
        decoder = scipy.linalg.solve_triangular(matrix, self._workload.T, lower=True, trans='T').T
        with np.errstate(over='ignore'):
            errors = (decoder**2).sum(axis=1)
        if not errors.max() < _OVERFLOW:
            return None
        value, shares = weigh(errors)
        # B = A C^-1 changes by -B dC C^-1.
        weighted = decoder.T @ (shares[:, None] * decoder)
        change = -2 * scipy.linalg.solve_triangular(matrix, weighted, lower=True).T
        gradient = np.zeros(self._shape)
        gradient[self._table] = change[self._matrix]
        return value, gradient
