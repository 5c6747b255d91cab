"""Errors of banded strategies as a function of `X = C^T C`, with derivatives.

In this file a symmetric banded matrix is a table, float64 [n, bands]: entry (t, j) is X[t, t - j],
and entries left of the matrix are zero.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import fft, linalg
from scipy.linalg import lapack

# A Newton step needs only two digits, so conjugate gradients work in single precision, which is
# twice as fast. Values and gradients determine the optimum and are in double precision.
_INNER_TYPE = np.float32
# Rows of a banded matrix that are multiplied at once.
_ROWS_AT_ONCE = 256


class Point(NamedTuple):
    """Value and derivatives at X.

    Matrices of the inner type (float32) are only used by `Objective.curvature` and its
    preconditioner.

    Attributes:
      gram: bands of X, float64 [n, bands].
      value: value of the objective.
      gradient: gradient with respect to the bands, float64 [n, bands].
      errors: e, float64 [n].
      shares: derivative of the value with respect to e, float64 [n].
      diagonal: diagonal of G, float64 [n].
      factor: L with X = L L^T, float64 [n, n].
      inverse: Z = X^-1, inner type [n, n].
      decoder: S = A Z, inner type [n, n].
      weight: G = S^T diag(shares) S, inner type [n, n].
    """

    gram: np.ndarray
    value: float
    gradient: np.ndarray
    errors: np.ndarray
    shares: np.ndarray
    diagonal: np.ndarray
    factor: np.ndarray
    inverse: np.ndarray
    decoder: np.ndarray
    weight: np.ndarray


class Objective:
    """A mean of the squared errors e of all rounds, over banded X.

    The value is `n (mean_t of emphasis_t e_t^p)^(1/p)` with `e = diag(A X^-1 A^T)`. It is convex
    in X. The diagonal of X has one value for each block of rounds, and the sum of these values is
    fixed. With one block the diagonal is fixed.

    Args:
      blocks: index of the block of each round, int64 [n], non-decreasing from 0 on.
      bands: number of bands of X.
      workload: A, float64 [n, n]; None for the prefix sums.
      exponent: p, at least 1.
    """

    def __init__(
        self, blocks: np.ndarray, bands: int, workload: np.ndarray | None, exponent: float
    ):
        self._n, self._reach = blocks.size, bands - 1
        self._blocks, self._sizes = blocks, np.bincount(blocks)
        self._workload = workload
        self._exponent = exponent
        self.emphasis = np.ones(self._n)
        self._exact = _Frame(self._n, bands, np.float64)
        size = fft.next_fast_len(self._n)
        self._banded = _Frame(size, bands, _INNER_TYPE)
        self._full = _Frame(size, bands, _INNER_TYPE)

    def gram(self, rows: np.ndarray, levels: np.ndarray) -> np.ndarray:
        """X for a C given by its diagonals C[t, t - j], rescaled to the given column norms.

        Args:
          rows: diagonals of C, [n, bands]; entries left of the matrix are not used.
          levels: squared norm of the columns of each block, up to a factor.
        """
        inside = np.arange(self._reach + 1) <= np.arange(self._n)[:, None]
        self._exact.matrix[...] = 0
        self._exact.lower[...] = np.where(inside, rows, 0.0)
        matrix = self._exact.matrix.copy()
        norms = np.sqrt(levels / levels.mean())[self._blocks]
        matrix *= norms / np.linalg.norm(matrix, axis=0)
        self._exact.matrix[...] = matrix.T @ matrix
        return self._exact.lower.copy()

    def evaluate(self, gram: np.ndarray) -> Point | None:
        """Value and gradient at X; None where X is not positive definite."""
        self._exact.matrix[...] = 0
        self._exact.lower[...] = gram
        factor, info = lapack.dpotrf(self._exact.matrix, lower=True)
        if info:
            return None
        inverse, _ = lapack.dpotri(factor, lower=True)
        inverse = np.tril(inverse)
        inverse += np.tril(inverse, -1).T
        decoder = np.cumsum(inverse, axis=0) if self._workload is None else self._workload @ inverse
        if self._workload is None:
            errors = np.tril(decoder).sum(axis=1)
        else:
            errors = np.einsum('tj,tj->t', decoder, self._workload)
        mean = self._mean(errors)
        shares = self.emphasis * (errors / mean) ** (self._exponent - 1)
        weight = decoder.T @ (shares[:, None] * decoder)
        self._exact.matrix[...] = weight
        return Point(
            gram=gram,
            value=self._n * mean,
            gradient=self._tangent(-self._exact.lower),
            errors=errors,
            shares=shares,
            diagonal=np.diag(weight).copy(),
            factor=factor,
            inverse=inverse.astype(_INNER_TYPE),
            decoder=decoder.astype(_INNER_TYPE),
            weight=weight.astype(_INNER_TYPE),
        )

    def is_definite(self, gram: np.ndarray) -> bool:
        """Whether X is positive definite."""
        try:
            linalg.cholesky_banded(gram[::-1].T, lower=True)
        except linalg.LinAlgError:
            return False
        return True

    def _mean(self, errors: np.ndarray) -> float:
        # Relative to the largest error, so that powers do not overflow.
        largest = errors.max()
        powers = self.emphasis * (errors / largest) ** self._exponent
        return float(largest * powers.mean() ** (1 / self._exponent))

    def curvature(self, point: Point, step: np.ndarray) -> np.ndarray:
        """Product of the Hessian and a step V: the bands of Z V G + G V Z - S^T diag(d) S.

        d is the change of the shares with V. It is zero for p = 1.
        """
        v = self._load(step)
        terms = [(point.inverse, _banded_product(v, point.weight, self._reach))]
        if self._exponent > 1:
            change = self._change_of_shares(point, v)
            # This symmetric term is counted twice by the sum of both triangles below.
            scaled = (-0.5 * change).astype(_INNER_TYPE)[:, None] * point.decoder
            terms.append((point.decoder.T, scaled))
        self._fill_bands(terms)
        table = self._full.lower[: self._n].astype(np.float64)
        table += self._full.upper[: self._n]
        return self._tangent(table)

    def _change_of_shares(self, point: Point, v: np.ndarray) -> np.ndarray:
        product = _banded_product(v, point.decoder.T, self._reach)
        change = -np.einsum('tj,jt->t', point.decoder, product, dtype=np.float64)
        own = point.shares / point.errors * change
        common = point.shares * (point.shares @ change) / point.value
        return (self._exponent - 1) * (own - common)

    def _fill_bands(self, terms) -> None:
        """Writes the sum of left @ right over all terms into `_full`, near the diagonal."""
        result = self._full.matrix[: self._n, : self._n]
        for low in range(0, self._n, _ROWS_AT_ONCE):
            columns = slice(low, low + _ROWS_AT_ONCE)
            near = slice(max(low - self._reach, 0), low + _ROWS_AT_ONCE + self._reach)
            result[near, columns] = sum(left[near] @ right[:, columns] for left, right in terms)

    def preconditioner(self, point: Point) -> Callable[[np.ndarray], np.ndarray]:
        """Approximate inverse of the Hessian on the bands, as a function from table to table."""
        if self._workload is None:
            return self._by_sines(point)
        return self._by_eigenvectors(point)

    def _by_eigenvectors(self, point: Point) -> Callable[[np.ndarray], np.ndarray]:
        """Exact inverse of V -> Z V G + G V Z for dense V, by an eigendecomposition.

        With X = L L^T, eigenvectors Q and eigenvalues g of L^T G L, and E = L Q, the products
        E^T Z E and E^T G E are the identity and diag(g): in the basis E the map multiplies entry
        (k, l) by g_k + g_l.
        """
        n = self._n
        eigenvalues, vectors = linalg.eigh(point.factor.T @ point.weight @ point.factor)
        eigenvalues = np.maximum(eigenvalues, 1e-12 * eigenvalues[-1])
        basis = (point.factor @ vectors).astype(_INNER_TYPE)
        rates = np.add.outer(eigenvalues, eigenvalues).astype(_INNER_TYPE)

        def apply(residual: np.ndarray) -> np.ndarray:
            inside = basis.T @ self._load(residual) @ basis / rates
            self._full.matrix[:n, :n] = basis @ inside @ basis.T
            table = self._full.lower[:n] + self._full.upper[:n]
            return self._tangent(0.5 * table.astype(np.float64))

        return apply

    def _by_sines(self, point: Point) -> Callable[[np.ndarray], np.ndarray]:
        """Approximate inverse for prefix sums, where the diagonal D of G varies slowly.

        It takes D for G, and X as diagonal in the sine basis with eigenvalues x_k. The Hessian (for
        p = 1) then multiplies entry (k, l) of D^(1/2) V D^(1/2) in that basis by
        1 / x_k + 1 / x_l.
        """
        n = self._n
        self._load(point.gram)
        eigenvalues = np.diag(_sines(self._banded.matrix))
        # After padding to a fast length, X may be nearly zero on some sines.
        rates = 1 / np.maximum(eigenvalues, 1e-6 * eigenvalues.max())
        rates = rates[:, None] + rates
        scale = 1 / np.sqrt(np.maximum(point.diagonal, 1e-12 * point.diagonal.max()))
        scales = _outer_bands(scale, self._reach + 1)

        def apply(residual: np.ndarray) -> np.ndarray:
            self._load(residual * scales)
            self._full.matrix[...] = _sines(_sines(self._banded.matrix) / rates, inverse=True)
            return self._tangent(self._full.lower[:n] * scales)

        return apply

    def _load(self, table: np.ndarray) -> np.ndarray:
        """The symmetric matrix with these bands: a view that is valid until the next call."""
        n = self._n
        self._banded.lower[:n] = table
        self._banded.upper[:n] = table
        return self._banded.matrix[:n, :n]

    def _tangent(self, table: np.ndarray) -> np.ndarray:
        """Projects a step in place, so that it keeps the constraints on the diagonal of X."""
        if self._sizes.size == 1:
            table[:, 0] = 0
            return table
        levels = np.bincount(self._blocks, table[:, 0]) / self._sizes
        # The step nearest in the norm of `inner` whose levels add up to zero.
        levels -= levels.sum() / (1 / self._sizes).sum() / self._sizes
        table[:, 0] = levels[self._blocks]
        return table


class _Frame:
    """A square matrix whose bands can be read and written as tables [size, bands].

    Entry (t, j) of `lower` is entry (t, t - j) of the matrix, and entry (t, j) of `upper` is entry
    (t - j, t). Entries left of or above the matrix lie in a margin, which stays zero.
    """

    def __init__(self, size: int, bands: int, dtype: type):
        width = size + bands - 1
        self.matrix: np.ndarray = np.zeros((width, width), dtype)[bands - 1 :, bands - 1 :]
        step = self.matrix.itemsize

        def table(lag_stride):
            return np.lib.stride_tricks.as_strided(
                self.matrix, (size, bands), ((width + 1) * step, -lag_stride * step)
            )

        self.lower, self.upper = table(1), table(width)


def inner(a: np.ndarray, b: np.ndarray) -> float:
    """Inner product of two symmetric matrices given by their lower bands."""
    return float(2 * np.vdot(a, b) - a[:, 0] @ b[:, 0])


def _banded_product(v: np.ndarray, dense: np.ndarray, reach: int) -> np.ndarray:
    """Product of a banded and a dense matrix, both [n, n]."""
    product = np.empty_like(dense, order='C')
    for low in range(0, len(v), _ROWS_AT_ONCE):
        rows = slice(low, low + _ROWS_AT_ONCE)
        near = slice(max(low - reach, 0), low + _ROWS_AT_ONCE + reach)
        np.matmul(v[rows, near], dense[near], out=product[rows])
    return product


def _sines(matrix: np.ndarray, inverse: bool = False) -> np.ndarray:
    transform = fft.idstn if inverse else fft.dstn
    return transform(matrix, type=2, norm='ortho', workers=-1)


def _outer_bands(vector: np.ndarray, bands: int) -> np.ndarray:
    """Bands of the outer product of a vector with itself."""
    table = np.zeros((vector.size, bands))
    for j in range(bands):
        table[j:, j] = vector[j:] * vector[: vector.size - j]
    return table
