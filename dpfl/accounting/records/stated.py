"""Checks the guarantees that a file states against the plan in the same file.

Whoever wrote a report may have written any epsilon into it. The numbers are therefore computed
again from the plan and from the limits of participation that the file names. A number smaller than
the computed one is refused. A larger one promises less, so it is accepted: other versions may have
been less tight.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from dpfl import _validate, errors
from dpfl.accounting import gaussian
from dpfl.accounting.plan import PrivacyPlan
from dpfl.accounting.reports.observed import Guarantee, Observed
from dpfl.accounting.selection import Selected
from dpfl.accounting.tradeoff import Tradeoff
from dpfl.participation import Participation

# Relative: other releases of the numerical libraries may differ in the last digits.
_TOLERANCE = 1e-6
_COUNTS = ('rounds', 'min_separation', 'max_participations')
# Older versions did not say which accountant showed each epsilon.
_FIELDS = {field.name for field in dataclasses.fields(Guarantee)} - {'accountants'}


def deltas(values: Any) -> tuple[float, ...]:
    """Returns `values` as a tuple; raises ValueError unless they are numbers within (0, 1)."""
    if not isinstance(values, (list, tuple)) or not values:
        raise errors.ArgumentError('deltas', values, 'must be a list of numbers')
    return tuple(_validate.number('delta', delta, above=0, below=1) for delta in values)


def texts(name: str, values: Any) -> tuple[str, ...]:
    """Returns `values` as a tuple; raises ValueError unless they are a list of texts."""
    if not isinstance(values, (list, tuple)) or not all(isinstance(v, str) for v in values):
        raise errors.ArgumentError(name, values, 'must be a list of texts')
    return tuple(values)


def guarantee(
    name: str, values: Any, plan: PrivacyPlan, deltas: Sequence[float], accountant: str
) -> Guarantee:
    """The guarantee of a plan that a file states under `name`.

    Raises:
      ValueError: if `values` are no guarantee, or promise more than follows from the plan.
    """
    found = _read(name, values, len(deltas))
    computed = Guarantee.of(plan, deltas, accountant)
    for field in _COUNTS:
        if getattr(found, field) != getattr(computed, field):
            raise errors.ArgumentError(
                f'{name}.{field}',
                getattr(found, field),
                f'must be {getattr(computed, field)}, as in the plan',
            )
    _require_not_below(name, found, computed)
    return found


def so_far(values: Any, computed: tuple[float | None, ...] | None) -> None:
    """Checks the epsilons that a file states for the rounds so far.

    Raises:
      ValueError: if there are none, or one is below the computed one.
    """
    if computed is None or not isinstance(values, list) or len(values) != len(computed):
        raise errors.ArgumentError('epsilons_so_far', values, 'must fit plan, log and deltas')
    for stated, epsilon in zip(values, computed, strict=True):
        if epsilon is None and stated is None:
            continue
        number = _validate.number('epsilons_so_far', stated, minimum=0)
        if epsilon is None or number < epsilon * (1 - _TOLERANCE):
            raise errors.ArgumentError('epsilons_so_far', stated, f'must be >= {epsilon}')


def observed(
    values: Any, plan: PrivacyPlan, deltas: Sequence[float], accountant: str
) -> Observed | None:
    """What a file states about the participation log; None if it states nothing.

    Raises:
      ValueError: if `values` are not of that form, or promise more than follows from the plan and
        the limits that they name. Only the log can tell whether it keeps these limits.
    """
    if values is None:
        return None
    if not isinstance(values, dict):
        raise errors.ArgumentError('observed', values, 'must be an object or null')
    holds = _read('observed.guarantee', values['guarantee'], len(deltas))
    patterns = _read('observed.patterns', values['patterns'], len(deltas))
    limits = Participation(holds.rounds, holds.min_separation, holds.max_participations)
    plain = plan.without_sampling(limits)
    method = accountant if accountant in plain.accountants else 'pld'
    if plan.sampling != 'none' and holds.mu is None and holds.rho is None:
        schema = dataclasses.replace(plan.participation, rounds=holds.rounds)
        computed = Guarantee.of(plan.with_participation(schema), deltas, accountant)
    else:
        computed = Guarantee.of(plain, deltas, method)
    _require_not_below('observed.guarantee', holds, computed)
    # A report does not hold the rounds of each client: their sensitivity is taken as stated.
    _require_not_below(
        'observed.patterns',
        patterns,
        computed.with_sensitivity(
            patterns.sensitivity, patterns.sensitivity_is_exact, plain, deltas, method
        ),
    )
    violations = texts('violations', values['violations'])
    if not violations and _breaks(holds, plan):
        raise errors.ArgumentError(
            'observed.violations', '[]', 'must say how the limits break the plan'
        )
    return Observed(
        **{
            **values,
            **{
                name: _validate.integer(name, values[name], minimum=0)
                for name in ('clients', 'smallest_cohort', 'largest_cohort')
            },
            'guarantee': holds,
            'patterns': patterns,
            'clients_by_participations': _pairs(values['clients_by_participations']),
            'violations': violations,
        }
    )


def tradeoff(values: dict[str, Any], computed: Tradeoff | None) -> None:
    """Checks the trade-off curve that a file states.

    Raises:
      ValueError: if it is not of the form of `Tradeoff.to_dict`, for the usual rates, or promises
        more than was computed.
    """
    assert computed is not None
    expected = computed.to_dict()
    pairs = [('membership.advantage', values['membership']['advantage'], computed.advantage)]
    if [point['fpr'] for point in values['tradeoff']] != [rate for rate, _ in computed.points]:
        raise errors.ArgumentError(
            'tradeoff', errors.NOT_SHOWN, 'must have the false positive rates of a report'
        )
    for found, least in zip(values['tradeoff'], expected['tradeoff'], strict=True):
        pairs.append(('tradeoff.tpr', found['tpr'], least['tpr']))
    for name, was, lowest in pairs:
        if not _validate.number(name, was, minimum=0, maximum=1) >= lowest * (1 - _TOLERANCE):
            raise errors.ArgumentError(
                name, was, f'must be at least {lowest}, as follows from the plan'
            )


def selected(values: Any, computed: Selected | None) -> None:
    """Checks the guarantee of the best of several runs that a file states.

    Raises:
      ValueError: if it is not of the form of `Selected.to_dict`, or promises more than was
        computed.
    """
    assert computed is not None
    found = values['epsilons']
    if not isinstance(found, list) or len(found) != len(computed.epsilons):
        raise errors.ArgumentError(
            'selection.epsilons',
            errors.NOT_SHOWN,
            f'must be a list of {len(computed.epsilons)} numbers',
        )
    for was, least in zip(found, computed.epsilons, strict=True):
        # None means no guarantee, which promises nothing.
        if was is not None and not (
            _validate.number('selection.epsilons', was, minimum=0) >= least * (1 - _TOLERANCE)
        ):
            raise errors.ArgumentError(
                'selection.epsilons', was, f'must be at least {least}, as follows from the plan'
            )


def _read(name: str, values: Any, num_deltas: int) -> Guarantee:
    """A guarantee with numbers of the right types; their sizes are not checked."""
    if not isinstance(values, dict) or not _FIELDS <= values.keys():
        raise errors.ArgumentError(
            name, errors.NOT_SHOWN, f'must have {", ".join(sorted(_FIELDS))}'
        )
    for field in _COUNTS:
        _validate.integer(f'{name}.{field}', values[field], minimum=1)
    _validate.number(f'{name}.sensitivity', values['sensitivity'], minimum=0)
    _validate.truth(f'{name}.sensitivity_is_exact', values['sensitivity_is_exact'])
    epsilons = values['epsilons']
    if not isinstance(epsilons, (list, tuple)) or len(epsilons) != num_deltas:
        raise errors.ArgumentError(
            f'{name}.epsilons', errors.NOT_SHOWN, f'must be a list of {num_deltas} numbers'
        )
    for field, value in (
        ('rho', values['rho']),
        ('mu', values['mu']),
        *(('epsilons', each) for each in epsilons),
    ):
        if value is not None:
            _validate.number(f'{name}.{field}', value, minimum=0)
    accountants = texts(f'{name}.accountants', values.get('accountants', ()))
    if accountants and len(accountants) != num_deltas:
        raise errors.ArgumentError(
            f'{name}.accountants', errors.NOT_SHOWN, f'must be a list of {num_deltas} texts'
        )
    for accountant in accountants:
        # 'best' is a choice among the others: one of them showed the number.
        allowed = [each for each in (*gaussian.ACCOUNTANTS, 'monte_carlo') if each != 'best']
        _validate.choice(f'{name}.accountants', accountant, allowed)
    return Guarantee(**{**values, 'epsilons': tuple(epsilons), 'accountants': accountants})


def _require_not_below(name: str, found: Guarantee, computed: Guarantee) -> None:
    pairs = [
        (field, getattr(found, field), getattr(computed, field))
        for field in ('sensitivity', 'rho', 'mu')
    ]
    pairs += (('epsilons', *both) for both in zip(found.epsilons, computed.epsilons, strict=True))
    for field, was, least in pairs:
        # None means no guarantee, which promises nothing.
        if was is not None and (least is None or was < least * (1 - _TOLERANCE)):
            raise errors.ArgumentError(
                f'{name}.{field}', was, f'must be at least {least}, as follows from the plan'
            )


def _breaks(holds: Guarantee, plan: PrivacyPlan) -> bool:
    """Whether limits of participation are wider than those of the plan."""
    planned = plan.participation
    return (
        holds.rounds > planned.rounds
        or holds.max_participations > planned.count
        or (holds.max_participations > 1 and holds.min_separation < planned.min_separation)
    )


def _pairs(values: Any) -> tuple[tuple[int, int], ...]:
    if not isinstance(values, (list, tuple)):
        raise errors.ArgumentError(
            'clients_by_participations', errors.NOT_SHOWN, 'must be a list of pairs of integers'
        )
    pairs = tuple(map(tuple, values))
    for pair in pairs:
        if len(pair) != 2:
            raise errors.ArgumentError(
                'clients_by_participations', errors.NOT_SHOWN, 'must be a list of pairs of integers'
            )
        for number in pair:
            _validate.integer('clients_by_participations', number, minimum=0)
    return pairs
