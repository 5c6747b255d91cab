"""Banded inverse mechanisms: `C^-1` is a lower-triangular Toeplitz matrix with few bands."""

import dataclasses
from typing import ClassVar

import numpy as np
from scipy import fft, signal

from dpfl import _validate
from dpfl.mechanisms import base, kernels, toeplitz
from dpfl.mechanisms import workload as workloads
from dpfl.participation import Participation

# Blocks of participations in the bound of `sensitivity`: each costs one FFT.
_MAX_BLOCKS = 128
# Relative difference of the bound and an admitted pattern that counts as rounding of the FFTs,
# for each participation.
_ROUNDING = 3e-14


@dataclasses.dataclass(frozen=True, eq=False)
class BandedInverse(base.Mechanism):
    """`C^-1` is lower-triangular Toeplitz with p bands: its first column is (1, a_1, .., a_{p-1}).

    The noise of a round is a weighted sum of the last p independent noises, which can be drawn
    anew from their keys, so that no noise has to be kept. `C` is a full Toeplitz matrix with the
    power series 1 / (1 + a_1 x + .. + a_{p-1} x^{p-1}) as coefficients. The coefficients hold for
    any number of rounds. (arXiv 2505.12128 calls the optimised form BandInvMF.)

    Attributes:
      rounds: number of rounds, at least 1.
      inverse_coefficients: (1, a_1, .., a_{p-1}), float64 [p]; p may exceed `rounds`.

    Raises:
      ValueError: if a field is out of its range, or the entries of `C` overflow.
    """

    name: ClassVar[str] = 'banded_inverse'
    rounds: int
    inverse_coefficients: np.ndarray

    def __post_init__(self):
        _validate.integer('rounds', self.rounds, minimum=1)
        taps = _validate.vector('inverse_coefficients', self.inverse_coefficients)
        object.__setattr__(self, 'inverse_coefficients', taps)
        if not taps.size or taps[0] != 1:
            raise ValueError(
                f'inverse_coefficients={taps.tolist()}: must have at least 1 entry, the first 1'
            )
        with np.errstate(over='ignore', invalid='ignore'):
            # Its square, at least any squared norm of C u, must be a float.
            largest = np.abs(self.coefficients()).sum() * self.rounds
        if not largest < 1e150:
            raise ValueError(
                f'inverse_coefficients={taps.tolist()}: the inverse grows to a sum of '
                f'{largest:g} over rounds={self.rounds}, must stay below 1e150'
            )

    def __eq__(self, other) -> bool:
        return isinstance(other, BandedInverse) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash(self.digest())

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
        """First `bands` coefficients of (1 - x)^power as `C^-1`.

        Power 1/2 is BISR; with two bands `C^-1` is 1 - power x, the single step of DP-lambda-CGD
        (arXiv 2601.22334). With few bands a power near 1 has far less loss than 1/2 (compare
        gamma-BIFR, arXiv 2605.18379).

        Args:
          rounds: number of rounds, at least 1.
          bands: p, at least 1.
          power: within [0, 1]; 0 is independent noise.
        """
        _validate.integer('bands', bands, minimum=1)
        _validate.number('power', power, minimum=0, maximum=1)
        orders = np.arange(1, bands)
        return cls(rounds, np.cumprod(np.concatenate([[1.0], (orders - 1 - power) / orders])))

    @property
    def bands(self) -> int:
        """p, the number of independent noises in one round's noise."""
        return self.inverse_coefficients.size

    def coefficients(self) -> np.ndarray:
        """First column of `C`, float64 [rounds]."""
        impulse = np.zeros(self.rounds)
        impulse[0] = 1.0
        return signal.lfilter([1.0], self.inverse_coefficients, impulse)

    def strategy_matrix(self) -> np.ndarray:
        return toeplitz.matrix(self.coefficients())

    def kernel(self) -> kernels.BandedProduct:
        return kernels.BandedProduct(taps=self.inverse_coefficients[None])

    def squared_error(self, workload: np.ndarray | None = None) -> np.ndarray:
        if workload is None:
            return self._prefix_squared_error()
        workload = np.asarray(workload, dtype=np.float64)
        if workload.ndim == 1 and workload.size >= self.rounds:
            decoder = signal.lfilter(self.inverse_coefficients, [1.0], workload[: self.rounds])
            return np.cumsum(decoder**2)
        a = workloads.matrix(workload, self.rounds)
        # Entry (t, j) of A C^-1 is sum_i A[t, j + i] a_i: a filter that runs over j backwards.
        decoder = signal.lfilter(self.inverse_coefficients, [1.0], a[:, ::-1], axis=1)
        return (decoder**2).sum(axis=1)

    def _prefix_squared_error(self) -> np.ndarray:
        taps = np.zeros(self.rounds)
        used = min(self.rounds, self.bands)
        taps[:used] = self.inverse_coefficients[:used]
        return toeplitz.squared_error(taps)

    def _sensitivity(self, participation: Participation) -> base.Sensitivity:
        return sensitivity(self.coefficients(), participation)


