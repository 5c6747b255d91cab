"""Compares what a file states, as JSON values or as text, with what was computed anew.

Numbers may differ by a relative 1e-9, because other releases of the numerical libraries differ in
the last digits. In figures coordinates may differ by an invisible fraction of a point.

A report is checked against the plan in the same file. Whoever wrote a report may have written
anything into it. Every key is therefore computed again from the plan and from what the file says
about the log, and compared. A larger epsilon promises less, so it is accepted: other versions may
have been less tight. The words of an older version cannot be computed here; they are not believed.
The report that is read has computed numbers and words.
"""

import dataclasses
import json
import math
import os
import re
from collections.abc import Sequence
from typing import Any

from dpfl import _json, _validate, errors
from dpfl.accounting.evidence import refutation
from dpfl.accounting.plan import PrivacyPlan
from dpfl.accounting.reports import inputs
from dpfl.accounting.reports.observed import METHODS, Observed, wider_limits
from dpfl.mechanisms import rounding
from dpfl.participation import Participation

# In place of a value that one of two objects does not have.
MISSING, NOT_A_KEY = 'missing', 'not a key'
_TOLERANCE = 1e-9
_MOST_CHARACTERS = 60
# Characters that two texts have in common and that are shown.
_BEFORE = 20
# A number with a fraction or an exponent, not a part of a word such as a digest. Other numbers are
# counts, which are exact.
_NUMBER = re.compile(r'(?<![\w.])(-?\d+(?:\.\d+(?:e[+-]?\d+)?|e[+-]?\d+))(?![\w])')
# Points. Matplotlib writes six digits, the last of which may be rounded in another way.
_SVG_TOLERANCE = 1e-5
_SVG = re.compile(r'(<svg\b.*?</svg>)', re.DOTALL)
# Invisible shapes that show a value under the pointer, placed to a tenth of a point.
_MARK = re.compile(
    r'<(circle|rect)(?: (?:cx|cy|r|x|y|width|height)="[\d.-]+")+><title>(.*?)</title></\1>'
)
# Another version of Matplotlib draws other letters and places marks on axes elsewhere.
_DRAWN_BY = re.compile(r'<dc:title>Matplotlib v([\w.]+),')
# Matplotlib names parts of a figure by digests of their numbers, whose last digits may differ.
_NAME = re.compile(r'(?<=id=")[^"]+(?=")|(?<=href="#)[^"]+(?=")|(?<=url\(#)[\w.-]+(?=\))')
# Elements that draw lines and areas within a figure, and do nothing else: no texts, no scripts, no
# links to elsewhere.
_DRAWN = re.compile(
    r'<!--[^<>]*-->|</?defs>|</(?:g|clipPath)>|'
    r'<(?:g|path|use|clipPath|rect|circle)(?:\s+(?:(?:clip-path|d|id|style|transform)="[^"<>]*"'
    r'|(?:x|y|cx|cy|r|width|height)="[\d.e-]+"|xlink:href="#[^"<>]*"))*\s*/?>'
)
_LIMITS = ('rounds', 'min_separation', 'max_participations')
# Numbers of clients that are observed.
COUNTS = ('clients', 'smallest_cohort', 'largest_cohort')
# Upper bounds: a larger one promises less.
_BOUNDS = frozenset(
    {'epsilon', 'epsilons', 'epsilons_so_far', 'epsilon_claimed', 'tpr', 'advantage'}
)
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


