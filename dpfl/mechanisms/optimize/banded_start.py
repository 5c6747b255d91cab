"""Starting points for the optimiser of banded mechanisms."""

import numpy as np
from scipy import ndimage

from dpfl.mechanisms import toeplitz


def refined(rows: np.ndarray, n: int, bands: int) -> np.ndarray:
    """Diagonals of a strategy, interpolated from one for half as many rounds and bands.

    Strategies of different size are close to one function of (round / n, lag / b), once each
    diagonal is divided by the coefficient of (1 - x)^(-1/2), the optimal Toeplitz factor without
    bands.

    Args:
      rows: diagonals C[t, t - j] of the smaller strategy, [about n / 2, about bands / 2], whose
        columns are scaled so that its diagonal is one.
      n: number of rounds.
      bands: number of bands.

    Returns:
      float64 [n, bands], zero left of the matrix.
    """
    coarse_n, coarse_bands = rows.shape
    shape = rows / toeplitz.square_root_coefficients(coarse_bands)
    for j in range(1, coarse_bands):  # Continue each diagonal to the left of the matrix.
        shape[:j, j] = shape[j, j]
    rounds = (np.arange(n) + 0.5) * coarse_n / n - 0.5
    grid = np.meshgrid(rounds, np.arange(bands) / 2, indexing='ij')
    values = ndimage.map_coordinates(shape, grid, order=1, mode='nearest')
    values[np.arange(bands) > np.arange(n)[:, None]] = 0.0
    return values * toeplitz.square_root_coefficients(bands)
