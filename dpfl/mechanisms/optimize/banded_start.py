"""Starting points for the optimiser of banded mechanisms."""

import numpy as np
from scipy import linalg, ndimage

_TAPER_ITERATIONS = 5


def root_coefficients(count: int) -> np.ndarray:
    """First coefficients of (1 - x)^(-1/2)."""
    lags = np.arange(1, count)
    return np.concatenate([[1.0], np.cumprod((2 * lags - 1) / (2 * lags))])


def refined(rows: np.ndarray, n: int, bands: int) -> np.ndarray:
    """Diagonals of a strategy, interpolated from one for half as many rounds and bands.

    Args:
      rows: diagonals C[t, t - j] of the smaller strategy, [about n / 2, about bands / 2].
      n: number of rounds.
      bands: number of bands.

    Returns:
      float64 [n, bands].
    """
    coarse_n, coarse_bands = rows.shape
    shape = rows / root_coefficients(coarse_bands)
    for j in range(1, coarse_bands):  # Continue each diagonal to the left of the matrix.
        shape[:j, j] = shape[j, j]
    rounds = (np.arange(n) + 0.5) * coarse_n / n - 0.5
    grid = np.meshgrid(rounds, np.arange(bands) / 2, indexing='ij')
    values = ndimage.map_coordinates(shape, grid, order=1, mode='nearest')
    return values * root_coefficients(bands)


def tapered(workload: np.ndarray, bands: int) -> np.ndarray:
    """Bands of X for any workload [n, n]: the optimum without bands, tapered.

    Without bands the optimum is X = D^(-1/2) (D^(1/2) A^T A D^(1/2))^(1/2) D^(-1/2), where the
    diagonal matrix D is a fixed point that makes the diagonal of X one. The entrywise product with
    the taper 1 - lag / b, a positive definite matrix, keeps X positive definite.

    Returns:
      float64 [n, bands].
    """
    moments = workload.T @ workload
    scale = np.diag(moments) ** 0.25  # The diagonal of D^(1/2).
    for _ in range(_TAPER_ITERATIONS):
        eigenvalues, vectors = linalg.eigh(scale[:, None] * moments * scale)
        root = (vectors * np.sqrt(np.maximum(eigenvalues, 0))) @ vectors.T
        scale = np.sqrt(np.diag(root))
    gram = root / np.outer(scale, scale)
    table = np.zeros((len(workload), bands))
    for j in range(bands):
        table[j:, j] = np.diagonal(gram, -j) * (1 - j / bands)
    return table
