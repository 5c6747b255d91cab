"""How much a model changes if it is trained again on equal data: what differences have to exceed.

Two trainings on equal data differ by noise, cohorts and initial weights. Between trainings of the
small models of commit messages (docs/debug_text.md), the logarithm of the odds of
shares above 5 % had a standard deviation of about 0.15, and rarer events varied more, about with
the cube root of how rare they are. That is the form here; its scale is a setting.
"""

import dataclasses

import numpy as np

from dpfl import _validate
from dpfl.debugging.differences import Mean, Share

# Shares up to this one vary more, the rarer they are.
_COMMON = 0.05
# Means of lengths vary less than shares: a third of their deviation in the logarithm.
_OF_MEANS = 1 / 3


@dataclasses.dataclass(frozen=True)
class Allowance:
    """Standard deviation of the difference of two trainings on equal data.

    Attributes:
      deviation: that of the logarithm of the odds of a share above 5 %; 0 allows nothing.
    """

    deviation: float

    def __post_init__(self):
        _validate.number('deviation', self.deviation, minimum=0)

    def of_shares(self, shares: np.ndarray) -> np.ndarray:
        """Standard deviation of the difference, for pooled shares; elementwise."""
        shares = np.asarray(shares, np.float64)
        rare = np.cbrt(_COMMON / np.clip(shares, 1e-12, _COMMON))
        return self.deviation * rare * shares * (1 - shares)

    def of(self, first: Share | Mean, second: Share | Mean) -> float:
        """Standard deviation of the difference of two shares or two positive means."""
        if isinstance(first, Share) and isinstance(second, Share):
            count = first.count + second.count
            pooled = (first.hits + second.hits) / count if count else 0.0
            return float(self.of_shares(np.array(pooled)))
        mean = (first.value + second.value) / 2
        return self.deviation * _OF_MEANS * abs(mean) if np.isfinite(mean) else 0.0

    def of_ratios(self, first: Mean, second: Mean) -> float:
        """Standard deviation of the difference of two ratios that are shares of words."""
        pooled = (first.value + second.value) / 2
        return float(self.of_shares(np.array(pooled))) if 0 <= pooled <= 1 else 0.0


def implied(
    hits: np.ndarray, other_hits: np.ndarray, counts: tuple[int, int], least: float = 0.002
) -> float | None:
    """The deviation that would explain all differences of many shares, if the data were equal.

    It is the scale of an `Allowance` by the method of moments: the mean square of the differences
    that the draws do not explain, in units of an allowance of 1.

    Args:
      hits, other_hits: numbers of draws with each of many properties, integers [G].
      counts: numbers of draws of the two samples.
      least: smallest pooled share that is used.

    Returns:
      The deviation, at least 0; None with fewer than ten properties that are frequent enough.
    """
    pooled = (hits + other_hits) / sum(counts)
    used = (pooled >= least) & (pooled < 1)
    if used.sum() < 10:
        return None
    pooled = pooled[used]
    squares = ((hits / counts[0] - other_hits / counts[1])[used]) ** 2
    by_chance = pooled * (1 - pooled) * (1 / counts[0] + 1 / counts[1])
    unit = Allowance(1.0).of_shares(pooled) ** 2
    return float(np.sqrt(max(np.mean((squares - by_chance) / unit), 0.0)))
