"""Several privacy reports: which of two runs is more private, and the joint guarantee of runs.

Guarantees are compared only for the same adjacency and the same unit of privacy. Everything is
computed from the plans in the reports (from the log where it breaks the plan), by one method.
`guarantee` composes runs on the same clients.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import dp_accounting

from dpfl import _json, errors
from dpfl.accounting import events, part, tradeoff
from dpfl.accounting import selection as selection_lib
from dpfl.accounting.plan import FOLD
from dpfl.accounting.reports import inputs, page
from dpfl.accounting.reports.report import PrivacyReport
from dpfl.accounting.sampling import kinds
from dpfl.accounting.tradeoff import Stretch
from dpfl.mechanisms import rounding

SIDES = ('first', 'second')
# Numbers that differ by less than this, relatively, are equal: they differ by rounding.
_TOLERANCE = 1e-6
# Numbers that a report states are called looser if they are above the computed ones by more.
_LOOSER = 1e-4
# Keys of a report that a comparison shows. Some plans lack some of them.
_REPORT_KEYS = (
    'basis',
    'mechanism',
    'mechanism_digest',
    'sampling',
    'clients_per_round',
    *kinds.every_setting(),
    'rounds',
    'min_separation',
    'max_participations',
    'noise_multiplier',
    'clip_norm',
    'sensitivity',
    'sensitivity_is_exact',
    'accountant',
    'adjacency',
    'noise_is_seeded',
    'sampling_is_seeded',
    'train_metrics_released',
)
# Parts whose fields in a plan are compared; sampling and earlier runs are compared otherwise.
_PLAN_PARTS = [name for name in FOLD if name not in ('sampling', 'earlier')]

_Both = tuple[PrivacyReport, PrivacyReport]
# Reports with other values of these fields of the plan are about other neighbouring runs.
_NEIGHBOURS = ('adjacency', 'group_size')
# What two logs with the same cohorts have in common, whatever the plans of their runs.
_COUNTS = ('rounds', 'clients', 'smallest_cohort', 'largest_cohort', 'clients_by_participations')
_FLAGS = ('noise_is_seeded', 'sampling_is_seeded', 'train_metrics_released')


def compare(
    first: PrivacyReport, second: PrivacyReport, names: tuple[str, str] = SIDES
) -> dict[str, Any]:
    """Compares two reports.

    Without a selection the verdict is that of the trade-off curves: the lower one is at least as
    private at every delta and against every membership test. Curves of sampled releases are upper
    bounds, so the verdict is then about what is proven. For the best of several runs only epsilons
    are known, and the verdict is about these.

    Args:
      first, second: the reports.
      names: what they are called, such as their paths.

    Returns:
      JSON values; docs/reference/files.md says what each key means.
    """
    both = (first, second)
    obstacles = _obstacles(*both)
    deltas = sorted({delta for report in both for delta in report.deltas}, reverse=True)
    epsilons = [_epsilons(both, delta, is_comparable=not obstacles) for delta in deltas]
    stretches = () if obstacles else _stretches(both)
    if obstacles:
        verdict = 'not_comparable'
    elif any(report.selected for report in both):
        verdict = _of_sides([row['smaller'] for row in epsilons])
    else:
        verdict = _of_sides([stretch.lower for stretch in stretches])
    return {
        'reports': list(names),
        'comparable': not obstacles,
        'obstacles': obstacles,
        'more_private': verdict,
        'statement': _statement(verdict, stretches, both),
        'reasons': [] if obstacles else [*filter(None, _reasons(both))],
        'epsilon': epsilons,
        'rho': _pair(both, lambda report: report.guarantee.rho),
        'mu': _pair(both, lambda report: report.guarantee.mu),
        'advantage': _pair(both, _advantage),
        'tradeoff': [dataclasses.asdict(stretch) for stretch in stretches],
        'selection': _pair(both, _selection),
        'parameters': _parameters(both),
        'assumptions': _only(both, part.ASSUMPTION),
        'not_covered': _only(both, part.NOT_COVERED),
        'notes': [*_notes(both), *_looser(both, epsilons)],
    }


def _pair(both: _Both, value: Callable[[PrivacyReport], Any]) -> dict[str, Any]:
    return {side: value(report) for side, report in zip(SIDES, both, strict=True)}


def _obstacles(first: PrivacyReport, second: PrivacyReport) -> list[str]:
    """Why two guarantees cannot be compared, one sentence each."""
    one, other = first.plan, second.plan
    obstacles = []
    if one.adjacency != other.adjacency:
        obstacles.append(
            f'The adjacencies differ: {one.adjacency} and {other.adjacency}. Neighbouring runs are '
            'then others, and so is what the same epsilon promises.'
        )
    if one.group_size != other.group_size:
        obstacles.append(
            f'The units of privacy differ: {page.unit(first)}, and {page.unit(second)}. '
            '`--group_size` makes a report for groups of another size.'
        )
    for report in (first, second):
        if report.uses_sampling and report.plan.has_own_bound:
            obstacles.append(
                f'A guarantee with sampling={report.plan.sampling_name} is known at the deltas of '
                'its report only, which is too little for a verdict.'
            )
            break
    return obstacles


# --- The numbers.


def _has_guarantee(report: PrivacyReport) -> bool:
    """Whether there is an epsilon at some delta; at those of the report there may be none."""
    event, neighbours = report.dp_event(), report.plan.neighbours
    return math.isfinite(events.mu_without_amplification(event, neighbours))


def _epsilons(both: _Both, delta: float, *, is_comparable: bool) -> dict[str, Any]:
    """Epsilons of what is released, by the best accountant; None without a guarantee."""
    epsilons = _pair(both, lambda report: _epsilon(report, delta))
    smaller = _smaller(*epsilons.values()) if is_comparable else None
    return {'delta': delta, **epsilons, 'smaller': smaller}


def _epsilon(report: PrivacyReport, delta: float) -> float | None:
    event, neighbours = report.dp_event(), report.plan.neighbours
    if report.selected is not None:
        epsilon = selection_lib.epsilon(event, report.selected.selection, delta, neighbours)
    else:
        epsilon = part.with_slack(
            lambda at: events.bound(event, at, 'best', neighbours=neighbours),
            delta,
            report.slack,
        ).epsilon
        # A bound of the sampling's own is no event.
        stated = dict(zip(report.deltas, report.guarantee.epsilons, strict=True)).get(delta)
        epsilon = epsilon if stated is None else min(epsilon, stated)
    return _json.finite(epsilon)


def _advantage(report: PrivacyReport) -> float:
    curve = report.tradeoff or report.tradeoff_at(tradeoff.FALSE_POSITIVE_RATES)
    return curve.advantage


def _mu(report: PrivacyReport) -> float | None:
    """Gaussian DP parameter, infinite without a guarantee; None if the curve has no such form."""
    if not _has_guarantee(report):
        return math.inf
    is_gaussian = not report.slack and not report.plan.delta_before
    return report.guarantee.mu if is_gaussian else None


def _stretches(both: _Both) -> tuple[Stretch, ...]:
    one, other = map(_mu, both)
    if one is not None and other is not None:  # Curves of Gaussian releases do not cross.
        lower = _smaller(one, other)
    elif math.inf in (one, other):
        lower = 'second' if one == math.inf else 'first'
    else:
        return tradeoff.order(both[0].tradeoff_at, both[1].tradeoff_at)
    return () if lower == 'equal' else (Stretch(0.0, 1.0, lower),)


def _smaller(first: float | None, second: float | None) -> str:
    """Which of two numbers is smaller, 'first', 'second' or 'equal'; None is infinite."""
    one, other = (math.inf if epsilon is None else epsilon for epsilon in (first, second))
    if one == other or math.isclose(one, other, rel_tol=_TOLERANCE):
        return 'equal'
    return 'first' if one < other else 'second'


def _of_sides(sides: Sequence[str]) -> str:
    different = {side for side in sides if side != 'equal'}
    if not different:
        return 'equal'
    return 'crossing' if len(different) > 1 else different.pop()


# --- The verdict in words.


def _statement(verdict: str, stretches: Sequence[Stretch], both: _Both) -> str:
    if verdict == 'not_comparable':
        return 'The two reports cannot be compared.'
    without = [side for side, has in _pair(both, _has_guarantee).items() if not has]
    if len(without) == 2:
        return 'Neither is private: both have no guarantee.'
    if without:
        return f'The {verdict} is more private: the {without[0]} has no guarantee.'
    if any(report.selected for report in both):
        words = {
            'equal': 'Both are equally private at the deltas below: they have the same epsilon.',
            'crossing': 'Neither is more private than the other: it depends on delta, see below.',
        }
        default = f'The {verdict} is more private at the deltas below: it has the smaller epsilon.'
        return (
            f'{words.get(verdict, default)} For the best of several runs no trade-off curve is '
            'known, so this is about these deltas only.'
        )
    bounds = (
        ' The curves of sampled cohorts are upper bounds, compared to 0.1 %: this is about what is '
        'proven.'
    )
    uses_bounds = any(report.uses_sampling for report in both)
    return _of_curves(verdict, stretches) + (bounds if uses_bounds else '')


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


def _selection(report: PrivacyReport) -> str | None:
    return None if report.selected is None else report.selected.selection.describe()


# --- What differs.


def _parameters(both: _Both) -> dict[str, dict[str, Any]]:
    """Pairs by name, of what at least one of the reports has, and whether they differ."""
    first, second = (report.to_dict() for report in both)
    values = [
        {
            **{name: document.get(name) for name in _REPORT_KEYS},
            'group_size': report.plan.group_size,
            **{name: document['plan'].get(name) for name in _PLAN_PARTS},
            'earlier_runs': len(report.plan.earlier),
        }
        for document, report in zip((first, second), both, strict=True)
    ]
    return {
        name: {**dict(zip(SIDES, pair, strict=True)), 'differs': pair[0] != pair[1]}
        for name in values[0]
        if (pair := (values[0][name], values[1][name])) != (None, None)
    }


def _only(both: _Both, kind: str) -> dict[str, list[str]]:
    """The sentences of a kind that only one of the reports has."""
    first, second = (report.facts.bullets(kind) for report in both)
    return {
        SIDES[0]: [text for text in first if text not in second],
        SIDES[1]: [text for text in second if text not in first],
    }


def _reasons(both: _Both) -> Iterator[str]:
    """Which parameters make one run more private than the other, one sentence each, or none.

    A parameter counts alone, with the others as they are; only the guarantee says what all of them
    amount to.
    """
    silent = [side for side, noise in _pair(both, _noise).items() if not noise]
    if silent:
        yield from (f'The {side} has no noise.' for side in silent)
        return
    yield _more(both, 'noise multiplier', _noise, 'larger')
    sampled = [report.uses_sampling for report in both]
    if not any(sampled):
        yield _more(both, 'sensitivity', lambda r: r.guarantee.sensitivity, 'smaller')
        yield _different(both, 'A client takes part in {} (first); in {} (second).', _limits)
        yield _of_mechanisms(both)
        yield _quotients(both)
    elif all(sampled):
        yield _of_mechanisms(both)
        kinds = _different(both, 'The samplings differ: {} (first), {} (second).', _kind)
        yield kinds
        if not kinds:
            yield _more(both, 'number of rounds', lambda r: r.guarantee.rounds, 'smaller')
            yield _more(both, 'share of clients in a round', _share, 'smaller')
    else:
        yield f'Only the guarantee of the {SIDES[sampled.index(True)]} is amplified by sampling.'
    yield _more(both, 'number of earlier runs', lambda r: len(r.plan.earlier), 'smaller')


def _more(both: _Both, name: str, value: Callable[[PrivacyReport], float], better: str) -> str:
    """A sentence about the run with the better value; empty if the values are equal."""
    values = zip(map(value, both), SIDES, strict=True)
    (best, side), (other, _) = sorted(values, reverse=better == 'larger')
    if best == other:
        return ''
    return f'The {side} has the {better} {name}: {best:.6g} against {other:.6g}.'


def _different(both: _Both, words: str, value: Callable[[PrivacyReport], str]) -> str:
    """A sentence with a value of both; empty if it is the same one."""
    first, second = map(value, both)
    return '' if first == second else words.format(first, second)


def _noise(report: PrivacyReport) -> float:
    return report.plan.noise_multiplier


def _limits(report: PrivacyReport) -> str:
    holds = report.guarantee
    return (
        f'at most {holds.max_participations} of {holds.rounds} rounds, at least '
        f'{holds.min_separation} apart'
    )


def _kind(report: PrivacyReport) -> str:
    sampling = report.plan.sampling
    assert sampling is not None  # As the guarantee uses it.
    return sampling.name + (f' with {sampling.turn} groups' if sampling.turn > 1 else '')


def _share(report: PrivacyReport) -> float:
    assert report.plan.population is not None  # As plans with sampling have it.
    return report.plan.clients_per_round / report.plan.population


def _of_mechanisms(both: _Both) -> str:
    """A sentence about the mechanisms; empty if they are equal."""
    one, other = (report.plan.mechanism for report in both)
    if one.name == other.name and one.digest() != other.digest():
        return f'The parameters of the mechanism, {one.name}, differ.'
    words = 'The mechanisms differ: {} (first), {} (second).'
    return _different(both, words, lambda report: report.plan.mechanism.name)


def _quotients(both: _Both) -> str:
    """Mu as sensitivity over noise multiplier; empty where it is not only that, or is the same."""
    if both[0].guarantee.mu == both[1].guarantee.mu:
        return ''
    texts = []
    for report in both:
        holds, noise = report.guarantee, report.plan.noise_multiplier
        if holds.mu is None or abs(holds.mu * noise / holds.sensitivity - 1) > _TOLERANCE:
            return ''
        texts.append(f'{holds.sensitivity:.6g} / {noise:.6g} = {holds.mu:.6g}')
    return f'mu is sensitivity / noise multiplier: {texts[0]} (first), {texts[1]} (second).'


def _notes(both: _Both) -> Iterator[str]:
    """What else to know before choosing one of two runs, one sentence each; the gravest first."""
    for side, report in zip(SIDES, both, strict=True):
        if report.train_metrics_released:
            yield (
                f'The {side} released metrics of its training clients without noise: its '
                'guarantee does not hold for its directory as a whole.'
            )
        if secrets := page.seeded_secrets(report):
            yield (
                f'The {side} is a simulation: its {" and ".join(secrets)} came from a known seed. '
                'What is compared is what it would guarantee if they were secret.'
            )
        if report.basis == 'log':
            yield f'The {side} broke its plan; its numbers follow from its log.'
        if report.selected is not None:
            yield (
                f'The {side} is the best of several runs: epsilon is that of the selection, rho, '
                'mu and what membership tests reach are those of a single run.'
            )
    sampled = [side for side, report in zip(SIDES, both, strict=True) if report.uses_sampling]
    if len(sampled) == 1:
        yield (
            f'The guarantee of the {sampled[0]} relies on who took part being secret; that of the '
            'other one does not.'
        )
    for side, report in zip(SIDES, both, strict=True):
        if not report.guarantee.sensitivity_is_exact:
            yield (
                f'The sensitivity of the {side} is an upper bound: it may be more private than '
                'these numbers say.'
            )


def _looser(both: _Both, epsilons: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Where a report states a larger epsilon than the comparison, one sentence each."""
    computed = {row['delta']: row for row in epsilons}
    for side, report in zip(SIDES, both, strict=True):
        stated = (report.selected or report.guarantee).epsilons
        for delta, was in zip(report.deltas, stated, strict=True):
            now = computed[delta][side]
            if was is not None and now is not None and was > now * (1 + _LOOSER):
                yield (
                    f'The report of the {side} states epsilon {rounding.round_up(was)} at delta '
                    f'= {delta:g}, by accountant={report.accountant}; the best accountant shows '
                    f'{rounding.round_up(now)}, which is compared.'
                )