def differences(stated: Any, computed: Any, where: str = '') -> list[tuple[str, Any, Any]]:
    """Where two JSON values differ by more than rounding.

    Args:
      stated: the value in the file.
      computed: the value that it should have.
      where: path to both values in their documents.

    Returns:
      A triple (path, stated, computed) for each difference.
    """
    if isinstance(stated, dict) and isinstance(computed, dict):
        triples = []
        for name in [*computed, *(name for name in stated if name not in computed)]:
            path = f'{where}.{name}' if where else name
            if name in stated and name in computed:
                triples += differences(stated[name], computed[name], path)
            else:  # Whatever the value of an unknown key is.
                values = stated.get(name, MISSING), computed.get(name, NOT_A_KEY)
                triples.append((errors.shown(path), *values))
        return triples
    if (
        isinstance(computed, (list, tuple))
        and isinstance(stated, list)
        and len(stated) == len(computed)
    ):
        return [
            difference
            for i, (was, now) in enumerate(zip(stated, computed, strict=True))
            for difference in differences(was, now, f'{where}[{i}]')
        ]
    if is_number(stated) and is_number(computed):
        is_same = is_close(stated, computed)
    elif isinstance(stated, str) and isinstance(computed, str):
        is_same = _is_same_text(stated, computed)
    else:
        is_same = type(stated) is type(computed) and stated == computed
    return [] if is_same else [(errors.shown(where), stated, computed)]


def page_difference(stated: str, computed: str) -> str | None:
    """The first difference of two pages, in words; None if both say the same.

    Args:
      stated: the page in the file, Markdown or HTML.
      computed: the page that it should be.
    """
    was, now = _SVG.split(stated), _SVG.split(computed)
    if len(was) != len(now):
        return 'has another number of figures'
    for i, (one, other) in enumerate(zip(was, now, strict=True)):
        if i % 2 and not _is_same_figure(one, other):
            return f'its figure {i // 2 + 1} is another one'
        if not i % 2 and not _is_same_text(one, other):
            return _first_line(one, other)
    return None


def _is_same_text(stated: str, computed: str, tolerance: float = 0.0) -> bool:
    """Whether two texts are equal but for the last digits of numbers that are not integers.

    Args:
      stated: the text in the file.
      computed: the text that it should be.
      tolerance: absolute difference of two numbers that is also accepted.
    """
    if stated == computed:
        return True
    was, now = _NUMBER.split(stated), _NUMBER.split(computed)
    return len(was) == len(now) and all(
        math.isclose(float(one), float(other), rel_tol=_TOLERANCE, abs_tol=tolerance)
        if i % 2
        else one == other
        for i, (one, other) in enumerate(zip(was, now, strict=True))
    )


def _is_same_figure(stated: str, computed: str) -> bool:
    """Whether two SVG elements draw the same, and show the same values under the pointer.

    Drawings of two versions of Matplotlib cannot be compared. Then the values are, and that there
    is nothing but lines and areas besides.
    """
    (was, shown), (now, other) = (
        (_renamed(_MARK.sub('', figure)), '\n'.join(text for _, text in _MARK.findall(figure)))
        for figure in (stated, computed)
    )
    if drawn_by(stated) != drawn_by(computed):
        was, now = _besides_drawing(was), _besides_drawing(now)
    return _is_same_text(shown, other) and _is_same_text(was, now, _SVG_TOLERANCE)


def _besides_drawing(figure: str) -> str:
    """What a figure has besides its lines and areas, and besides the version that drew it."""
    return ' '.join(_DRAWN_BY.sub('', _DRAWN.sub('', figure)).split())


def drawn_by(page: str) -> set[str]:
    """Versions of Matplotlib that drew the figures of a page, as they say."""
    return set(_DRAWN_BY.findall(page))


def short(value: Any) -> str:
    """A JSON value as a short text."""
    text = json.dumps(value)
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 3] + '...'


def short_pair(stated: Any, computed: Any) -> tuple[str, str]:
    """Two JSON values as short texts; of long texts, from a little before they differ."""
    if isinstance(stated, str) and isinstance(computed, str):
        start = len(os.path.commonprefix([stated, computed])) - _BEFORE
        if start > 0:
            stated, computed = f'...{stated[start:]}', f'...{computed[start:]}'
    return short(stated), short(computed)