def sensitivity(coefficients: np.ndarray, participation: Participation) -> base.Sensitivity:
    """Sensitivity of any lower-triangular Toeplitz matrix over the rounds of the schema.

    Let c be the absolute coefficients, n the rounds, b the separation, k the participations that
    a client can reach, and for columns i and i + d of the matrix

        h(i, d) = sum_{l < n - i - d} c_l c_{l+d},

    which is no less than the absolute value of their inner product and does not increase with i.
    Take any admitted pattern p_0 < p_1 < .. and updates of norm at most 1. Since p_s >= s b and
    p_{s+m} - p_s >= m b, the squared norm of `C u` is at most

        sum_s h(p_s, 0) + 2 sum_{s, m >= 1} h(p_s, p_{s+m} - p_s)
          <=  sum_{s<k} h(s b, 0) + 2 sum_{s<k} sum_{m=1..k-1-s} max_{d >= m b} h(s b, d).

    That is the bound. The pattern 0, b, 2b, .. is admitted and attains it where each maximum is
    at d = m b and no coefficient is negative: the value is then exact. Non-negative non-increasing
    coefficients are one such case (document 002, theorem 3.1), since then h does not increase with
    d either; a ripple of the coefficients that their correlation at lags of b and more does not
    show is another. The bound is never above the value of the theorem for the smallest
    non-increasing sequence that is nowhere below c, whose h is nowhere smaller.

    More than 128 participations are taken together in blocks, with s b of its first in each
    block: larger, by little, and still a bound.

    Args:
      coefficients: first column of C, [at least participation.rounds].
      participation: the schema.

    Returns:
      The bound; exact where the pattern 0, b, 2b, .. attains it up to rounding.
    """
    coefficients = coefficients[: participation.rounds]
    if toeplitz.is_monotone(coefficients):
        return toeplitz.sensitivity(coefficients, participation)
    separation, count = participation.min_separation, participation.count
    released = pattern_sum(coefficients, separation, count)
    attained = float(released @ released)
    magnitudes = np.abs(coefficients)
    bound = 0.0
    for first, end in participation_blocks(count, _MAX_BLOCKS):
        correlation = autocorrelation(magnitudes[: magnitudes.size - first * separation])
        largest = np.maximum.accumulate(correlation[::-1])[::-1][separation::separation]
        bound += (end - first) * correlation[0]
        bound += pair_weights(first, end, count, largest.size) @ largest
    exact = bound <= attained * (1 + _ROUNDING * count)
    return base.Sensitivity(max(float(bound), attained), is_exact=exact)


def pattern_sum(values: np.ndarray, separation: int, count: int) -> np.ndarray:
    """`sum_{s < count} values[t - s separation]`, [n]: C u of the pattern 0, b, 2b, .."""
    n = values.size
    table = np.zeros((-(-n // separation), separation))
    table.flat[:n] = values
    sums = np.cumsum(table, axis=0)
    sums[count:] -= sums[:-count].copy()
    return sums.ravel()[:n]


def autocorrelation(values: np.ndarray) -> np.ndarray:
    """`sum_l values[l] values[l + d]` for d = 0 .. n - 1, [n]."""
    n = values.size
    spectrum = fft.rfft(values, fft.next_fast_len(2 * n, real=True))
    return fft.irfft(np.abs(spectrum) ** 2, fft.next_fast_len(2 * n, real=True))[:n]


def participation_blocks(count: int, limit: int) -> list[tuple[int, int]]:
    """Splits the participations 0 .. count - 1 into at most `limit` blocks [first, end).

    The blocks are the shorter the fewer participations follow: the rounds that are left are what
    distinguishes participations, and the ratio of those is about the same within every block.
    """
    left = np.arange(count) + 1 if count <= limit else np.geomspace(1, count, limit)
    firsts = np.unique(count - np.floor(left).astype(np.int64))
    ends = np.append(firsts[1:], count)
    return list(zip(firsts.tolist(), ends.tolist(), strict=True))


def pair_weights(first: int, end: int, count: int, lags: int) -> np.ndarray:
    """Twice the number of pairs (s, s + m), first <= s < end, s + m < count, for m = 1 .. lags."""
    return 2.0 * np.clip(count - first - np.arange(1, lags + 1), 0, end - first)
