"""Sensitivity and error of lower-triangular Toeplitz strategy matrices."""

import numpy as np
from scipy import signal

from dpfl.mechanisms import base
from dpfl.participation import Participation


def matrix(coefficients: np.ndarray) -> np.ndarray:
    """Lower-triangular Toeplitz matrix, [n, n], with `coefficients` [n] as its first column."""
    n = coefficients.size
    lag = np.subtract.outer(np.arange(n), np.arange(n))
    return np.where(lag >= 0, coefficients[np.maximum(lag, 0)], 0.0)


def square_root_coefficients(terms: int) -> np.ndarray:
    """First `terms` coefficients of (1 - x)^(-1/2): the square root of the prefix-sum matrix.

    They are `binomial(2i, i) / 4^i`, the optimal C for one participation and the max loss
    (Fichtenberger, Henzinger and Upadhyay; document 002, section 4.2).
    """
    i = np.arange(1, terms)
    return np.cumprod(np.concatenate([[1.0], 1 - 0.5 / i]))


def is_monotone(coefficients: np.ndarray) -> bool:
    """Whether the coefficients are non-negative and non-increasing."""
    return bool(coefficients[-1] >= 0 and (np.diff(coefficients) <= 0).all())


def sensitivity(
    coefficients: np.ndarray, participation: Participation, *, known_monotone: bool = False
) -> base.Sensitivity:
    """Sensitivity of the Toeplitz matrix over the rounds of the schema.

    For non-negative non-increasing coefficients the worst pattern is 0, b, 2b, ... (document 002,
    theorem 3.1), and the value is exact. Otherwise they are replaced by the smallest such sequence
    that is nowhere below their absolute values: a matrix that is larger in every entry than |C|
    has a sensitivity that is at least as large, so the theorem then gives an upper bound.

    Args:
      coefficients: first column of C, [at least participation.rounds].
      known_monotone: that they are non-negative and non-increasing follows from how they were
        made, whatever rounding has done to them.
    """
    coefficients = coefficients[: participation.rounds]
    exact = known_monotone or is_monotone(coefficients)
    if not exact:
        coefficients = np.maximum.accumulate(np.abs(coefficients)[::-1])[::-1]
    released = sum_of_shifts(coefficients, participation.min_separation, participation.count)
    return base.Sensitivity(float(released @ released), is_exact=exact)


def sum_of_shifts(coefficients: np.ndarray, shift: int, count: int) -> np.ndarray:
    """C applied to equal updates in the rounds 0, shift, .., (count - 1) shift; O(n log count)."""
    if count == 1:
        return coefficients.copy()
    half = sum_of_shifts(coefficients, shift, count // 2)
    total = _added(half, half, shift * (count // 2))
    return total if count % 2 == 0 else _added(coefficients, total, shift)


def _added(first, second, shift):
    """`first` plus `second` moved later by `shift` places."""
    total = first.copy()
    total[shift:] += second[: max(first.size - shift, 0)]
    return total


def squared_error(inverse_coefficients: np.ndarray) -> np.ndarray:
    """Squared row norms [n] of `B = A C^-1` from the first column [n] of `C^-1`.

    B is Toeplitz with the cumulative sums as coefficients (document 002, proposition 3.3).
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
      ValueError: if the workload has fewer than n rounds.
    """
    rounds = prefix_coefficients.size
    if workload is None:
        return np.cumsum(prefix_coefficients**2)
    workload = np.asarray(workload, dtype=np.float64)
    if workload.size < rounds:
        raise ValueError(f'workload has shape {workload.shape}: must have at least {rounds} rounds')
    # A is its differences times the prefix sums: fewer digits cancel than with C^-1 itself.
    differences = np.diff(workload[:rounds], prepend=0.0)
    convolve = np.convolve if rounds <= 512 else signal.fftconvolve
    return np.cumsum(convolve(differences, prefix_coefficients)[:rounds] ** 2)