def is_number(value: Any) -> bool:
    """Whether a JSON value is a number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_close(stated: float, computed: float) -> bool:
    """Whether two numbers are the same but for rounding."""
    return math.isclose(stated, computed, rel_tol=_TOLERANCE)


def _renamed(figure: str) -> str:
    """A figure whose parts are numbered in the order in which they are named."""
    names: dict[str, str] = {}
    return _NAME.sub(lambda match: names.setdefault(match[0], f'part{len(names)}'), figure)


def _first_line(stated: str, computed: str) -> str:
    was, now = stated.splitlines(), computed.splitlines()
    for i, line in enumerate(was):
        if i == len(now):
            break
        if not _is_same_text(line, now[i]):
            says, would_say = short_pair(line, now[i])
            return f'says {says}, computed {would_say}'
    return 'ends with other lines'


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
    # Limits and sizes count a client as often as it is listed; the sampling has it once in a round.
    rounds_of_one = -(-seen.limits.count // seen.max_per_round)
    limits = dataclasses.replace(seen.limits, max_participations=rounds_of_one)
    is_possible = not wider_limits(plan.sampling.schema(seen.rounds), limits, 1)
    if seen.max_per_round == 1:
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
        stated, computed = short_pair(self.stated, self.computed)
        return f'{self.where} is {stated}, computed {computed}'

    def error(self) -> errors.ArgumentError:
        """The error of a reader that refuses the report."""
        stated = errors.NOT_SHOWN if isinstance(self.stated, (dict, list)) else self.stated
        if self.computed == NOT_A_KEY:
            return errors.ArgumentError(self.where, stated, 'is not a key of a report')
        bound = 'at least ' if _name(self.where) in _BOUNDS else ''
        computed = short(self.computed)
        return errors.ArgumentError(
            self.where, stated, f'must be {bound}{computed}, as follows from the plan'
        )


def report_differences(values: dict[str, Any], computed: dict[str, Any]) -> list[Difference]:
    """Every key, at any depth, in which a report differs from what follows from its plan.

    Args:
      values: JSON values of the report; unknown keys differ.
      computed: JSON values that follow from it.
    """
    triples = differences(values, computed)
    larger = {where: (was, now) for where, was, now in triples if _is_larger(where, was, now)}
    epsilons = [pair for where, pair in larger.items() if _name(where).startswith('epsilon')]
    version = values.get('text_version', 1)
    is_older = type(version) is int and 0 < version < computed['text_version']

    def promises_less(where: str, was: Any, now: Any) -> bool:
        if where in larger:
            return True
        if is_older and (was == MISSING or where.partition('[')[0] in _WORDS):
            return True
        if _name(where) == 'accountants':
            is_one = isinstance(was, str) and was in METHODS
            return is_one and where.replace('accountants', 'epsilons') in larger
        texts = isinstance(was, str) and isinstance(now, str)
        return texts and was == _with_larger(now, epsilons)

    return [Difference(*triple, promises_less(*triple)) for triple in triples]


def _name(where: str) -> str:
    """The last key of a path, without the place in a list."""
    return where.rpartition('.')[2].partition('[')[0]


def _is_larger(where: str, was: Any, now: Any) -> bool:
    """Whether a bound is larger than the computed one; null promises nothing."""
    name, numeric = _name(where), is_number(was)
    if not is_number(now) or name not in (*_BOUNDS, 'bayes_risk'):
        return False
    if name == 'bayes_risk':  # A risk is smaller if the test is better.
        return numeric and was < now
    return was is None or (numeric and was > now)


def _with_larger(text: str, pairs: Sequence[tuple[Any, Any]]) -> str:
    """A computed sentence with the epsilons that a report states in place of the computed ones."""
    shown = {
        rounding.round_up(now): rounding.round_up(was) for was, now in pairs if was is not None
    }
    numbers = re.compile(r'(?<![\w.])\d[\d.]*(?:e[+-]?\d+)?(?!\w)')
    return numbers.sub(lambda match: shown.get(match[0], match[0]), text)
