"""Two privacy reports side by side: which run is more private, and why.

Guarantees are compared only for the same adjacency and the same unit of privacy. Everything is
computed from the plans in the reports (from the log where it breaks the plan), by one method.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from dpfl import _json
from dpfl.accounting import events, facts, part, tradeoff
from dpfl.accounting import selection as selection_lib
from dpfl.accounting.reports import checklist, differences
from dpfl.accounting.reports.report import PrivacyReport
from dpfl.accounting.tradeoff import Stretch
from dpfl.mechanisms import rounding

# Numbers that differ by less than this, relatively, are equal: they differ by rounding.
_TOLERANCE = 1e-6
# Numbers that a report states are called looser if they are above the computed ones by more.
_LOOSER = 1e-4


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Two reports side by side; a pair of values is that of the first and that of the second.

    Attributes:
      names: what the reports are called, such as their paths.
      obstacles: why they cannot be compared, one sentence each; empty if they can be.
      verdict: 'first' or 'second' if that one is more private at every false positive rate;
        'equal'; 'crossing' if neither is; 'not_comparable'.
      statement: the verdict in words.
      reasons: which parameters make one of them more private, one sentence each.
      epsilons: at each delta that a report states: delta, and epsilon of what each run releases;
        None without a guarantee.
      stretches: which trade-off curve is the lower one, and where.
      selections: of the best of several runs, in words; None for a single run.
      membership: advantage of membership tests against one run.
      notes: what else to know before choosing, one sentence each.
      reports: the two reports.
    """

    names: tuple[str, str]
    obstacles: tuple[str, ...]
    verdict: str
    statement: str
    reasons: tuple[str, ...]
    epsilons: tuple[tuple[float, float | None, float | None], ...]
    stretches: tuple[Stretch, ...]
    selections: tuple[str | None, str | None]
    membership: tuple[float, float]
    notes: tuple[str, ...]
    reports: tuple[PrivacyReport, PrivacyReport]

    def to_dict(self) -> dict[str, Any]:
        """JSON values; see docs/reference/files.md."""
        holds = [report.guarantee for report in self.reports]
        return {
            'reports': list(self.names),
            'comparable': not self.obstacles,
            'obstacles': list(self.obstacles),
            'more_private': self.verdict,
            'statement': self.statement,
            'reasons': list(self.reasons),
            'epsilon': [
                {
                    'delta': delta,
                    'first': first,
                    'second': second,
                    'smaller': None if self.obstacles else _smaller(first, second),
                }
                for delta, first, second in self.epsilons
            ],
            'rho': _pair(*(each.rho for each in holds)),
            'mu': _pair(*(each.mu for each in holds)),
            'advantage': _pair(*self.membership),
            'tradeoff': [dataclasses.asdict(stretch) for stretch in self.stretches],
            'selection': _pair(*self.selections),
            'parameters': {
                name: {**_pair(*values), 'differs': values[0] != values[1]}
                for name, values in differences.parameters(*self.reports).items()
            },
            'assumptions': _only(*(each.facts.bullets(facts.ASSUMPTION) for each in self.reports)),
            'not_covered': _only(*(each.facts.bullets(facts.NOT_COVERED) for each in self.reports)),
            'notes': list(self.notes),
        }


def compare(
    first: PrivacyReport, second: PrivacyReport, names: tuple[str, str] = ('first', 'second')
) -> Comparison:
    """Compares two reports.

    Without a selection the verdict is that of the trade-off curves: the lower one is at least as
    private at every delta and against every membership test. Curves of sampled releases are upper
    bounds, so the verdict is then about what is proven. For the best of several runs only epsilons
    are known, and the verdict is about these.
    """
    both = (first, second)
    obstacles = _obstacles(first, second)
    deltas = sorted({delta for report in both for delta in report.deltas}, reverse=True)
    epsilons = tuple((delta, _epsilon(first, delta), _epsilon(second, delta)) for delta in deltas)
    stretches = () if obstacles else _stretches(first, second)
    selected = any(report.selected for report in both)
    if obstacles:
        verdict = 'not_comparable'
    elif selected:
        verdict = _of_sides([_smaller(one, other) for _, one, other in epsilons])
    else:
        verdict = _of_sides([stretch.lower for stretch in stretches])
    return Comparison(
        names=names,
        obstacles=obstacles,
        verdict=verdict,
        statement=_statement(verdict, stretches, both),
        reasons=() if obstacles else differences.reasons(first, second),
        epsilons=epsilons,
        stretches=stretches,
        selections=(_selection(first), _selection(second)),
        membership=(_advantage(first), _advantage(second)),
        notes=(*differences.notes(first, second), *_looser(both, epsilons)),
        reports=both,
    )


def _obstacles(first: PrivacyReport, second: PrivacyReport) -> tuple[str, ...]:
    """Why two guarantees are about different things, one sentence each."""
    one, other = first.plan, second.plan
    found = []
    if one.adjacency != other.adjacency:
        found.append(
            f'The adjacencies differ: {one.adjacency} and {other.adjacency}. Neighbouring runs are '
            'then others, and so is what the same epsilon promises.'
        )
    if one.group_size != other.group_size:
        found.append(
            f'The units of privacy differ: {checklist.unit(first)}, and {checklist.unit(second)}. '
            '`--group_size` makes a report for groups of another size.'
        )
    for each in (one, other):
        if each.sampling is not None and each.sampling.has_own_bound:
            found.append(
                f'A guarantee with sampling={each.sampling.name} is known at the deltas of its '
                'report only, which is too little for a verdict.'
            )
            break
    return tuple(found)


