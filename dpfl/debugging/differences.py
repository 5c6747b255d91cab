"""Differences of shares and means of two samples, with intervals and adjusted p-values (NumPy).

Two generators write two samples of independent draws. Even if both learned from the same
data, their shares differ from one training to another, by the noise and by the order of clients.
`between` allows for that: the standard deviation of the *difference* of two trainings on equal
data. It is added in quadrature to the standard error of the samples, here and in the intervals.

Sources:
- shares: interval of Wilson (1927, JASA 22); of differences: Newcombe (1998, Statistics in Medicine
  17, method 10), with the allowance in quadrature; p-value: pooled normal test, for few hits that
  of Fisher (1935, JRSS 98), whose law for unequal shares is averaged over the allowance;
- means: Welch's (1947, Biometrika 34) t with Satterthwaite's degrees of freedom;
- ratios of sums, such as words of sentences: linearised, one residual for each sentence;
- several comparisons: Holm (1979, Scandinavian Journal of Statistics 6).
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy

from dpfl import _json

# Level of all intervals of differences, each by itself.
_LEVEL = 0.95
# Differences of trainings, in standard deviations, over which p-values of shares are averaged.
_DEVIATES = np.linspace(-8, 8, 65)
# With as many expected hits and misses in each sample, shares are as good as normal.
_FEW = 500
# Numbers of an array of laws that is made at a time.
_BLOCK = 1 << 20
# Trained shares are not closer to 0 and 1.
_LEAST_SHARE = 1e-12


@dataclasses.dataclass(frozen=True)
class Share:
    """A number of hits among independent draws.

    Attributes:
      hits: number of draws with a property.
      count: number of draws, 0 if there are none.
    """

    hits: int
    count: int

    @classmethod
    def of(cls, hits: Any) -> 'Share':
        """The share of true entries of a bool array [N]."""
        hits = np.asarray(hits, bool)
        return cls(int(hits.sum()), hits.size)

    @property
    def value(self) -> float:
        """The share; not a number without draws."""
        return self.hits / self.count if self.count else float('nan')

    def interval(self, level: float = _LEVEL) -> tuple[float, float]:
        """Wilson's interval, (0, 1) without draws."""
        low, high = _wilson(self.hits, self.count, level)
        return float(low), float(high)


