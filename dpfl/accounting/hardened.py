"""What hardened noise changes in the accounting: integers, their rounding, discrete Gaussians.

docs/reference/hardened.md has the theorem and its proof. A run with `noise='hardened'` releases
integers with discrete Gaussian noise of standard deviation `STDDEV` per unit of the strategy. One
client's update is a vector of integers of norm at most `STDDEV / noise_multiplier`.
"""

import functools
import math
from collections.abc import Callable

from dpfl import errors, mechanisms
from dpfl.accounting.gaussian import Bound
from dpfl.accounting.plan_values import PlanValues
from dpfl.mechanisms.hardened import rounding

NOISES = ('default', 'hardened')
# Standard deviation of the integers z where the diagonal of C is 1.
STDDEV = 2.0**40
# Most coordinates of a model. A plan does not know its model, so rounding counts this many.
MOST_COORDINATES = 2**28
# Within these noise multipliers, an update has enough integers and float64 holds all of them.
_LEAST_NOISE, _MOST_NOISE = 2.0**-10, 2.0**20
# Below this delta the tails of the discrete Gaussian are no longer negligible.
_LEAST_DELTA = 1e-280
# Share of a delta that the tails, which are below 1e-320, take at most.
_TAILS = 2.0**-40


def check(plan: PlanValues) -> None:
    """Checks that a plan with hardened noise holds only what the proof covers.

    Raises:
      ValueError: if it holds anything else.
    """
    for name, has in (
        ('discretization', plan.discretization is not None),
        ('adaptive_clip', plan.adaptive_clip is not None),
        ('estimator', plan.estimator.kind != 'fixed'),
    ):
        if has:
            value = plan.estimator.kind if name == 'estimator' else getattr(plan, name)
            allowed = 'fixed' if name == 'estimator' else 'None'
            raise errors.ArgumentError(name, value, f'must be {allowed} with noise=hardened')
    if plan.noise_multiplier and not _LEAST_NOISE <= plan.noise_multiplier <= _MOST_NOISE:
        raise errors.ArgumentError(
            'noise_multiplier',
            plan.noise_multiplier,
            f'must be 0, or within {_LEAST_NOISE:g} and {_MOST_NOISE:g}, with noise=hardened',
        )


def sensitivity(plan: PlanValues, unrounded: float) -> float:
    """The sensitivity for clip norm 1 with rounding.

    Args:
      plan: of the run.
      unrounded: sensitivity of the mechanism without rounding.

    Returns:
      Infinity where no bound is proven: if the noise is so small that a client moves the run by
      more than `rounding.LARGEST_MU` standard deviations, or grows beyond what float64 holds.
    """
    added = _shift(plan.mechanism, plan.participation.rounds)
    if not added:
        return unrounded
    total = unrounded * (1 + rounding.COEFFICIENTS)
    if not plan.noise_multiplier:
        return total
    total += plan.noise_multiplier * added
    return total if total <= rounding.LARGEST_MU * plan.noise_multiplier else math.inf


def noise_multiplier(plan: PlanValues, mu: float) -> float:
    """The noise multiplier with which a plan reaches `mu`; the plan itself is without noise.

    Raises:
      ValueError: if rounding alone exceeds `mu`.
    """
    added = _shift(plan.mechanism, plan.participation.rounds)
    if not mu > 2 * added:
        raise errors.ArgumentError(
            'mu', f'{mu:g}', f'must be above {2 * added:.3g} with noise=hardened'
        )
    return plan.sensitivity * (1 + rounding.COEFFICIENTS) / (mu - added) * (1 + 1e-12)


def slack(plan: PlanValues, largest_shift: float) -> float:
    """By how much epsilon may exceed that of the Gaussian mechanism: 2 tau of the theorem.

    Args:
      plan: of the run.
      largest_shift: how far a round moves between neighbours, in standard deviations.
    """
    if not math.isfinite(largest_shift):
        return math.inf
    rounds = plan.participation.rounds
    least = STDDEV * _least_stddev(plan.mechanism, rounds)
    reached = rounding.TAIL**2 + (rounding.TAIL + largest_shift) ** 2
    return MOST_COORDINATES * rounds * reached / (24 * least**2) * (1 + 1e-6)


def with_slack(of_gaussian: Callable[[float], Bound], delta: float, slack: float) -> Bound:
    """Epsilon at `delta` of one or several runs, from epsilon of Gaussian mechanisms.

    Args:
      of_gaussian: bound on epsilon of the Gaussian mechanisms, by delta.
      delta: strictly between 0 and 1.
      slack: slack of the run, or the sum of the slacks of several; 0 if all noise is Gaussian.
    """
    if not slack:
        return of_gaussian(delta)
    if delta < _LEAST_DELTA or math.isinf(slack):
        return of_gaussian(delta)._replace(epsilon=math.inf)
    found = of_gaussian(delta * math.exp(-slack) * (1 - _TAILS))
    return found._replace(epsilon=found.epsilon + slack)


def gaussian_target(plan: PlanValues, epsilon: float, delta: float) -> tuple[float, float]:
    """Epsilon and delta of a Gaussian mechanism whose hardened form is (`epsilon`, `delta`)-DP.

    Raises:
      ValueError: if `epsilon` is too small for any noise.
    """
    most = slack(plan, rounding.LARGEST_MU)
    if not epsilon > 2 * most:
        raise errors.ArgumentError(
            'epsilon', epsilon, f'must be above {2 * most:.3g} with noise=hardened'
        )
    return epsilon - most, delta * math.exp(-most) * (1 - _TAILS)


@functools.lru_cache
def _shift(mechanism: mechanisms.Mechanism, rounds: int) -> float:
    return rounding.shift(mechanism.kernel(), rounds, MOST_COORDINATES, STDDEV)


@functools.lru_cache
def _least_stddev(mechanism: mechanisms.Mechanism, rounds: int) -> float:
    return float(rounding.stddevs(mechanism.kernel(), rounds).min())
