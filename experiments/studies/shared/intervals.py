"""Means of independent values with confidence intervals."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from scipy import stats

from dpfl import _validate

CONFIDENCE = 0.95
# A relative half-width below this is rounding: all values are the same.
_ROUNDING = 1e-9


@dataclasses.dataclass(frozen=True)
class Interval:
    """A mean with its confidence interval, by Student's t.

    Attributes:
      mean: mean of the values.
      half_width: the interval is the mean plus or minus this; None for a single value.
      count: number of values.
      is_lower_bound: whether some values, and so the mean, are lower bounds.
    """

    mean: float
    half_width: float | None
    count: int
    is_lower_bound: bool = False

    @property
    def low(self) -> float:
        """Lower end of the interval; minus infinity for a single value."""
        return -math.inf if self.half_width is None else self.mean - self.half_width

    @property
    def high(self) -> float:
        """Upper end of the interval; infinity for a single value."""
        return math.inf if self.half_width is None else self.mean + self.half_width

    def __str__(self) -> str:
        """Mean and half-width, the half-width with two digits."""
        text = f'{self.mean:.4g}'
        if self.half_width and self.half_width > _ROUNDING * abs(self.mean):
            digits = max(0, 1 - math.floor(math.log10(self.half_width)))
            text = f'{self.mean:.{digits}f} ± {self.half_width:.{digits}f}'
        return f'>= {text}' if self.is_lower_bound else text


def interval(values: Sequence[float], is_lower_bound: bool = False) -> Interval:
    """The mean of independent values with its confidence interval.

    Raises:
      ValueError: if there are no values.
    """
    count = _validate.integer('values', len(values), minimum=1)
    half_width = None
    if count > 1:
        quantile = stats.t.ppf((1 + CONFIDENCE) / 2, count - 1)
        half_width = float(quantile * np.std(values, ddof=1) / math.sqrt(count))
    return Interval(float(np.mean(values)), half_width, count, is_lower_bound)