@dataclasses.dataclass(frozen=True)
class Mean:
    """An average over independent draws.

    Attributes:
      value: the average; not a number without draws.
      error: its standard error; infinite below two draws.
      count: number of draws.
    """

    value: float
    error: float
    count: int

    @classmethod
    def of(cls, values: Any) -> 'Mean':
        """The average of numbers [N]."""
        values = np.asarray(values, np.float64)
        if values.size < 2:
            return cls(float(values[0]) if values.size else float('nan'), float('inf'), values.size)
        return cls(
            float(values.mean()), float(values.std(ddof=1) / np.sqrt(values.size)), values.size
        )

    @classmethod
    def ratio(cls, above: Any, below: Any) -> 'Mean':
        """The ratio of two sums over draws, such as unknown words to words, of sentences.

        Args:
          above, below: numbers [N], one of each for each draw; those below are not negative.
        """
        above, below = (np.asarray(values, np.float64) for values in (above, below))
        total = below.sum()
        if not total > 0:
            return cls(float('nan'), float('inf'), above.size)
        value = float(above.sum() / total)
        if above.size < 2:
            return cls(value, float('inf'), above.size)
        residuals = (above - value * below) * (above.size / total)
        return cls(value, float(residuals.std(ddof=1) / np.sqrt(above.size)), above.size)

    def interval(self, level: float = _LEVEL) -> tuple[float, float]:
        """Student's interval; infinite below two draws."""
        if self.count < 2:
            return -np.inf, np.inf
        reach = float(scipy.stats.t.ppf((1 + level) / 2, self.count - 1)) * self.error
        return self.value - reach, self.value + reach

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values, with None for numbers that are not finite."""
        return {name: _json.finite(value) for name, value in dataclasses.asdict(self).items()}


@dataclasses.dataclass(frozen=True)
class Difference:
    """How a measure of one sample differs from that of another.

    Attributes:
      name: of the measure.
      first, second: values of the two samples.
      low, high: bounds of the interval of `first - second`, for this comparison by itself.
      between: standard deviation of the difference from training to training that they include.
      p_value: two-sided; 1 if one of the samples has no draws.
      adjusted: p-value after Holm's correction for all comparisons that were made together.
    """

    name: str
    first: float
    second: float
    low: float
    high: float
    between: float
    p_value: float
    adjusted: float

    @property
    def value(self) -> float:
        """The difference, first minus second."""
        return self.first - self.second

    def is_clear(self, alpha: float, least: float = 0.0) -> bool:
        """Whether the adjusted p-value is at most alpha, and the difference at least `least`."""
        return self.adjusted <= alpha and abs(self.value) >= least

    def to_dict(self) -> dict[str, Any]:
        """The difference as JSON values, with None for numbers that are not finite."""
        values = {**dataclasses.asdict(self), 'difference': self.value}
        return {name: _json.finite(value) for name, value in values.items()}


def described(measure: Share | Mean) -> dict[str, Any]:
    """A measure and its interval as JSON values."""
    return {
        'value': _json.finite(measure.value),
        'interval': list(map(_json.finite, measure.interval())),
    }


def compare(
    name: str,
    first: Share | Mean,
    second: Share | Mean,
    *,
    between: float = 0.0,
) -> Difference:
    """The difference of two shares or of two means, not corrected for other comparisons.

    Args:
      name: of the measure.
      first, second: the measure in the two samples, both of one kind.
      between: standard deviation of the difference of two trainings on equal data.
    """
    if isinstance(first, Share) and isinstance(second, Share):
        counts = (first.hits, first.count, second.hits, second.count)
        low, high = (float(bound) for bound in newcombe(*counts, between=between))
        p_value = float(share_p_values(*counts, between=between))
    else:
        assert isinstance(first, Mean) and isinstance(second, Mean)
        low, high, p_value = _welch(first, second, between)
    return Difference(name, first.value, second.value, low, high, between, p_value, p_value)


def moved(measure: Share | Mean, value: float) -> Share | Mean:
    """A measure of the same number of draws with another value; shares become whole draws."""
    if isinstance(measure, Mean):
        return dataclasses.replace(measure, value=value)
    hits = round(float(np.clip(value, 0, 1)) * measure.count) if np.isfinite(value) else 0
    return Share(hits, measure.count)


def power(expected: Difference, alpha: float, least: float = 0.0) -> float:
    """Probability that a difference is clear, by the normal approximation of its test.

    Args:
      expected: the difference at the expected values of both samples, with its p-value.
      alpha: level of the test. For a lower bound under Holm's correction, divide the level of all
        comparisons by their number.
      least: smallest difference that is called clear.

    Returns:
      The power, within [0, 1]; 0 if no difference is expected.
    """
    size = abs(expected.value)
    if not size > 0 or not expected.p_value < 1:
        return 0.0
    # The difference in standard deviations; infinite if the p-value underflows.
    reached = float(-scipy.special.ndtri(expected.p_value / 2))
    if np.isinf(reached):
        return float(size >= least)
    needed = max(float(-scipy.special.ndtri(alpha / 2)), reached * least / size)
    return float(scipy.special.ndtr(reached - needed))


def corrected(differences: Sequence[Difference]) -> tuple[Difference, ...]:
    """The differences with Holm's correction over all of them, in their order."""
    adjusted = holm([difference.p_value for difference in differences])
    return tuple(
        dataclasses.replace(difference, adjusted=float(value))
        for difference, value in zip(differences, adjusted, strict=True)
    )


