"""Lower-triangular Toeplitz matrices: the error and the sensitivity of such strategies."""

import functools
import math

import numpy as np
import scipy

from dpfl.mechanisms.sensitivities import matrix_sensitivity
from dpfl.mechanisms.sensitivities.matrix_sensitivity import Sensitivity
from dpfl.participation import Participation

# Coefficients of a denominator from which on Fourier transforms are faster than the recursion.
_MANY_COEFFICIENTS = 1024
# Coefficients of an inverse series with which Newton's method starts.
_NEWTON_START = 64
# Blocks of participations in the bound of `sensitivity`: each costs one FFT.
_MAX_BLOCKS = 128
# Largest n^2 k for which all pairs of columns are looked at: about a second.
_MOST_PAIRS = 1e8
# Relative difference between the bound and an admitted pattern, for each participation, that is
# attributed to the rounding of the FFTs.
_ROUNDING = 3e-14


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
        return scipy.signal.lfilter([1.0], coefficients, series)
    block = 1 << (coefficients.size - 1).bit_length()
    size = 2 * block
    denominator = scipy.fft.rfft(coefficients, size)
    inverse = scipy.fft.rfft(_inverse(coefficients, block), size)
    quotient = np.zeros(-(-series.size // block) * block)
    rest = np.pad(series, (0, quotient.size - series.size))
    for first in range(0, quotient.size, block):
        part = scipy.fft.irfft(scipy.fft.rfft(rest[first : first + block], size) * inverse, size)[
            :block
        ]
        quotient[first : first + block] = part
        if first + block < quotient.size:
            product = scipy.fft.irfft(scipy.fft.rfft(part, size) * denominator, size)
            rest[first + block : first + size] -= product[block:]
    return quotient[: series.size]


def reciprocal(coefficients: np.ndarray, terms: int) -> np.ndarray:
    """First coefficients of the inverse of a power series, one after the other, float64 [terms]."""
    impulse = np.zeros(terms)
    impulse[0] = 1.0
    return scipy.signal.lfilter([1.0], coefficients, impulse)


def _inverse(coefficients: np.ndarray, terms: int) -> np.ndarray:
    """First coefficients of the inverse of a power series, by Newton's method, float64 [terms]."""
    start = min(_NEWTON_START, terms)
    inverse = reciprocal(coefficients[:start], start)
    while inverse.size < terms:
        size = 2 * inverse.size
        spectrum = scipy.fft.rfft(inverse, 2 * size)
        product = scipy.fft.irfft(
            spectrum * scipy.fft.rfft(coefficients[:size], 2 * size), 2 * size
        )[:size]
        product[0] -= 2.0
        inverse = -scipy.fft.irfft(spectrum * scipy.fft.rfft(product, 2 * size), 2 * size)[:size]
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
    convolve = np.convolve if workload.size <= 512 else scipy.signal.fftconvolve
    return np.cumsum(convolve(differences, prefix_coefficients)[: workload.size] ** 2)


def is_monotone(coefficients: np.ndarray) -> bool:
    """Whether the coefficients are non-negative and non-increasing."""
    return bool(coefficients[-1] >= 0 and (np.diff(coefficients) <= 0).all())


def sensitivity(
    coefficients: np.ndarray, participation: Participation, *, known_monotone: bool = False
) -> Sensitivity:
    """Sensitivity of any lower-triangular Toeplitz matrix over the rounds of the schema.

    For non-negative, non-increasing coefficients the worst pattern is 0, b, 2b, ...
    ([McMahan24], theorem 3.1), and the value is exact. For others it is the smaller of two bounds,
    either of which may be exact too: `matrix_sensitivity.upper_bound`, if there are not too many
    rounds and participations, and the following bound.

    Let c be the absolute coefficients, n the rounds, b the separation, k the participations that
    a client can reach, and for columns i and i + d of the matrix

        h(i, d) = sum_{l < n - i - d} c_l c_{l+d},

    which is at least the absolute value of their inner product and does not increase with i. Take
    any admitted pattern p_0 < p_1 < .. and updates of norm at most 1. Since p_s >= s b and
    p_{s+m} - p_s >= m b, the squared norm of `C u` is at most

        sum_s h(p_s, 0) + 2 sum_{s, m >= 1} h(p_s, p_{s+m} - p_s)
          <=  sum_{s<k} h(s b, 0) + 2 sum_{s<k} sum_{m=1..k-1-s} max_{d >= m b} h(s b, d).

    That is the bound. The pattern 0, b, 2b, .. is admitted. It attains the bound, which is then
    exact, if each maximum is at d = m b and no coefficient is negative. Two such cases are
    non-negative, non-increasing coefficients ([McMahan24], theorem 3.1), because h then does not
    increase with d either, and coefficients with a ripple that does not show in their correlation
    at lags of b and more. Let c' be the smallest non-increasing sequence that is nowhere below c.
    Its h is nowhere smaller, so the bound is never above the theorem's value for c'.

    More than 128 participations are grouped in blocks, using s b of the first participation of a
    block for the whole block. That is slightly larger, so still a bound.

    The other bound is smaller where signs differ or lags with large h are less than b apart. It is
    never above the bound for any matrix in [Choquette23], algorithm 4, for C or for its
    absolute values: that one adds up, over the rounds of a pattern, the heaviest admitted pattern
    of each row of |C^T C|. For the p-th round of a pattern, its own entry with at most p - 1
    earlier and k - p later partners is one of the patterns that are compared there.

    Args:
      coefficients: first column of C, [at least participation.rounds].
      participation: the schema.
      known_monotone: whether the coefficients are known to be non-negative and non-increasing
        from their construction, even if rounding has disturbed that.

    Returns:
      The bound; exact if the pattern 0, b, 2b, .. attains it up to rounding.
    """
    coefficients = coefficients[: participation.rounds]
    separation, count = participation.min_separation, participation.count
    released = pattern_sum(coefficients, separation, count)
    attained = float(released @ released)
    if known_monotone or is_monotone(coefficients):
        return Sensitivity(attained, is_exact=True)
    magnitudes = np.abs(coefficients)
    bound = 0.0
    for first, end in participation_blocks(count, _MAX_BLOCKS):
        correlation = autocorrelation(magnitudes[: magnitudes.size - first * separation])
        largest = np.maximum.accumulate(correlation[::-1])[::-1][separation::separation]
        bound += (end - first) * correlation[0]
        bound += pair_weights(first, end, count, largest.size) @ largest
    exact = bound <= attained * (1 + _ROUNDING * count)
    by_blocks = Sensitivity(max(float(bound), attained), is_exact=bool(exact))
    if exact or participation.rounds**2 * count > _MOST_PAIRS:
        return by_blocks
    column = np.asarray(coefficients, np.float64).tobytes()
    return min(by_blocks, _by_pairs(column, participation), key=lambda one: one.squared)


@functools.lru_cache(maxsize=64)
def _by_pairs(coefficients: bytes, participation: Participation) -> Sensitivity:
    """The bound from all pairs of columns; optimisers ask for the same one several times."""
    return matrix_sensitivity.upper_bound(gram(np.frombuffer(coefficients)), participation)


def gram(coefficients: np.ndarray) -> np.ndarray:
    """C^T C for the matrix with this first column [n], in O(n^2)."""
    reverse = coefficients[::-1]
    products = np.outer(reverse, reverse)
    for i in range(reverse.size - 2, -1, -1):  # Entry (i, j) has one term more than its successor.
        products[i, :-1] += products[i + 1, 1:]
    return products


def pattern_sum(values: np.ndarray, separation: int, count: int) -> np.ndarray:
    """`sum_{s < count} values[t - s separation]`, [n]: `C u` for the pattern 0, b, 2b, .."""
    n = values.size
    table = np.zeros((-(-n // separation), separation))
    table.flat[:n] = values
    sums = np.cumsum(table, axis=0)
    sums[count:] -= sums[:-count].copy()
    return sums.ravel()[:n]


def pattern_gradient(
    coefficients: np.ndarray, participation: Participation
) -> tuple[float, np.ndarray]:
    """Squared norm of `C u` for the pattern 0, b, 2b, .., and its gradient, [n].

    Args:
      coefficients: of a Toeplitz C, [n].
      participation: the schema, with the separation b.
    """
    separation, count = participation.min_separation, participation.count
    released = pattern_sum(coefficients, separation, count)
    back = pattern_sum(released[::-1], separation, count)[::-1]
    return released @ released, 2 * back


def autocorrelation(values: np.ndarray) -> np.ndarray:
    """`sum_l values[l] values[l + d]` for d = 0 .. n - 1, [n]."""
    n = values.size
    spectrum = scipy.fft.rfft(values, scipy.fft.next_fast_len(2 * n, real=True))
    return scipy.fft.irfft(np.abs(spectrum) ** 2, scipy.fft.next_fast_len(2 * n, real=True))[:n]


def participation_blocks(count: int, limit: int) -> list[tuple[int, int]]:
    """Splits the participations 0 .. count - 1 into at most `limit` blocks [first, end).

    Blocks become shorter towards the last participation. Participations differ by how many rounds
    are left, and the ratio of those is about the same within every block.
    """
    left = np.arange(count) + 1 if count <= limit else np.geomspace(1, count, limit)
    firsts = np.unique(count - np.floor(left).astype(np.int64))
    ends = np.append(firsts[1:], count)
    return list(zip(firsts.tolist(), ends.tolist(), strict=True))


def pair_weights(first: int, end: int, count: int, lags: int) -> np.ndarray:
    """Twice the number of pairs (s, s + m), first <= s < end, s + m < count, for m = 1 .. lags."""
    return 2.0 * np.clip(count - first - np.arange(1, lags + 1), 0, end - first)
