"""The noise with which a privacy plan matches another mechanism; see `noise_match`."""

import dataclasses
import math
from typing import TypeVar

from dpfl import _validate, errors, mechanisms
from dpfl.accounting.noise_match import NoiseMatch
from dpfl.accounting.plan import PrivacyPlan

_P = TypeVar('_P', bound=PrivacyPlan)


def reference(
    plan: PrivacyPlan,
    mechanism: mechanisms.Mechanism,
    noise_multiplier: float,
    *,
    quantity: str,
    rounds: int,
    momentum: float = 0.0,
) -> NoiseMatch:
    """The match with a mechanism and its noise multiplier.

    Args:
      plan: the plan that is to get the noise; its schema, adjacency and rounding count for rho.
      mechanism: the other mechanism, over exactly `rounds` rounds.
      noise_multiplier: its noise multiplier, above 0.
      quantity, rounds, momentum: as in `NoiseMatch`.

    Raises:
      ArgumentError: if a value is out of its range, or the plan has no rho.
    """
    _validate.number('noise_multiplier', noise_multiplier, above=0)
    if quantity == 'rho':
        other = dataclasses.replace(
            _stopped(plan, rounds), mechanism=mechanism, noise_multiplier=noise_multiplier
        )
        value = _rho(other)
    else:
        value = noise_multiplier * error(mechanism, quantity, rounds, momentum)
    return NoiseMatch(
        quantity=quantity,
        rounds=rounds,
        value=value,
        mechanism=mechanism.name,
        mechanism_digest=mechanism.digest(),
        noise_multiplier=noise_multiplier,
        momentum=momentum,
    )


def error(
    mechanism: mechanisms.Mechanism, quantity: str, rounds: int, momentum: float = 0.0
) -> float:
    """The quantity 'rmse' or 'prefix_noise' of a mechanism for noise multiplier 1.

    Raises:
      ArgumentError: if the mechanism has fewer rounds, or a value is out of its range.
    """
    _validate.integer('rounds', rounds, minimum=1, maximum=mechanism.rounds)
    workload = mechanisms.workload.momentum(mechanism.rounds, momentum) if momentum else None
    squared = mechanism.squared_error(workload)[:rounds]
    return math.sqrt(squared.mean() if quantity == 'rmse' else squared[-1])


def matched(plan: _P, match: NoiseMatch) -> _P:
    """The plan with the noise multiplier that gives the matched value.

    For rho it is the least with which rho is not above the value.

    Args:
      plan: without noise, over at least as many rounds as the match.
      match: what is matched.

    Raises:
      ArgumentError: if the plan has fewer rounds than the match, has no rho to match, or has noise
        that changes with the clip norm or with weights.
    """
    for name, is_plain in (
        ('adaptive_clip', plan.adaptive_clip is None),
        ('clip_schedule', not plan.clip_schedule),
        ('estimator', plan.estimator.kind == 'fixed'),
    ):
        if not is_plain:
            raise errors.ArgumentError(name, errors.NOT_SHOWN, 'cannot be combined with match')
    if match.rounds > plan.participation.rounds:
        raise errors.ArgumentError(
            'rounds', match.rounds, f'must be <= {plan.participation.rounds}, those of the plan'
        )
    if match.quantity != 'rho':
        found = match.value / error(plan.mechanism, match.quantity, match.rounds, match.momentum)
        return dataclasses.replace(plan, noise_multiplier=found, noise_match=match)
    stopped = _stopped(plan, match.rounds)
    found = stopped.noise_of_mu(math.sqrt(2 * match.value))
    while _rho(dataclasses.replace(stopped, noise_multiplier=found)) > match.value:
        found = math.nextafter(found, math.inf) * (1 + 1e-15)  # Root or quotient was rounded down.
    return dataclasses.replace(plan, noise_multiplier=found, noise_match=match)


def _stopped(plan: _P, rounds: int) -> _P:
    """The plan of a run that stops after so many rounds."""
    if plan.sampling is not None:
        raise errors.ArgumentError(
            'sampling',
            plan.sampling.name,
            'must be none to match rho, which a sampled plan has not',
        )
    if plan.earlier:
        # No noise of this run takes away what the runs before it have released.
        raise errors.ArgumentError(
            'earlier', errors.NOT_SHOWN, 'cannot be combined with match=rho: it would count them'
        )
    if plan.before:
        raise errors.ArgumentError(
            'before', errors.NOT_SHOWN, 'cannot be combined with match=rho: it would count them'
        )
    return dataclasses.replace(plan, participation=plan.participation.within(rounds))


def _rho(plan: PrivacyPlan) -> float:
    assert plan.rho is not None  # `_stopped` refuses plans with sampling.
    return plan.rho
