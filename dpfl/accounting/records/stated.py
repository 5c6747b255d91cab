"""Checks the guarantees that a file states against the plan in the same file.

Whoever wrote a report may have written any epsilon into it. The numbers are therefore computed
again from the plan and from what the file says about the log. A number smaller than the computed
one is refused. A larger one promises less, so it is accepted: other versions may have been less
tight. The report that is read has the computed numbers.
"""

import dataclasses
from typing import Any

from dpfl import _validate, errors
from dpfl.accounting import gaussian
from dpfl.accounting.plan import PrivacyPlan
from dpfl.accounting.reports.observed import Guarantee, Observed
from dpfl.accounting.reports.report_values import ReportValues
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


def observed(values: Any, plan: PrivacyPlan) -> Observed | None:
    """What a file states about the participation log; None if it states nothing.

    Raises:
      ValueError: if `values` are not of that form, or state no violation though their limits or
        counts break the plan. Only the log can tell whether it keeps these limits.
    """
    if values is None:
        return None
    if not isinstance(values, dict):
        raise errors.ArgumentError('observed', values, 'must be an object or null')
    numbers = {
        name: _validate.integer(name, values[name], minimum=0)
        for name in ('clients', 'smallest_cohort', 'largest_cohort')
    }
    seen = Observed(
        limits=Participation(**{name: values['patterns'][name] for name in _COUNTS}),
        max_per_round=_validate.integer('max_per_round', values.get('max_per_round', 1), minimum=1),
        pattern_sensitivity=_validate.number(
            'observed.patterns.sensitivity', values['patterns']['sensitivity'], minimum=0
        ),
        pattern_is_exact=_validate.truth(
            'observed.patterns.sensitivity_is_exact', values['patterns']['sensitivity_is_exact']
        ),
        clients_by_participations=_pairs(values['clients_by_participations']),
        violations=texts('violations', values['violations']),
        **numbers,
    )
    _check_counts(seen)
    if not seen.violations and seen.breaks(plan):
        raise errors.ArgumentError(
            'observed.violations', '[]', 'must say how the limits break the plan'
        )
    return seen


def _check_counts(seen: Observed) -> None:
    """Checks that the counts of a log agree with each other and with its limits."""
    times = [times for times, _ in seen.clients_by_participations]
    total = sum(times * clients for times, clients in seen.clients_by_participations)
    listed = seen.limits.count * seen.max_per_round
    for name, holds in (
        ('smallest_cohort', seen.smallest_cohort <= seen.largest_cohort),
        ('clients', seen.clients == sum(clients for _, clients in seen.clients_by_participations)),
        ('clients_by_participations', all(0 < each <= listed for each in times)),
        ('clients_by_participations', max(times, default=1) >= seen.limits.count),
        ('clients_by_participations', total >= seen.rounds * seen.smallest_cohort),
        ('clients_by_participations', total <= seen.rounds * seen.largest_cohort),
        ('patterns.sensitivity', seen.pattern_sensitivity > 0 or not seen.clients),
    ):
        if not holds:
            raise errors.ArgumentError(
                f'observed.{name}', errors.NOT_SHOWN, 'must agree with the other counts of the log'
            )


def check(values: dict[str, Any], report: ReportValues) -> None:
    """Checks the numbers that a file states against those of a report, which are computed.

    Raises:
      ValueError: if a number is missing, not a number, or promises more than was computed.
    """
    _check_guarantee('plan_guarantee', values['plan_guarantee'], report.plan_guarantee)
    if report.observed is not None:
        for name, computed in (
            ('guarantee', report.observed_guarantee),
            ('patterns', report.pattern_guarantee),
        ):
            assert computed is not None
            _check_guarantee(f'observed.{name}', values['observed'][name], computed)
            stated = values['observed'][name]['sensitivity']
            if report.observed.violations and stated > computed.sensitivity * (1 + _TOLERANCE):
                # A client counted several times in one round, in a file that does not say so.
                raise errors.ArgumentError(
                    f'observed.{name}.sensitivity', stated, f'must be {computed.sensitivity}'
                )
    if values['basis'] != report.basis:
        raise errors.ArgumentError('basis', values['basis'], f'must be {report.basis}')
    first = report.guarantee
    numbers = dict(sensitivity=first.sensitivity, rho=first.rho, mu=first.mu)
    for name, least in (numbers | {'epsilon': first.epsilons[0]}).items():
        was = values[name]
        was = was if was is None else _validate.number(name, was, minimum=0)
        _require_number(name, was, least)
    _so_far(values.get('epsilons_so_far'), report.so_far)
    if report.tradeoff is not None:
        _tradeoff(values, report.tradeoff)
    if report.selected is not None:
        _selected(values['selection'], report.selected)


def _check_guarantee(name: str, values: Any, computed: Guarantee) -> None:
    found = _read(name, values, len(computed.epsilons))
    for field in _COUNTS:
        if getattr(found, field) != getattr(computed, field):
            raise errors.ArgumentError(
                f'{name}.{field}',
                getattr(found, field),
                f'must be {getattr(computed, field)}, as in the plan and its log',
            )
    _require_not_below(name, found, computed)


def _so_far(values: Any, computed: tuple[float | None, ...] | None) -> None:
    """Checks the epsilons that a file states for the rounds so far."""
    if values is None and computed is None:
        return
    if computed is None or not isinstance(values, list) or len(values) != len(computed):
        raise errors.ArgumentError('epsilons_so_far', values, 'must fit plan, log and deltas')
    for stated, epsilon in zip(values, computed, strict=True):
        if epsilon is None and stated is None:
            continue
        number = _validate.number('epsilons_so_far', stated, minimum=0)
        if epsilon is None or number < epsilon * (1 - _TOLERANCE):
            raise errors.ArgumentError('epsilons_so_far', stated, f'must be >= {epsilon}')


def _tradeoff(values: dict[str, Any], computed: Tradeoff) -> None:
    """Checks the trade-off curve that a file states.

    It must have the form of `Tradeoff.to_dict`, for the usual rates.
    """
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


def _selected(values: Any, computed: Selected) -> None:
    """Checks the guarantee of the best of several runs that a file states.

    It must have the form of `Selected.to_dict`.
    """
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
        _require_number(f'{name}.{field}', was, least)


def _require_number(name: str, was: float | None, least: float | None) -> None:
    """Checks that a number promises no more than was computed; None promises nothing."""
    if was is not None and (least is None or was < least * (1 - _TOLERANCE)):
        raise errors.ArgumentError(name, was, f'must be at least {least}, as follows from the plan')


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
