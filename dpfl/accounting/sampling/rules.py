"""What a privacy plan must be like for each sampling."""

from dpfl import _validate, errors
from dpfl.accounting.plan_values import PlanValues
from dpfl.accounting.sampling import bins, cyclic, estimates, separated

# Samplings that a guarantee may rely on.
SAMPLINGS = (
    'poisson',
    'cyclic_poisson',
    'truncated_poisson',
    'without_replacement',
    *estimates.SAMPLINGS,
)
# Fields that belong to some samplings.
_FIELDS = {
    'groups': ('cyclic_poisson', *estimates.SAMPLINGS),
    'cohort_cap': ('truncated_poisson',),
}
# Samplings whose guarantee is shown for one client only. With cyclic Poisson sampling, members of
# different groups share rows of the strategy, so that their turns do not compose.
_OF_ONE_CLIENT = ('cyclic_poisson', 'truncated_poisson', *estimates.SAMPLINGS)


def check(plan: PlanValues) -> None:
    """Checks the fields of a plan that belong to its sampling.

    Raises:
      ArgumentError: if a field is missing, not allowed, or contradicts another one.
    """
    for name, samplings in _FIELDS.items():
        value = getattr(plan, name)
        if plan.sampling not in samplings and value is not None:
            raise errors.ArgumentError(name, value, f'must be None with sampling={plan.sampling}')
    if plan.sampling == 'none':
        if plan.population is not None:
            raise errors.ArgumentError(
                'population', plan.population, 'must be None without sampling'
            )
        return
    if plan.group_size > 1 and plan.sampling in _OF_ONE_CLIENT:
        raise errors.ArgumentError(
            'group_size', plan.group_size, f'must be 1 with sampling={plan.sampling}'
        )
    _validate.integer('population', plan.population, minimum=plan.clients_per_round)
    if plan.sampling == 'cyclic_poisson':
        _check_groups(plan)
        return
    if plan.sampling == separated.SAMPLING:
        _check_groups(plan)
        _check_estimated(plan)
        return
    if plan.sampling in bins.SAMPLINGS:
        _check_bins(plan)
        return
    if not plan.mechanism.is_independent:
        raise errors.ArgumentError(
            'sampling',
            plan.sampling,
            'must be none, or cyclic_poisson, with correlated noise (mechanism '
            f'{plan.mechanism.name})',
        )
    if plan.sampling == 'truncated_poisson':
        _validate.integer('cohort_cap', plan.cohort_cap, minimum=1, maximum=plan.population)
        if plan.noise == 'hardened':
            raise errors.ArgumentError(
                'noise', plan.noise, 'must be default with sampling=truncated_poisson'
            )
    _require_every_pattern(plan, 1)


def _check_groups(plan: PlanValues) -> None:
    groups = _validate.integer('groups', plan.groups, minimum=1)
    assert plan.population is not None  # As checked before.
    if plan.clients_per_round * groups > plan.population:
        raise errors.ArgumentError(
            'population',
            plan.population,
            f'must be at least {plan.clients_per_round * groups}, {groups} groups of '
            f'clients_per_round={plan.clients_per_round}',
        )
    mechanism = plan.mechanism.with_rounds(plan.participation.rounds)
    bands = cyclic.bands(mechanism, plan.sampling)
    if groups < bands:
        raise errors.ArgumentError(
            'groups',
            groups,
            f'must be at least {bands}, the bands of the strategy of mechanism '
            f'{plan.mechanism.name}',
        )
    if plan.noise == 'hardened' and not plan.mechanism.is_independent:
        # Its rounding is only bounded for the run as a whole.
        raise errors.ArgumentError(
            'noise',
            plan.noise,
            f'must be default for correlated noise with {plan.sampling}',
        )
    _require_every_pattern(plan, groups)


def _check_bins(plan: PlanValues) -> None:
    groups = _validate.integer('groups', plan.groups, minimum=1)
    assert plan.population is not None  # As checked before.
    if abs(plan.clients_per_round * groups - plan.population) >= groups:
        raise errors.ArgumentError(
            'population',
            plan.population,
            f'must be about {plan.clients_per_round * groups}, {groups} groups of '
            f'clients_per_round={plan.clients_per_round}, with sampling={plan.sampling}',
        )
    if plan.mechanism.forest() is not None:
        raise errors.ArgumentError(
            'mechanism', plan.mechanism.name, f'cannot be a tree with sampling={plan.sampling}'
        )
    _check_estimated(plan)
    passes = -(-plan.participation.rounds // groups)
    if plan.sampling == 'random_allocation':
        _require_every_pattern(plan, 1, passes)
    else:
        _require_every_pattern(plan, groups)


def _check_estimated(plan: PlanValues) -> None:
    if plan.noise == 'hardened':
        raise errors.ArgumentError(
            'noise', plan.noise, f'must be default with sampling={plan.sampling}'
        )
    if plan.earlier:
        raise errors.ArgumentError(
            'earlier', errors.NOT_SHOWN, f'must be empty with sampling={plan.sampling}'
        )
    if plan.before:
        names = ' and '.join(each.name for each in plan.before)
        raise errors.ArgumentError(
            'sampling',
            plan.sampling,
            f'has a guarantee that is estimated, which cannot be composed with {names}',
        )


def _require_every_pattern(plan: PlanValues, apart: int, most: int | None = None) -> None:
    """Checks that the schema admits every cohort.

    Clients return after `apart` rounds, and at most so many times, if `most` is given.
    """
    schema = plan.participation
    if schema.min_separation > apart:
        raise errors.ArgumentError(
            'min_separation',
            schema.min_separation,
            f'must be {"1" if apart == 1 else f"at most {apart}"} with sampling={plan.sampling}, '
            f'which may choose a client again after {apart} round{"s" if apart > 1 else ""}',
        )
    turns = -(-schema.rounds // apart) if most is None else most
    if schema.count < turns:
        raise errors.ArgumentError(
            'max_participations',
            schema.max_participations,
            f'must be the number of {"rounds" if turns == schema.rounds else f"turns, {turns}"}, '
            f'or not be given, with sampling={plan.sampling}',
        )
