"""Lower-triangular Toeplitz matrices and the error of such strategies."""

import numpy as np
from scipy import signal

from dpfl import errors


def matrix(coefficients: np.ndarray) -> np.ndarray:
    """Lower-triangular Toeplitz matrix, [n, n], with `coefficients` [n] as its first column."""
    n = coefficients.size
    lag = np.subtract.outer(np.arange(n), np.arange(n))
    return np.where(lag >= 0, coefficients[np.maximum(lag, 0)], 0.0)


def square_root_coefficients(terms: int) -> np.ndarray:
    """First `terms` coefficients of (1 - x)^(-1/2): the square root of the prefix-sum matrix.

    They are `binomial(2i, i) / 4^i`. This is the optimal C for one participation and the max loss
    ([Fichtenberger23]; [McMahan24], section 4.2).
    """
    i = np.arange(1, terms)
    return np.cumprod(np.concatenate([[1.0], 1 - 0.5 / i]))


def squared_error(inverse_coefficients: np.ndarray) -> np.ndarray:
    """Squared row norms [n] of `B = A C^-1` from the first column [n] of `C^-1`.

    B is Toeplitz, with the cumulative sums as coefficients ([McMahan24], proposition 3.3).
    """
    return np.cumsum(np.cumsum(inverse_coefficients) ** 2)


def workload_squared_error(
    prefix_coefficients: np.ndarray, workload: np.ndarray | None
) -> np.ndarray:
    """Squared row norms [n] of `A C^-1` for the prefix sums or another Toeplitz workload.

    Args:
      prefix_coefficients: first column of `B` of the prefix sums, [n].
      workload: first column of A, [at least n], or None for the prefix sums.

    Raises:
      ArgumentError: if the workload has fewer than n rounds.
    """
    rounds = prefix_coefficients.size
    if workload is None:
        return np.cumsum(prefix_coefficients**2)
    workload = np.asarray(workload, dtype=np.float64)
    if workload.size < rounds:
        raise errors.ArgumentError(
            'workload',
            errors.NOT_SHOWN,
            f'has shape {workload.shape}, must have at least {rounds} rounds',
        )
    # A is the matrix of its differences times the prefix sums. Fewer digits cancel this way than
    # with C^-1 itself.
    differences = np.diff(workload[:rounds], prepend=0.0)
    convolve = np.convolve if rounds <= 512 else signal.fftconvolve
    return np.cumsum(convolve(differences, prefix_coefficients)[:rounds] ** 2)
