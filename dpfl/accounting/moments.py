"""The moments accountant: integer moments and the classic conversion to epsilon.

This is the accountant of [McMahan18], appendix A, and [Augenstein20], table 3, after [Abadi16].
Renyi DP with the conversion of dp_accounting is tighter; this one recomputes published numbers.
"""

import math

import dp_accounting
import numpy as np
from dp_accounting import rdp
from scipy import special

# Largest moment that [McMahan18] uses; larger ones would give a smaller epsilon at high noise.
MAX_MOMENT = 32
# Absolute rounding error of one logarithm near 0, as for a rare sample under much noise.
_ROUNDING = 1e-13
_MOMENTS = np.arange(1, MAX_MOMENT + 1)


def gaussian(mu: float) -> np.ndarray:
    """Log moments of a Gaussian release, `lambda (lambda + 1) mu^2 / 2`, float64 [MAX_MOMENT].

    The moment of order lambda is `E[exp(lambda loss)]` of the privacy loss.
    """
    return _MOMENTS * (_MOMENTS + 1) * mu**2 / 2


def poisson_sampled_gaussian(sampling_probability: float, mu: float) -> np.ndarray:
    """Log moments of one Gaussian release on a Poisson sample, float64 [MAX_MOMENT].

    The likelihood ratio of the mixture `(1 - q) N(0, 1) + q N(mu, 1)` to `N(0, 1)` is a sum of two
    terms: the binomial theorem gives its moments. The other direction is never larger ([Mironov19],
    section 3).

    Args:
      sampling_probability: q, within (0, 1].
      mu: shift of the sum divided by the standard deviation of the noise.
    """
    if sampling_probability == 1:
        return gaussian(mu)
    q = sampling_probability
    log_moments = np.empty(MAX_MOMENT)
    for moment in _MOMENTS:
        order = moment + 1
        j = np.arange(order + 1)
        log_binomial = (
            special.gammaln(order + 1) - special.gammaln(j + 1) - special.gammaln(order - j + 1)
        )
        terms = log_binomial + j * math.log(q) + (order - j) * math.log1p(-q)
        log_moments[moment - 1] = special.logsumexp(terms + j * (j - 1) * mu**2 / 2)
    return np.maximum(log_moments, 0.0) + _ROUNDING


def sampled_without_replacement(
    event: dp_accounting.SampledWithoutReplacementDpEvent,
) -> np.ndarray:
    """Log moments of one Gaussian release on a sample of fixed size, float64 [MAX_MOMENT].

    An upper bound: [Wang19], theorem 27, as dp_accounting implements it.
    """
    accountant = rdp.RdpAccountant(
        orders=_MOMENTS + 1,
        neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE,
    ).compose(event)
    # dp_accounting publishes the divergences only after its own conversion.
    return _MOMENTS * (np.maximum(accountant._rdp, 0.0) + _ROUNDING)


def epsilon(log_moments: np.ndarray, delta: float) -> float:
    """`min over lambda of (log moment(lambda) + log(1 / delta)) / lambda` ([McMahan18])."""
    return float(max(0.0, np.min((log_moments - math.log(delta)) / _MOMENTS)))
