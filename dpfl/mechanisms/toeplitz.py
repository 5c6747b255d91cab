"""Sensitivity and error of lower-triangular Toeplitz strategy matrices."""

import numpy as np

from dpfl.mechanisms import base
from dpfl.participation import Participation


def matrix(coefficients: np.ndarray) -> np.ndarray:
    """Lower-triangular Toeplitz matrix, [n, n], with `coefficients` [n] as its first column."""
    n = coefficients.size
    lag = np.subtract.outer(np.arange(n), np.arange(n))
    return np.where(lag >= 0, coefficients[np.maximum(lag, 0)], 0.0)


def is_monotone(coefficients: np.ndarray) -> bool:
    """Whether the coefficients are non-negative and non-increasing."""
    return bool(coefficients[-1] >= 0 and (np.diff(coefficients) <= 0).all())


def sensitivity(coefficients: np.ndarray, participation: Participation) -> base.Sensitivity:
    """Sensitivity of the Toeplitz matrix over the rounds of the schema.

    For non-negative non-increasing coefficients the worst pattern is 0, b, 2b, ... (document 002,
    theorem 3.1), and the value is exact. Otherwise they are replaced by the smallest such sequence
    that is nowhere below their absolute values: a matrix that is larger in every entry than |C|
    has a sensitivity that is at least as large, so the theorem then gives an upper bound.

    Args:
      coefficients: first column of C, [at least participation.rounds].
    """
    coefficients = coefficients[: participation.rounds]
    exact = is_monotone(coefficients)
    if not exact:
        coefficients = np.maximum.accumulate(np.abs(coefficients)[::-1])[::-1]
    released = np.zeros(participation.rounds)
    for i in range(participation.count):
        start = i * participation.min_separation
        released[start:] += coefficients[: participation.rounds - start]
    return base.Sensitivity(float(released @ released), is_exact=exact)


def squared_error(inverse_coefficients: np.ndarray) -> np.ndarray:
    """Squared row norms [n] of `B = A C^-1` from the first column [n] of `C^-1`.

    B is Toeplitz with the cumulative sums as coefficients (document 002, proposition 3.3).
    """
    return np.cumsum(np.cumsum(inverse_coefficients) ** 2)
