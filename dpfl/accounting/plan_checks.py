"""What a privacy plan may hold: the range of each field, and which fields go together."""

from dpfl import _validate, errors
from dpfl.accounting import hardened
from dpfl.accounting.adaptive_clip import AdaptiveClip, update_noise_multiplier
from dpfl.accounting.plan_values import PlanValues
from dpfl.accounting.sampling import rules
from dpfl.mechanisms.base import Mechanism
from dpfl.mechanisms.discretization import Discretization
from dpfl.participation import Participation

ADJACENCIES = ('zero_out', 'replace_one', 'replace_one_half_shift')
SAMPLINGS = ('none', *rules.SAMPLINGS)
_ADJACENCIES_OF_SAMPLING = {
    'none': ('zero_out', 'replace_one'),
    'poisson': ('zero_out', 'replace_one'),
    'cyclic_poisson': ('zero_out',),
    'truncated_poisson': ('zero_out',),
    'without_replacement': ADJACENCIES,
    'balls_in_bins': ('zero_out',),
    'random_allocation': ('zero_out',),
    'b_min_sep': ('zero_out',),
}


def check(plan: PlanValues) -> None:
    """Checks all fields of a plan.

    Raises:
      ValueError: if a field is out of its range, or fields contradict each other.
    """
    _check_types(plan)
    _validate.number('clip_norm', plan.clip_norm, above=0)
    _validate.number('noise_multiplier', plan.noise_multiplier, minimum=0)
    _validate.integer('clients_per_round', plan.clients_per_round, minimum=1)
    _validate.choice('sampling', plan.sampling, SAMPLINGS)
    _validate.choice('adjacency', plan.adjacency, _ADJACENCIES_OF_SAMPLING[plan.sampling])
    _validate.choice('noise', plan.noise, hardened.NOISES)
    _validate.integer('group_size', plan.group_size, minimum=1)
    if plan.participation.rounds > plan.mechanism.rounds:
        raise errors.ArgumentError(
            'rounds',
            plan.participation.rounds,
            f'must be <= {plan.mechanism.rounds}, the rounds that mechanism {plan.mechanism.name} '
            'was made for',
        )
    rules.check(plan)
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


def _check_types(plan: PlanValues) -> None:
    if not isinstance(plan.mechanism, Mechanism):
        raise errors.ArgumentError(
            'mechanism', plan.mechanism, 'must be a mechanism, such as BinaryTree(rounds)'
        )
    if not isinstance(plan.participation, Participation):
        raise errors.ArgumentError(
            'participation', plan.participation, 'must be a Participation(rounds, ...)'
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
        for name in ('sampling', 'adjacency', 'noise', 'group_size'):
            value = getattr(plan, name)
            if getattr(earlier, name) != value:
                raise errors.ArgumentError(
                    name, value, f'must be {getattr(earlier, name)}, as in the earlier run'
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
    for first, norm in plan.clip_schedule:
        _validate.integer('clip_schedule round', first, minimum=before + 1)
        _validate.number('clip_schedule norm', norm, above=0)
        if first < plan.participation.rounds and first not in allowed:
            raise errors.ArgumentError(
                'clip_schedule round',
                first,
                'must be one in which the noise starts afresh, as with a restarted mechanism or '
                'independent noise',
            )
        before = first
