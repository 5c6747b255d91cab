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
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy

from dpfl import _json

# Level of all intervals of differences, each by itself, and the normal deviate of its bounds.
_LEVEL = 0.95
_DEVIATE = float(scipy.special.ndtri((1 + _LEVEL) / 2))
# Differences of trainings, in standard deviations, over which p-values of shares are averaged.
_DEVIATES = np.linspace(-8, 8, 65)
# With as many expected hits and misses in each sample, shares are as good as normal.
_FEW = 500
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
        if not self.count:
            return 0.0, 1.0
        squared = float(scipy.special.ndtri((1 + level) / 2)) ** 2
        misses, draws = self.count - self.hits, self.count + squared
        middle = (self.hits + squared / 2) / draws
        reach = math.sqrt(squared * (self.hits * misses / self.count + squared / 4)) / draws
        # Rounding must not exclude the shares 0 and 1 themselves.
        low = max(middle - reach, 0.0) if self.hits else 0.0
        return low, min(middle + reach, 1.0) if misses else 1.0


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
        return cls.ratio(values, np.ones(np.shape(values)))

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
        """The fields and the difference by name."""
        return {**vars(self), 'difference': self.value}


def json_values(result: Any) -> Any:
    """JSON values of a result of a study: fields by name, None for numbers that are not finite.

    A result whose values are others than its fields has a method `to_dict` that gives them.
    """
    if hasattr(result, 'to_dict'):
        result = result.to_dict()
    elif dataclasses.is_dataclass(result):
        result = vars(result)
    if isinstance(result, Mapping):
        return {name: json_values(value) for name, value in result.items()}
    if isinstance(result, (list, tuple)):
        return list(map(json_values, result))
    return _json.finite(result)


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
        low, high = newcombe(first, second, between)
        p_value = share_p_value(first, second, between)
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
    p_values = np.array([difference.p_value for difference in differences])
    order = np.argsort(p_values, kind='stable')
    steps = np.maximum.accumulate(p_values[order] * np.arange(p_values.size, 0, -1))
    adjusted = np.empty(p_values.size)
    adjusted[order] = np.minimum(steps, 1)
    return tuple(
        dataclasses.replace(difference, adjusted=float(value))
        for difference, value in zip(differences, adjusted, strict=True)
    )


def newcombe(first: Share, second: Share, between: float = 0.0) -> tuple[float, float]:
    """Newcombe's interval of a difference of shares, with an allowance.

    Args:
      first, second: the shares of the two samples.
      between: standard deviation of the difference of two trainings on equal data.

    Returns:
      Lower and upper bound; (-1, 1) if a sample has no draws.
    """
    if not (first.count and second.count):
        return -1.0, 1.0
    (low, high), (other_low, other_high) = first.interval(), second.interval()
    share, other, allowance = first.value, second.value, _DEVIATE * between
    below = math.hypot(share - low, other_high - other, allowance)
    above = math.hypot(high - share, other - other_low, allowance)
    return max(share - other - below, -1.0), min(share - other + above, 1.0)


@functools.lru_cache(maxsize=1 << 16)
def share_p_value(first: Share, second: Share, between: float = 0.0) -> float:
    """Two-sided p-value of equal shares, valid for few hits and few draws.

    Many hits and misses of both samples have the pooled normal test, with the allowance in its
    variance. Few have Fisher's noncentral hypergeometric law of the hits of the first sample, given
    those of both together: it is averaged over normal differences of the two shares, with the
    allowance as their standard deviation, and the smaller tail counts twice. Without an allowance
    this is Fisher's exact test.

    Args:
      first, second: the shares of the two samples.
      between: standard deviation of the difference of two trainings on equal data.

    Returns:
      The p-value; 1 if a sample has no draws.
    """
    if not (first.count and second.count):
        return 1.0
    together, draws = first.hits + second.hits, first.count + second.count
    pooled = together / draws
    if min(first.count, second.count) * min(pooled, 1 - pooled) >= _FEW:
        variance = pooled * (1 - pooled) * (1 / first.count + 1 / second.count) + between**2
        difference = abs(first.value - second.value)
        return float(2 * scipy.special.ndtr(-difference / math.sqrt(variance)))
    possible = np.arange(max(together - second.count, 0), min(together, first.count) + 1)
    choices = _log_choices(first.count, possible)
    choices += _log_choices(second.count, together - possible)
    deviates = _DEVIATES if between else np.zeros(1)
    middle, apart = (together + 0.5) / (draws + 1), deviates * (between / draws)
    odds = _log_odds(middle + apart * second.count) - _log_odds(middle - apart * first.count)
    laws = scipy.special.softmax(choices + odds[:, None] * possible, axis=1)
    law = scipy.special.softmax(-(deviates**2) / 2) @ laws
    tails = law[possible <= first.hits].sum(), law[possible >= first.hits].sum()
    return min(2 * float(min(tails)), 1.0)


def _log_odds(shares: np.ndarray) -> np.ndarray:
    return scipy.special.logit(np.clip(shares, _LEAST_SHARE, 1 - _LEAST_SHARE))


def _log_choices(number: int, chosen: np.ndarray) -> np.ndarray:
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