@dataclasses.dataclass(frozen=True)
class JointGuarantee:
    """What several runs guarantee together. Each run may depend on the results of earlier ones.

    Attributes:
      delta: delta of the guarantee, the first delta of the first report.
      epsilon: epsilon at `delta`; infinite without a guarantee.
      accountant: the accountant that showed epsilon.
      rho: zCDP parameter; None if a run has none.
      revealed: probability that a release before training reveals something; with it, `rho` is the
        parameter of `revealed`-approximate zCDP.
    """

    delta: float
    epsilon: float
    accountant: str
    rho: float | None
    revealed: float

    @property
    def finite_epsilon(self) -> float | None:
        """Epsilon for JSON: None without a guarantee."""
        return _json.finite(self.epsilon)


def check(reports: Sequence[PrivacyReport]) -> None:
    """Checks that the last of several reports can be composed with those before it.

    Raises:
      ArgumentError: if it cannot; the error names the field of the report.
    """
    first, last = reports[0], reports[-1]
    for name in _NEIGHBOURS:
        expected, value = getattr(first.plan, name), getattr(last.plan, name)
        if value != expected:
            raise errors.ArgumentError(name, value, f'must be {expected}, as in the first report')
    if any(report.measured and report.measured.refutations for report in (first, last)):
        raise errors.ArgumentError(
            'measured', errors.NOT_SHOWN, 'must not be an audit that refutes the guarantee'
        )
    for before in reports[:-1]:
        counts = _seeded_counts(last)
        if counts is not None and counts == _seeded_counts(before):
            raise errors.ArgumentError(
                'sampling_is_seeded',
                last.sampling_is_seeded,
                'must be false for runs whose logs have the same counts, as two runs with one '
                'seed have: amplification does not add up for the same cohorts',
            )
    shared = inputs.shared_noise(reports)
    if shared is not None:
        raise errors.ArgumentError('noise_key_digest', errors.NOT_SHOWN, shared[1])