def holm(p_values: Any) -> np.ndarray:
    """Holm's adjusted p-values, float64 [N], in the order of the p-values."""
    p_values = np.asarray(p_values, np.float64)
    order = np.argsort(p_values, kind='stable')
    steps = np.maximum.accumulate(p_values[order] * np.arange(p_values.size, 0, -1))
    adjusted = np.empty(p_values.size)
    adjusted[order] = np.minimum(steps, 1)
    return adjusted


def _wilson(hits: Any, counts: Any, level: float = _LEVEL) -> tuple[np.ndarray, np.ndarray]:
    """Wilson's intervals of shares, elementwise; (0, 1) where a count is 0.

    Args:
      hits, counts: arrays that broadcast together.
      level: level of each interval.

    Returns:
      Lower and upper bounds, float64.
    """
    z = _normal(level)
    hits, counts = np.broadcast_arrays(np.asarray(hits, float), np.asarray(counts, float))
    middle = (hits + z**2 / 2) / (counts + z**2)
    inner = hits * _over(counts - hits, counts) + z**2 / 4
    reach = z * np.sqrt(inner) / (counts + z**2)
    # Rounding must not exclude the shares 0 and 1 themselves.
    low = np.where(hits == 0, 0.0, np.maximum(middle - reach, 0))
    high = np.where(hits == counts, 1.0, np.minimum(middle + reach, 1))
    return low, high


def newcombe(
    hits: Any,
    counts: Any,
    other_hits: Any,
    other_counts: Any,
    *,
    between: Any = 0.0,
) -> tuple[np.ndarray, np.ndarray]:
    """Newcombe's intervals of differences of shares, elementwise, with an allowance.

    Args:
      hits, counts: the first sample, arrays.
      other_hits, other_counts: the second sample.
      between: standard deviation of the difference of two trainings on equal data.

    Returns:
      Lower and upper bounds, float64; (-1, 1) where a sample has no draws.
    """
    low, high = _wilson(hits, counts)
    other_low, other_high = _wilson(other_hits, other_counts)
    share, other = _over(hits, counts), _over(other_hits, other_counts)
    allowance = (_normal(_LEVEL) * np.asarray(between, float)) ** 2
    below = np.sqrt((share - low) ** 2 + (other_high - other) ** 2 + allowance)
    above = np.sqrt((high - share) ** 2 + (other - other_low) ** 2 + allowance)
    known = np.minimum(counts, other_counts) > 0
    difference = share - other
    return (
        np.where(known, np.maximum(difference - below, -1), -1.0),
        np.where(known, np.minimum(difference + above, 1), 1.0),
    )


def share_p_values(
    hits: Any, counts: Any, other_hits: Any, other_counts: Any, *, between: Any = 0.0
) -> np.ndarray:
    """Two-sided p-values of equal shares, elementwise, valid for few hits and few draws.

    Many hits and misses of both samples have the pooled normal test, with the allowance in its
    variance. Few have Fisher's noncentral hypergeometric law of the hits of the first sample, given
    those of both together: it is averaged over normal differences of the two shares, with the
    allowance as their standard deviation, and the smaller tail counts twice. Without an allowance
    this is Fisher's exact test.

    Args:
      hits, counts: the first sample, integer arrays.
      other_hits, other_counts: the second sample.
      between: standard deviation of the difference of two trainings on equal data.

    Returns:
      float64; 1 where a sample has no draws.
    """
    cases = np.broadcast_arrays(hits, counts, other_hits, other_counts, np.asarray(between, float))
    flat = [np.ravel(values) for values in cases]
    hits, counts, other_hits, other_counts, between = flat
    pooled = _over(hits + other_hits, counts + other_counts)
    variance = pooled * (1 - pooled) * (_over(1, counts) + _over(1, other_counts)) + between**2
    difference = np.abs(_over(hits, counts) - _over(other_hits, other_counts))
    p_values = 2 * scipy.special.ndtr(-_over(difference, np.sqrt(variance)))
    few = np.minimum(counts, other_counts) * np.minimum(pooled, 1 - pooled) < _FEW
    if few.any():
        p_values[few] = _exact_p_values(*(values[few] for values in flat))
    return p_values.reshape(cases[0].shape)


