"""Checks what a report states against the plan in the same file.

Whoever wrote a report may have written anything into it. Every key is therefore computed again from
the plan and from what the file says about the log, and compared. A larger epsilon promises less, so
it is accepted: other versions may have been less tight. The words of an older version cannot be
computed here; they are not believed. The report that is read has computed numbers and words.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dpfl import _json, _validate, errors
from dpfl.accounting import gaussian
from dpfl.accounting.plan import PrivacyPlan
from dpfl.accounting.records import comparison
from dpfl.accounting.reports import noise_keys
from dpfl.accounting.reports.about import About
from dpfl.accounting.reports.observed import Observed
from dpfl.mechanisms import rounding
from dpfl.participation import Participation

_COUNTS = ('rounds', 'min_separation', 'max_participations')
# Upper bounds: a larger one promises less.
_BOUNDS = frozenset(
    {'epsilon', 'epsilons', 'epsilons_so_far', 'epsilon_claimed', 'tpr', 'advantage'}
)
# 'best' is a choice among the others.
_ACCOUNTANTS = {*gaussian.ACCOUNTANTS, 'monte_carlo'} - {'best'}
# Keys of sentences, and their version.
_WORDS = ('text_version', 'statement', 'assumptions', 'not_covered', 'selection.statement')


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


# Fields of a run that its plan record and its report have, and the checks of their JSON values.
OF_RUN: dict[str, Callable[[str, Any], Any]] = {
    'noise_is_seeded': _validate.truth,
    'sampling_is_seeded': _validate.truth,
    'train_metrics_released': _validate.truth,
    'warm_start_is_public': _validate.truth,
    'also_not_covered': texts,
    'remarks': texts,
    'noise_key_digest': noise_keys.checked,
    'earlier_noise_key_digests': noise_keys.checked_list,
    'about': lambda name, value: About.from_dict(value),
}


def of_run(values: Mapping[str, Any], required: Sequence[str]) -> dict[str, Any]:
    """The fields in `OF_RUN` from JSON values; those that may be missing then have their default.

    Raises:
      KeyError: if one of `required` is missing.
      ValueError: if a value is not allowed.
    """
    return {
        name: check(name, values[name])
        for name, check in OF_RUN.items()
        if name in values or name in required
    }


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
        clients_by_participations=_json.pairs(
            'clients_by_participations', values['clients_by_participations']
        ),
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
    for pair in seen.clients_by_participations:
        for number in pair:
            _validate.integer('clients_by_participations', number, minimum=0)
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


@dataclasses.dataclass(frozen=True)
class Difference:
    """Something that a report states, and that does not follow from its plan.

    Attributes:
      where: path of the key.
      stated: JSON value in the report.
      computed: JSON value that follows from the plan.
      promises_less: whether what is stated holds as well: a larger epsilon, the words about it, and
        the words of an older version.
    """

    where: str
    stated: Any
    computed: Any
    promises_less: bool

    def __str__(self) -> str:
        stated, computed = comparison.short_pair(self.stated, self.computed)
        return f'{self.where} is {stated}, computed {computed}'

    def error(self) -> errors.ArgumentError:
        """The error of a reader that refuses the report."""
        stated = errors.NOT_SHOWN if isinstance(self.stated, (dict, list)) else self.stated
        if self.computed == comparison.NOT_A_KEY:
            return errors.ArgumentError(self.where, stated, 'is not a key of a report')
        bound = 'at least ' if _name(self.where) in _BOUNDS else ''
        computed = comparison.short(self.computed)
        return errors.ArgumentError(
            self.where, stated, f'must be {bound}{computed}, as follows from the plan'
        )


def differences(values: dict[str, Any], computed: dict[str, Any]) -> list[Difference]:
    """Every key, at any depth, in which a report differs from what follows from its plan.

    Args:
      values: JSON values of the report; unknown keys differ.
      computed: JSON values that follow from it.
    """
    found = comparison.differences(values, computed)
    larger = {where: (was, now) for where, was, now in found if _is_larger(where, was, now)}
    epsilons = [pair for where, pair in larger.items() if _name(where).startswith('epsilon')]
    version = values.get('text_version', 1)
    is_older = type(version) is int and 0 < version < computed['text_version']

    def promises_less(where: str, was: Any, now: Any) -> bool:
        if where in larger:
            return True
        if is_older and (was == comparison.MISSING or where.partition('[')[0] in _WORDS):
            return True
        if _name(where) == 'accountants':
            is_one = isinstance(was, str) and was in _ACCOUNTANTS
            return is_one and where.replace('accountants', 'epsilons') in larger
        texts = isinstance(was, str) and isinstance(now, str)
        return texts and was == _with_larger(now, epsilons)

    return [Difference(*each, promises_less(*each)) for each in found]


def _name(where: str) -> str:
    """The last key of a path, without the place in a list."""
    return where.rpartition('.')[2].partition('[')[0]


def _is_larger(where: str, was: Any, now: Any) -> bool:
    """Whether a bound is larger than the computed one; null promises nothing."""
    name, is_number = _name(where), comparison.is_number(was)
    if not comparison.is_number(now) or name not in (*_BOUNDS, 'bayes_risk'):
        return False
    if name == 'bayes_risk':  # A risk is smaller if the test is better.
        return is_number and was < now
    return was is None or (is_number and was > now)


def _with_larger(text: str, pairs: Sequence[tuple[Any, Any]]) -> str:
    """A computed sentence with the epsilons that a report states in place of the computed ones."""
    shown = {
        rounding.round_up(now): rounding.round_up(was) for was, now in pairs if was is not None
    }
    numbers = re.compile(r'(?<![\w.])\d[\d.]*(?:e[+-]?\d+)?(?!\w)')
    return numbers.sub(lambda match: shown.get(match[0], match[0]), text)
