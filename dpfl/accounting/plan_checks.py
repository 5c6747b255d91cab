"""What a privacy plan may hold: the range of each field, and which fields go together."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from dpfl import _validate, errors
from dpfl.accounting import hardened
from dpfl.accounting.adaptive_clip import AdaptiveClip, update_noise_multiplier
from dpfl.accounting.before_training import ReleaseBefore
from dpfl.accounting.estimator import Estimator
from dpfl.accounting.noise_match import NoiseMatch
from dpfl.accounting.plan_values import PlanValues
from dpfl.accounting.sampling.base import MOST_CLIENTS, Sampling
from dpfl.mechanisms.base import Mechanism
from dpfl.mechanisms.discretization import Discretization
from dpfl.participation import Participation

ADJACENCIES = ('zero_out', 'replace_one', 'replace_one_half_shift')
# Without sampling.
_ADJACENCIES = ('zero_out', 'replace_one')


def _part(kind: type, *others: Any, text: str = '') -> Callable[[str, Any], None]:
    """A check that a value is of a type, or one of `others`."""
    allowed = text or ' or '.join(['must be of type ' + kind.__name__, *map(str, others)])

    def check(name: str, value: Any) -> None:
        if not isinstance(value, kind) and not any(value is other for other in others):
            raise errors.ArgumentError(name, value, allowed)

    return check


def _tuple_of(kind: type, entries: str) -> Callable[[str, Any], None]:
    """A check that a value is a tuple with entries of a type."""

    def check(name: str, value: Any) -> None:
        if not isinstance(value, tuple) or not all(isinstance(entry, kind) for entry in value):
            raise errors.ArgumentError(name, value, f'must be a tuple of {entries}')

    return check


_clients = functools.partial(_validate.integer, minimum=1, maximum=MOST_CLIENTS)
_scale = functools.partial(
    _validate.number, minimum=_validate.LEAST_SCALE, maximum=_validate.MOST_SCALE
)
# The check of each field, which raises ArgumentError.
_CHECKS: dict[str, Callable[[str, Any], object]] = {
    'mechanism': _part(Mechanism, text='must be a mechanism, such as BinaryTree(rounds)'),
    'participation': _part(Participation, text='must be a Participation(rounds, ...)'),
    'clip_norm': _scale,
    'noise_multiplier': _validate.noise_multiplier,
    'clients_per_round': _clients,
    'sampling': _part(Sampling, None, text='must be a sampling, such as Poisson(population=1000)'),
    'adjacency': functools.partial(_validate.choice, allowed=ADJACENCIES),
    'discretization': _part(Discretization, None),
    'adaptive_clip': _part(AdaptiveClip, None),
    'clip_schedule': _tuple_of(tuple, 'pairs of a round and a clip norm'),
    'estimator': _part(Estimator),
    'noise': functools.partial(_validate.choice, allowed=hardened.NOISES),
    'earlier': _tuple_of(PlanValues, 'plans'),
    'noise_match': _part(NoiseMatch, None),
    'group_size': _clients,
    'before': _tuple_of(ReleaseBefore, 'ReleaseBefore'),
}


def check(plan: PlanValues) -> None:
    """Checks all fields of a plan.

    Numbers of NumPy become those of Python, which JSON can hold; a whole number of clients becomes
    an integer.

    Raises:
      ArgumentError: if a field is out of its range, or fields contradict each other.
    """
    for field in dataclasses.fields(PlanValues):
        value = getattr(plan, field.name)
        if isinstance(value, np.generic):
            value = value.item()
            object.__setattr__(plan, field.name, value)
        if field.name == 'clients_per_round' and isinstance(value, float) and value.is_integer():
            value = int(value)
            object.__setattr__(plan, field.name, value)
        _CHECKS[field.name](field.name, value)
    allowed = _ADJACENCIES if plan.sampling is None else plan.sampling.adjacencies
    _validate.choice('adjacency', plan.adjacency, allowed)
    _check_stddev('clip_norm', plan.clip_norm, plan)
    if plan.participation.rounds > plan.mechanism.rounds:
        raise errors.ArgumentError(
            'rounds',
            plan.participation.rounds,
            f'must be <= {plan.mechanism.rounds}, the rounds that mechanism {plan.mechanism.name} '
            'was made for',
        )
    if plan.sampling is not None:
        plan.sampling.check(plan)
    if plan.discretization:
        _check_discretization(plan, plan.discretization)
    if plan.adaptive_clip:
        _check_adaptive_clip(plan, plan.adaptive_clip)
    if plan.clip_schedule:
        _check_clip_schedule(plan)
    if plan.noise == 'hardened':
        hardened.check(plan)
    if plan.earlier:
        _check_earlier(plan)
    if plan.before:
        _check_before(plan)


def _check_stddev(name: str, clip_norm: float, plan: PlanValues) -> None:
    """The standard deviation of the noise is a float32 with room for many of them."""
    stddev = clip_norm * plan.noise_multiplier
    if plan.noise_multiplier and not _validate.LEAST_SCALE <= stddev <= _validate.MOST_SCALE:
        raise errors.ArgumentError(
            name,
            clip_norm,
            f'its product with noise_multiplier={plan.noise_multiplier} must be within '
            f'[{_validate.LEAST_SCALE:g}, {_validate.MOST_SCALE:g}]',
        )


def _check_discretization(plan: PlanValues, discretization: Discretization) -> None:
    norm = discretization.clip_norm
    if norm != plan.clip_norm:
        raise errors.ArgumentError(
            'clip_norm', plan.clip_norm, f"must equal the discretization's clip norm, {norm}"
        )
    if plan.estimator.kind != 'fixed':
        # Rounding inflates each update by the same, however small its weight.
        raise errors.ArgumentError(
            'estimator', plan.estimator.kind, 'must be fixed with a discretization'
        )


def _check_earlier(plan: PlanValues) -> None:
    """The plans that are composed must have the same neighbours, and Gaussian noise."""
    for earlier in plan.earlier:
        if earlier.earlier:
            raise errors.ArgumentError('earlier', errors.NOT_SHOWN, 'must be a flat list of plans')
        for name in ('sampling_name', 'adjacency', 'noise', 'group_size'):
            value, same = getattr(plan, name), getattr(earlier, name)
            if same != value:
                raise errors.ArgumentError(
                    name.removesuffix('_name'), value, f'must be {same}, as in the earlier run'
                )
    if plan.noise == 'hardened':
        raise errors.ArgumentError('noise', plan.noise, 'must be default after an earlier run')


def _check_before(plan: PlanValues) -> None:
    """Releases before training have Gaussian noise; a threshold hides the words of one client."""
    names = ' and '.join(each.name for each in plan.before)
    if plan.noise == 'hardened':
        raise errors.ArgumentError('noise', plan.noise, f'must be default with {names}')
    if plan.group_size > 1 and any(each.delta for each in plan.before):
        raise errors.ArgumentError('group_size', plan.group_size, f'must be 1 with {names}')


def _check_adaptive_clip(plan: PlanValues, adaptive_clip: AdaptiveClip) -> None:
    if not plan.mechanism.starts_afresh:
        raise errors.ArgumentError(
            'mechanism',
            plan.mechanism.name,
            'must be restarted with adaptive_clip, or independent noise: the clip norm can only '
            'change where the noise starts afresh',
        )
    # Refuses counts with too little noise.
    update_noise_multiplier(plan.noise_multiplier, adaptive_clip.stddev(plan.clients_per_round))


def _check_clip_schedule(plan: PlanValues) -> None:
    if plan.adaptive_clip:
        raise errors.ArgumentError(
            'clip_schedule', errors.NOT_SHOWN, 'must be empty with adaptive_clip'
        )
    allowed, before = set(plan.fresh_rounds), 0
    for change in plan.clip_schedule:
        if len(change) != 2:
            raise errors.ArgumentError(
                'clip_schedule', plan.clip_schedule, 'must be pairs of a round and a clip norm'
            )
        first, norm = change
        _validate.integer('clip_schedule round', first, minimum=before + 1)
        _scale('clip_schedule norm', norm)
        _check_stddev('clip_schedule norm', norm, plan)
        if first < plan.participation.rounds and first not in allowed:
            raise errors.ArgumentError(
                'clip_schedule round',
                first,
                'must be one in which the noise starts afresh, as with a restarted mechanism or '
                'independent noise',
            )
        before = first