def _seeded_counts(report: PrivacyReport) -> list[Any] | None:
    """Counts of a log whose cohorts came from a known seed; None without such a log."""
    if report.observed is None or not (report.uses_sampling and report.sampling_is_seeded):
        return None
    return [getattr(report.observed, name) for name in _COUNTS]


def guarantee(reports: Sequence[PrivacyReport]) -> JointGuarantee:
    """The guarantee of all runs together, for a client or a group that took part in each of them.

    One report has its own guarantee. Several are composed as events, with the slack of hardened
    noise; earlier runs and releases before training are part of a run's event. Amplification that
    is estimated by Monte Carlo is not part of an event, so it does not count in a composition.

    Args:
      reports: one for each run, at least one. The accountant is that of the first report, or 'best'
        if it does not support the composition.

    Raises:
      ArgumentError: if two reports cannot be composed; see `check`.
    """
    for count in range(2, len(reports) + 1):
        check(reports[:count])
    first = reports[0]
    delta = first.deltas[0]
    rhos = [report.guarantee.rho for report in reports]
    known = [rho for rho in rhos if rho is not None]
    rho = math.fsum(known) if len(known) == len(rhos) else None
    revealed = math.fsum(report.plan.delta_before for report in reports)
    if len(reports) == 1:
        epsilon, own = first.guarantee.epsilons[0], first.guarantee.accountants
        epsilon = math.inf if epsilon is None else epsilon
        return JointGuarantee(delta, epsilon, own[0] if own else first.accountant, rho, revealed)
    event = dp_accounting.ComposedDpEvent([report.dp_event() for report in reports])
    neighbours = first.plan.neighbours
    supported = events.methods_for(event, neighbours)
    method = first.accountant if first.accountant in supported else 'best'
    bound = part.with_slack(
        lambda at: events.bound(event, at, method, neighbours=neighbours),
        delta,
        math.fsum(report.slack for report in reports),
    )
    # Up, so that neither sum is below the exact one.
    rho = rho and math.nextafter(rho, math.inf)
    revealed = revealed and math.nextafter(revealed, math.inf)
    return JointGuarantee(delta, bound.epsilon, bound.accountant, rho, revealed)


def to_dict(reports: Sequence[PrivacyReport]) -> dict[str, Any]:
    """The joint guarantee as values that JSON has, with its statement; arguments of `guarantee`."""
    joint = guarantee(reports)
    return {
        'statement': page.statement_together(reports, _in_words(joint)),
        'reports': len(reports),
        'rho': joint.rho,
        'delta': joint.delta,
        'epsilon': joint.finite_epsilon,
        'accountant': joint.accountant,
        **{name: any(getattr(report, name) for report in reports) for name in _FLAGS},
    }


def _in_words(joint: JointGuarantee) -> str:
    """The guarantee in words, rounded up; empty if there is none."""
    if joint.finite_epsilon is None:
        return ''
    kind = f'{rounding.round_up(joint.revealed)}-approximate ' if joint.revealed else ''
    rho = '' if joint.rho is None else f'{kind}{rounding.round_up(joint.rho)}-zCDP and '
    return f'{rho}({rounding.round_up(joint.epsilon)}, {rounding.shown_delta(joint.delta)})-DP'
