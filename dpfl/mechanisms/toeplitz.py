"""Lower-triangular Toeplitz matrices and the error of such strategies."""

import math

import numpy as np
from scipy import fft, signal

# Coefficients of a denominator from which on Fourier transforms are faster than the recursion.
_MANY_COEFFICIENTS = 1024
# Coefficients of an inverse series with which Newton's method starts.
_NEWTON_START = 64


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


def divided(series: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
    """First n coefficients of the quotient of two power series, float64 [n].

    By a denominator of many coefficients it is divided in blocks, by fast Fourier transforms. The
    rounding errors are then 1e-13 of the largest coefficient at most, as seen for square roots.

    Args:
      series: numerator, float64 [n].
      coefficients: denominator, float64 [any number], the first one not zero.
    """
    if coefficients.size < _MANY_COEFFICIENTS:
        return signal.lfilter([1.0], coefficients, series)
    block = 1 << (coefficients.size - 1).bit_length()
    size = 2 * block
    denominator = fft.rfft(coefficients, size)
    inverse = fft.rfft(_inverse(coefficients, block), size)
    quotient = np.zeros(-(-series.size // block) * block)
    rest = np.pad(series, (0, quotient.size - series.size))
    for first in range(0, quotient.size, block):
        part = fft.irfft(fft.rfft(rest[first : first + block], size) * inverse, size)[:block]
        quotient[first : first + block] = part
        if first + block < quotient.size:
            product = fft.irfft(fft.rfft(part, size) * denominator, size)
            rest[first + block : first + size] -= product[block:]
    return quotient[: series.size]


def reciprocal(coefficients: np.ndarray, terms: int) -> np.ndarray:
    """First coefficients of the inverse of a power series, one after the other, float64 [terms]."""
    impulse = np.zeros(terms)
    impulse[0] = 1.0
    return signal.lfilter([1.0], coefficients, impulse)


def _inverse(coefficients: np.ndarray, terms: int) -> np.ndarray:
    """First coefficients of the inverse of a power series, by Newton's method, float64 [terms]."""
    start = min(_NEWTON_START, terms)
    inverse = reciprocal(coefficients[:start], start)
    while inverse.size < terms:
        size = 2 * inverse.size
        spectrum = fft.rfft(inverse, 2 * size)
        product = fft.irfft(spectrum * fft.rfft(coefficients[:size], 2 * size), 2 * size)[:size]
        product[0] -= 2.0
        inverse = -fft.irfft(spectrum * fft.rfft(product, 2 * size), 2 * size)[:size]
    return inverse[:terms]


def column_error(coefficients: np.ndarray, errors: np.ndarray) -> float:
    """Largest relative error of a column, which has any number of the first coefficients.

    Args:
      coefficients: as computed, float64 [n].
      errors: bounds of their absolute errors, float64 [n].
    """
    with np.errstate(over='ignore', invalid='ignore'):
        largest = (np.cumsum(errors**2) / np.cumsum(coefficients**2)).max()
    return math.sqrt(largest) if largest < math.inf else math.inf


def workload_squared_error(prefix_coefficients: np.ndarray, workload: np.ndarray) -> np.ndarray:
    """Squared row norms [n] of `A C^-1` for a Toeplitz workload.

    Args:
      prefix_coefficients: first column of `B` of the prefix sums, [n].
      workload: first column of A, [n].
    """
    # A is the matrix of its differences times the prefix sums. Fewer digits cancel this way than
    # with C^-1 itself.
    differences = np.diff(workload, prepend=0.0)
    convolve = np.convolve if workload.size <= 512 else signal.fftconvolve
    return np.cumsum(convolve(differences, prefix_coefficients)[: workload.size] ** 2)
