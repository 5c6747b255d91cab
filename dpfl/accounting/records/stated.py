"""Checks what a report states against the plan in the same file.

Whoever wrote a report may have written anything into it. Every key is therefore computed again from
the plan and from what the file says about the log, and compared. A larger epsilon promises less, so
it is accepted: other versions may have been less tight. The words of an older version cannot be
computed here; they are not believed. The report that is read has computed numbers and words.
"""

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

from dpfl import _json, _validate, errors
from dpfl.accounting import gaussian
from dpfl.accounting.evidence import refutation
from dpfl.accounting.plan import PrivacyPlan
from dpfl.accounting.records import comparison
from dpfl.accounting.reports import inputs
from dpfl.accounting.reports.observed import Observed, wider_limits
from dpfl.mechanisms import rounding
from dpfl.participation import Participation

_LIMITS = ('rounds', 'min_separation', 'max_participations')
# Numbers of clients that are observed.
COUNTS = ('clients', 'smallest_cohort', 'largest_cohort')
# Upper bounds: a larger one promises less.
_BOUNDS = frozenset(
    {'epsilon', 'epsilons', 'epsilons_so_far', 'epsilon_claimed', 'tpr', 'advantage'}
)
# 'best' is a choice among the others.
_ACCOUNTANTS = {*gaussian.ACCOUNTANTS, 'monte_carlo'} - {'best'}
# Keys of sentences, and their version.
_WORDS = (
    'text_version',
    'statement',
    'assumptions',
    'not_covered',
    'history',
    'observed.violations',
    'selection.statement',
)


def refuse_more_texts(name: str, stated: Any, computed: Sequence[str]) -> None:
    """Refuses a file with sentences that do not follow from its data, in whatever words.

    Earlier versions of dpfl wrote violations and history as sentences alone. Without the data a run
    that broke its plan would be read as one that kept it.

    Raises:
      ArgumentError: if the file has more sentences than the computed ones.
    """
    if len(inputs.texts(name, stated)) > len(computed):
        raise errors.ArgumentError(
            name,
            errors.NOT_SHOWN,
            f'must have {len(computed)} sentences, as follow from the data in the file; what an '
            'earlier version of dpfl wrote as sentences alone is not read',
        )


def observed(values: Any, plan: PrivacyPlan) -> Observed | None:
    """What a file states about the participation log; None if it states nothing.

    Raises:
      ValueError: if `values` are not of that form, or state fewer refutations than their counts
        show, or violations that are not in them. Only the log can tell whether it has these limits
        and refutations.
    """
    if values is None:
        return None
    if not isinstance(values, dict):
        raise errors.ArgumentError('observed', values, 'must be an object or null')
    numbers = {name: _validate.integer(name, values[name], minimum=0) for name in COUNTS}
    seen = Observed(
        planned=plan.participation,
        limits=Participation(**{name: values['patterns'][name] for name in _LIMITS}),
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
        refutations=refutation.read(plan, values['refutations']) if 'refutations' in values else (),
        **numbers,
    )
    _check_counts(seen)
    _check_refutations(seen, plan)
    refuse_more_texts('observed.violations', values['violations'], seen.violations)
    return seen


def _check_refutations(seen: Observed, plan: PrivacyPlan) -> None:
    """Checks that the refutations of a sampling are those that limits and counts show, or more."""
    if plan.sampling is None:
        return
    too_many = refutation.beyond_population(seen.clients, plan.sampling.population)
    stated = [test for test in seen.refutations if test.statistic == refutation.POPULATION]
    is_possible = not wider_limits(plan.sampling.schema(seen.rounds), seen.limits, 1)
    if seen.max_per_round == 1:  # Sizes count a client as often as it is listed.
        sizes = seen.smallest_cohort, seen.largest_cohort
        is_possible = is_possible and not plan.sampling.refuses_sizes(plan, *sizes)
    if stated != too_many or not (seen.refutations or is_possible):
        raise errors.ArgumentError(
            'observed.refutations', errors.NOT_SHOWN, 'must say how the counts refute the sampling'
        )


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
        ('clients_by_participations', all(0 < count <= listed for count in times)),
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
    triples = comparison.differences(values, computed)
    larger = {where: (was, now) for where, was, now in triples if _is_larger(where, was, now)}
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

    return [Difference(*triple, promises_less(*triple)) for triple in triples]


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