def _exact_p_values(
    hits: np.ndarray,
    counts: np.ndarray,
    other_hits: np.ndarray,
    other_counts: np.ndarray,
    between: np.ndarray,
) -> np.ndarray:
    """As `share_p_values`, of few hits or misses; all arguments are arrays of one length."""
    together, draws = hits + other_hits, np.maximum(counts + other_counts, 1)
    # The possible hits of the first sample, of one comparison after the other.
    least = np.maximum(together - other_counts, 0)
    sizes = np.minimum(together, counts) - least + 1
    owner = np.repeat(np.arange(sizes.size), sizes)
    starts = np.cumsum(sizes) - sizes
    possible = np.arange(owner.size) - (starts - least)[owner]
    choices = _log_choices(counts[owner], possible)
    choices += _log_choices(other_counts[owner], together[owner] - possible)
    # Sums of the law below the hits, and from them on, by one call.
    at_hits = starts + hits - least
    parts = np.stack([starts, at_hits], axis=1).ravel()
    pooled, tails = (together + 0.5) / (draws + 1), np.zeros([2, sizes.size])
    deviates = _DEVIATES if between.any() else np.zeros(1)
    weights = np.exp(-(deviates**2) / 2)
    weights /= weights.sum()
    block = max(_BLOCK // owner.size, 1)
    for first in range(0, deviates.size, block):
        apart = deviates[first : first + block, None] * (between / draws)
        odds = _log_odds(pooled + apart * other_counts) - _log_odds(pooled - apart * counts)
        law = choices + odds[:, owner] * possible
        law = np.exp(law - np.maximum.reduceat(law, starts, axis=1)[:, owner])
        sums = np.add.reduceat(law, parts, axis=1)
        below, above = np.where(hits > least, sums[:, ::2], 0), sums[:, 1::2]
        both = np.stack([below + law[:, at_hits], above]) / (below + above)
        tails += weights[first : first + block] @ both
    known = np.minimum(counts, other_counts) > 0
    return np.where(known, np.minimum(2 * tails.min(axis=0), 1), 1.0)


def _log_odds(shares: np.ndarray) -> np.ndarray:
    return scipy.special.logit(np.clip(shares, _LEAST_SHARE, 1 - _LEAST_SHARE))


def _log_choices(number: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Logarithms of binomial coefficients."""
    return -scipy.special.betaln(number - chosen + 1, chosen + 1) - np.log1p(number)


def _welch(first: Mean, second: Mean, between: float) -> tuple[float, float, float]:
    """Bounds of the interval and p-value."""
    if min(first.count, second.count) < 2 or not np.isfinite(first.error + second.error):
        return -np.inf, np.inf, 1.0
    variances = np.array([first.error**2, second.error**2])
    total = variances.sum() + between**2
    difference = first.value - second.value
    if not total > 0:  # All draws of a sample are equal.
        return difference, difference, float(difference == 0)
    # The allowance counts as known, so it adds degrees of freedom.
    freedom = np.array([first.count - 1, second.count - 1])
    doubt = float((variances**2 / freedom).sum())
    degrees = total**2 / doubt if doubt > 0 else np.inf
    deviation = float(np.sqrt(total))
    reach = float(scipy.stats.t.ppf((1 + _LEVEL) / 2, degrees)) * deviation
    p_value = float(2 * scipy.stats.t.sf(abs(difference) / deviation, degrees))
    return difference - reach, difference + reach, p_value


def _normal(level: float) -> float:
    return float(scipy.special.ndtri((1 + level) / 2))


def _over(above: Any, below: Any) -> np.ndarray:
    """Quotients, 0 where the divisor is 0."""
    above, below = np.broadcast_arrays(np.asarray(above, float), np.asarray(below, float))
    return np.divide(above, below, out=np.zeros(above.shape), where=below > 0)
