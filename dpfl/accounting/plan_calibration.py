"""The noise with which a privacy plan meets a target epsilon."""

import dataclasses
import math
from typing import TypeVar

from dpfl import _validate, errors
from dpfl.accounting import before_training, calibration, gaussian, hardened
from dpfl.accounting.plan_values import PlanValues

_P = TypeVar('_P', bound=PlanValues)


def calibrated(plan: _P, epsilon: float, delta: float, accountant: str) -> _P:
    """The plan with the least noise multiplier that is (`epsilon`, `delta`)-DP.

    Args:
      plan: without noise.
      epsilon: target, above 0.
      delta: strictly between 0 and 1.
      accountant: the method that shows that the target is met.

    Raises:
      ValueError: if an argument is out of its range, or no noise meets the target.
    """

    def with_noise(noise_multiplier: float) -> _P:
        return dataclasses.replace(plan, noise_multiplier=noise_multiplier)

    if plan.sampling is not None:
        plan.check_accountant(accountant)
        if plan.has_own_bound:
            own = plan.sampling.noise_for(plan, epsilon, delta)
            if own is not None:
                return with_noise(own)
        return with_noise(
            calibration.least_noise_multiplier(
                lambda noise: with_noise(noise).epsilon(delta, accountant),
                epsilon,
                plan.sensitivity,
                delta,
                accountant,
            )
        )
    _validate.number('delta', delta, above=0, below=1)
    left = before_training.left(delta, plan.delta_before)
    if not left:
        raise errors.ArgumentError(
            'delta',
            delta,
            f'must be above {plan.delta_before:g}, which releases before training take of it',
        )
    if plan.noise == 'hardened':
        target = hardened.gaussian_target(plan, epsilon, delta)
        mu = calibration.mu_from_epsilon(*target, accountant)
        plan = with_noise(hardened.noise_multiplier(plan, mu))
    else:
        mu = _left(plan, epsilon, left, accountant)
        plan = with_noise(plan.sensitivity / mu)
    while plan.epsilon(delta, accountant) > epsilon:  # The division may round down.
        plan = with_noise(math.nextafter(plan.noise_multiplier, math.inf) * (1 + 1e-15))
    return plan


def _left(plan: PlanValues, epsilon: float, delta: float, accountant: str) -> float:
    """What is left of the mu of a target, for a plan without sampling.

    Earlier runs and releases before training take the rest.

    Raises:
      ValueError: if they leave nothing.
    """
    taken = sum((each.mu or 0.0) ** 2 for each in plan.earlier)
    taken += sum(each.mu(plan.neighbours) ** 2 for each in plan.before)
    left = calibration.mu_from_epsilon(epsilon, delta, accountant) ** 2 - taken
    if left <= 0:
        whose = 'earlier runs' if plan.earlier else 'releases before training'
        least = math.inf
        if math.isfinite(taken):
            least = gaussian.epsilon_from_mu(math.sqrt(taken), delta, accountant)
        raise errors.ArgumentError(
            'epsilon', epsilon, f'must be above {least:.4g}, that of the {whose} alone'
        )
    return math.sqrt(left)
