"""Power of detection: from which share of damaged data on a fault is found (NumPy and SciPy).

In each trial a fault affects a share of the data, and is found or not. The probability that it is
found, the power, rises with the share. It is fitted by

    power(s) = g + (1 - g) / (1 + ((1 - p) / p) (s / s_p)^(-b)),   b > 0,

a logistic curve in the logarithm of the share above the false alarm rate g. `s_p` is the share at
which a fault that raises no false alarm has power p. All parameters are fitted by maximum
likelihood; trials without the fault (share 0) tell g. The interval of the share is that of its
profile likelihood: all shares whose best fit is at most 1.92 (half the 95 % quantile of chi-square
with one degree of freedom) less likely in the logarithm. Intervals of single proportions are those
of Clopper and Pearson (1934, Biometrika 26), which are exact.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from scipy import special, stats

from dpfl import _validate, errors

# Where the fit looks: slopes per factor e of the share, and false alarm rates. A slope of 20 rises
# from 0.2 to 0.8 within a factor of 1.15, which no grid of shares tells from a step.
_SLOPES = np.geomspace(0.5, 20, 40)
_FALSE_ALARMS = np.concatenate([[0.0], np.geomspace(1e-3, 0.6, 24)])
_SHARES = 241
# Beyond the shares that were tried, by this factor either way.
_BEYOND = 10.0


@dataclasses.dataclass(frozen=True)
class Trials:
    """Trials at one share.

    Attributes:
      share: of the data that the fault affects; 0 without the fault.
      found: number of trials in which the fault was named.
      count: number of trials, at least 1.
    """

    share: float
    found: int
    count: int

    def __post_init__(self):
        _validate.number('share', self.share, minimum=0, maximum=1)
        _validate.integer('count', self.count, minimum=1)
        _validate.integer('found', self.found, minimum=0, maximum=self.count)

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """The exact interval of the probability, of Clopper and Pearson."""
        interval = stats.binomtest(self.found, self.count).proportion_ci(level, method='exact')
        return float(interval.low), float(interval.high)


@dataclasses.dataclass(frozen=True)
class Fit:
    """The fitted curve and the smallest share that is found.

    Attributes:
      power: the power that is asked for.
      share: the share with this power; None if it is beyond what was tried, above or below.
      low, high: interval of the share; None where it has no bound within what was tried.
      false_alarms: fitted false alarm rate g.
      slope: fitted slope b.
      reference: fitted share `s_p` of the formula.
    """

    power: float
    share: float | None
    low: float | None
    high: float | None
    false_alarms: float
    slope: float
    reference: float

    def curve(self, shares: np.ndarray) -> np.ndarray:
        """Fitted power at positive shares, float64 of their shape."""
        return _curve(
            np.log(shares),
            math.log(self.reference),
            self.slope,
            self.false_alarms,
            self.power,
        )


def fit(trials: Sequence[Trials], power: float = 0.8) -> Fit:
    """Fits the power of a fault, and finds the share from which on it is found.

    Args:
      trials: trials at one or more shares above 0, and without the fault (share 0).
      power: the power asked for, in (0, 1).

    Raises:
      ArgumentError: if there are no trials with the fault, or none without it.
    """
    _validate.number('power', power, above=0, below=1)
    clean = [each for each in trials if each.share == 0]
    faulty = sorted((each for each in trials if each.share > 0), key=lambda each: each.share)
    if not clean or not faulty:
        raise errors.ArgumentError('trials', errors.NOT_SHOWN, 'must be with and without the fault')
    logs = np.log([each.share for each in faulty])
    lowest, highest = math.log(faulty[0].share), math.log(faulty[-1].share)
    ends = lowest - math.log(_BEYOND), highest + math.log(_BEYOND)
    grid = np.linspace(*ends, _SHARES)
    # Log-likelihood of all (share, slope, false alarm rate) of the grids.
    probabilities = _curve(
        logs,
        grid[:, None, None, None],
        _SLOPES[:, None, None],
        _FALSE_ALARMS[:, None],
        power,
    )
    found = np.array([each.found for each in faulty])
    missed = np.array([each.count - each.found for each in faulty])
    likelihood = (
        special.xlogy(found, probabilities) + special.xlogy(missed, 1 - probabilities)
    ).sum(axis=-1)
    alarms = sum(each.found for each in clean)
    quiet = sum(each.count for each in clean) - alarms
    likelihood += special.xlogy(alarms, _FALSE_ALARMS) + special.xlogy(quiet, 1 - _FALSE_ALARMS)
    profile = likelihood.max(axis=(1, 2))
    best = profile.max()
    inside = np.flatnonzero(profile >= best - stats.chi2.ppf(0.95, 1) / 2)
    # If several shares fit equally well, as between two shares with none and all found, the middle.
    at = grid[np.flatnonzero(profile >= best - 1e-9)]
    middle = int(np.abs(grid - (at[0] + at[-1]) / 2).argmin())
    slope, rate = np.unravel_index(int(likelihood[middle].argmax()), likelihood.shape[1:])
    reached = grid[middle]
    return Fit(
        power=power,
        share=math.exp(reached) if lowest <= reached <= highest else None,
        low=math.exp(grid[inside[0]]) if inside[0] > 0 else None,
        high=math.exp(grid[inside[-1]]) if inside[-1] < _SHARES - 1 else None,
        false_alarms=float(_FALSE_ALARMS[rate]),
        slope=float(_SLOPES[slope]),
        reference=math.exp(reached),
    )


def _curve(logs, reference, slope, false_alarms, power):
    """Power at logarithms of shares; all arguments broadcast."""
    rises = special.expit(math.log(power / (1 - power)) + slope * (logs - reference))
    return false_alarms + (1 - false_alarms) * rises