def _advantage(report: PrivacyReport) -> float:
    curve = report.tradeoff or report.tradeoff_at(tradeoff.FALSE_POSITIVE_RATES)
    return curve.advantage


def _mu(report: PrivacyReport) -> float | None:
    """Gaussian DP parameter, infinite without a guarantee; None if the curve has no such form."""
    if report.guarantee.epsilons[0] is None:
        return math.inf
    is_gaussian = not report.slack and not report.plan.delta_before
    return report.guarantee.mu if is_gaussian else None


def _stretches(first: PrivacyReport, second: PrivacyReport) -> tuple[Stretch, ...]:
    one, other = _mu(first), _mu(second)
    if one is not None and other is not None:  # Curves of Gaussian releases do not cross.
        lower = _smaller(one, other)
    elif math.inf in (one, other):
        lower = 'second' if one == math.inf else 'first'
    else:
        return tradeoff.order(first.tradeoff_at, second.tradeoff_at)
    return () if lower == 'equal' else (Stretch(0.0, 1.0, lower),)


def _epsilon(report: PrivacyReport, delta: float) -> float | None:
    """Epsilon of what is released, by the best accountant; None without a guarantee."""
    event, neighbours = report.dp_event(), report.plan.neighbours
    if report.selected is not None:
        found = selection_lib.epsilon(event, report.selected.selection, delta, neighbours)
    else:
        found = part.with_slack(
            lambda at: events.bound(event, at, 'best', neighbours=neighbours),
            delta,
            report.slack,
        ).epsilon
    return _json.finite(found)


def _smaller(first: float | None, second: float | None) -> str:
    """Which of two numbers is smaller, 'first', 'second' or 'equal'; None is infinite."""
    one, other = (math.inf if each is None else each for each in (first, second))
    if one == other or math.isclose(one, other, rel_tol=_TOLERANCE):
        return 'equal'
    return 'first' if one < other else 'second'


def _of_sides(sides: Sequence[str]) -> str:
    different = {side for side in sides if side != 'equal'}
    if not different:
        return 'equal'
    return 'crossing' if len(different) > 1 else different.pop()


def _pair(first: Any, second: Any) -> dict[str, Any]:
    return dict(zip(differences.SIDES, (first, second), strict=True))


def _only(first: Sequence[str], second: Sequence[str]) -> dict[str, list[str]]:
    return _pair(
        [item for item in first if item not in second],
        [item for item in second if item not in first],
    )


def _selection(report: PrivacyReport) -> str | None:
    return None if report.selected is None else report.selected.selection.describe()


def _looser(
    both: tuple[PrivacyReport, PrivacyReport],
    epsilons: Sequence[tuple[float, float | None, float | None]],
) -> list[str]:
    """Where a report states a larger epsilon than the comparison, one sentence each."""
    found = []
    for place, (side, report) in enumerate(zip(differences.SIDES, both, strict=True)):
        stated = (report.selected or report.guarantee).epsilons
        for delta, was in zip(report.deltas, stated, strict=True):
            now = next(row[1 + place] for row in epsilons if row[0] == delta)
            if was is not None and now is not None and was > now * (1 + _LOOSER):
                found.append(
                    f'The report of the {side} states epsilon {rounding.round_up(was)} at delta '
                    f'= {delta:g}, by accountant={report.accountant}; the best accountant shows '
                    f'{rounding.round_up(now)}, which is compared.'
                )
    return found


def _statement(
    verdict: str, stretches: Sequence[Stretch], both: tuple[PrivacyReport, PrivacyReport]
) -> str:
    """The verdict in words."""
    if verdict == 'not_comparable':
        return 'The two reports cannot be compared: they promise different things.'
    without = [
        side
        for side, report in zip(differences.SIDES, both, strict=True)
        if report.guarantee.epsilons[0] is None
    ]
    if len(without) == 2:
        return 'Neither is private: both have no guarantee.'
    if without:
        return f'The {verdict} is more private: the {without[0]} has no guarantee.'
    if any(report.selected for report in both):
        return _of_selections(verdict)
    return _of_curves(verdict, stretches) + _of_bounds(both)


def _of_selections(verdict: str) -> str:
    words = {
        'equal': 'Both are equally private at the deltas below: they have the same epsilon.',
        'crossing': 'Neither is more private than the other: it depends on delta, see below.',
    }
    default = f'The {verdict} is more private at the deltas below: it has the smaller epsilon.'
    return (
        f'{words.get(verdict, default)} For the best of several runs no trade-off curve is known, '
        'so this is about these deltas only.'
    )


def _of_curves(verdict: str, stretches: Sequence[Stretch]) -> str:
    if verdict == 'equal':
        return 'Both are equally private: they have the same trade-off curve.'
    if verdict != 'crossing':
        (only,) = stretches
        limits = f' from {only.start:.3g} to {_near_one(only.end)}' if only.start else ''
        return (
            f'The {verdict} is more private: at every false positive rate{limits} a membership '
            'test reaches at most as much against it, and less at some.'
        )
    parts = [
        f'against the {stretch.lower} from {stretch.start:.3g} to {_near_one(stretch.end)}'
        for stretch in stretches
    ]
    return (
        'Neither is more private than the other: their trade-off curves cross. By false positive '
        f'rate, a membership test reaches less {", ".join(parts)}.'
    )


def _near_one(rate: float) -> str:
    return f'{rate:.3g}' if rate < 0.99 else f'1 - {1 - rate:.3g}'


def _of_bounds(both: Sequence[PrivacyReport]) -> str:
    if not any(report.uses_sampling for report in both):
        return ''
    return (
        ' The curves of sampled cohorts are upper bounds, compared to 0.1 %: this is about what is '
        'proven.'
    )
