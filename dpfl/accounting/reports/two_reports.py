"""Several privacy reports: which of two runs is more private, and the joint guarantee of runs.

Guarantees are compared only for the same adjacency and the same unit of privacy. Everything is
computed from the plans in the reports (from the log where it breaks the plan), by one method.
`guarantee` composes runs on the same clients.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any

from dpfl import _json, errors
from dpfl._validate import Epsilon, Limits, Nats, Probability
from dpfl.accounting import dp, events, part, tradeoff
from dpfl.accounting.records import comparison
from dpfl.accounting.reports import inputs, page
from dpfl.accounting.reports.report import PrivacyReport
from dpfl.accounting.tradeoff import Stretch
from dpfl.mechanisms import rounding

SIDES = ('first', 'second')
# Numbers that differ by less than this, relatively, are equal: they differ by rounding.
_TOLERANCE = 1e-6
# Reports with other values of these fields of the plan are about other neighbouring runs.
_NEIGHBOURS = ('adjacency', 'group_size')
# What two logs with the same cohorts have in common, whatever the plans of their runs.
_COUNTS = ('rounds', 'clients', 'smallest_cohort', 'largest_cohort', 'clients_by_participations')
_FLAGS = ('noise_is_seeded', 'sampling_is_seeded', 'train_metrics_released')
_Both = tuple[PrivacyReport, PrivacyReport]


def compare(
    first: PrivacyReport, second: PrivacyReport, names: tuple[str, str] = SIDES
) -> dict[str, Any]:
    """Compares two reports by their trade-off curves.

    The run with the lower curve is at least as private at every delta and against every membership
    test. Curves of sampled releases are upper bounds, so the verdict is then about what is proven.

    Args:
      first, second: the reports.
      names: what they are called, such as their paths.

    Returns:
      JSON values; docs/reference/files.md says what each key means.
    """
    both = (first, second)
    obstacles = list(_obstacles(both))
    stretches = () if obstacles else _stretches(both)
    if obstacles:
        verdict = 'not_comparable'
    elif not stretches:
        verdict = 'equal'
    else:
        verdict = 'crossing' if len(stretches) > 1 else stretches[0].lower
    epsilons: list[dict[str, Any]] = []
    deltas = sorted({delta for report in both for delta in report.deltas}, reverse=True)
    for delta in () if obstacles else deltas:
        # Of what is released, by the best accountant; None without a guarantee.
        epsilons.append({'delta': delta})
        for side, report in zip(SIDES, both, strict=True):
            event, neighbours = report.dp_event(), report.plan.neighbours
            best = functools.partial(events.bound, event, method='best', neighbours=neighbours)
            epsilon = part.with_slack(best, delta, report.slack).epsilon
            epsilons[-1][side] = _json.finite(epsilon)
    plans = [{'mechanism': report.plan.mechanism.name, **report.plan.to_dict()} for report in both]
    absent = (comparison.MISSING, comparison.NOT_A_KEY)
    return {
        'reports': list(names),
        'more_private': verdict,
        'statement': _statement(verdict, stretches, both),
        'statements': {
            side: report.selected_statement or report.statement
            for side, report in zip(SIDES, both, strict=True)
        },
        'obstacles': obstacles,
        'reasons': [] if obstacles else list(_reasons(both)),
        'epsilon': epsilons,
        'tradeoff': [dataclasses.asdict(stretch) for stretch in stretches],
        # The parameters in which the plans differ, by name; None for one that a plan has not.
        'parameters': {
            name: {side: None if x in absent else x for side, x in zip(SIDES, pair, strict=True)}
            for name, *pair in comparison.differences(plans[0], plans[1])
        },
        'assumptions': _only(both, part.ASSUMPTION),
        'not_covered': _only(both, part.NOT_COVERED),
        'notes': [],
    }


def _obstacles(both: _Both) -> Iterator[str]:
    """Why two guarantees cannot be compared, one sentence each."""
    first, second = both
    for name in _NEIGHBOURS:
        one, other = (getattr(report.plan, name) for report in both)
        if one != other:
            yield (
                f'The reports have {name}={one} and {name}={other}: neighbouring runs are then '
                'others, and so is what the same epsilon promises.'
            )
    for side, report in zip(SIDES, both, strict=True):
        if report.selected is not None:
            yield f'The {side} is the best of several runs: no trade-off curve is known for it.'
        if report.uses_sampling and report.plan.has_own_bound:
            yield (
                f'A guarantee with sampling={report.plan.sampling_name} is known at the deltas of '
                'its report only, which is too little for a verdict.'
            )


def _mu(report: PrivacyReport) -> float | None:
    """Gaussian DP parameter, infinite without a guarantee; None if the curve has no such form."""
    neighbours = report.plan.neighbours
    if math.isinf(events.mu_without_amplification(report.dp_event(), neighbours)):
        return math.inf
    is_gaussian = not report.slack and not report.plan.delta_before
    return report.guarantee.mu if is_gaussian else None


def _stretches(both: _Both) -> tuple[Stretch, ...]:
    one, other = map(_mu, both)
    if math.inf not in (one, other) and None in (one, other):
        return tradeoff.order(both[0].tradeoff_at, both[1].tradeoff_at)
    # Curves of Gaussian releases do not cross; a finite curve is below that of no guarantee.
    one, other = (-1.0 if mu is None else mu for mu in (one, other))
    if one == other or math.isclose(one, other, rel_tol=_TOLERANCE):
        return ()
    return (Stretch(0.0, 1.0, 'first' if one < other else 'second'),)


def _statement(verdict: str, stretches: Sequence[Stretch], both: _Both) -> str:
    """The verdict in words."""
    if verdict == 'not_comparable':
        return 'The two reports cannot be compared.'
    if verdict == 'equal':
        text = 'Neither is more private: they have the same trade-off curve.'
    elif verdict == 'crossing':
        parts = (f'from {each.start:.3g} on against the {each.lower}' for each in stretches)
        text = (
            'Neither is more private than the other: their trade-off curves cross. By false '
            f'positive rate, a membership test reaches less {", ".join(parts)}.'
        )
    else:
        text = (
            f'The {verdict} is more private: at every false positive rate a membership test '
            'reaches at most as much against it, and less at some.'
        )
    if any(report.uses_sampling for report in both):
        text += (
            ' The curves of sampled cohorts are upper bounds, compared to 0.1 % at rates from 1e-9 '
            'to 1 - 1e-6: this is about what is proven.'
        )
    return text


def _only(both: _Both, kind: str) -> dict[str, list[str]]:
    """The sentences of a kind that only one of the reports has."""
    first, second = (report.facts.bullets(kind) for report in both)
    return {
        SIDES[0]: [text for text in first if text not in second],
        SIDES[1]: [text for text in second if text not in first],
    }


def _reasons(both: _Both) -> Iterator[str]:
    """Which parameters make one run more private than the other, one sentence each.

    A parameter counts alone, with the others as they are; only the guarantee says what all of them
    amount to.
    """
    rows: list[tuple[str, str, Callable[[PrivacyReport], float]]] = [
        ('larger', 'noise multiplier', lambda report: report.plan.noise_multiplier),
        ('smaller', 'number of earlier runs', lambda report: len(report.plan.earlier)),
    ]
    sampled = [report.uses_sampling for report in both]
    if not any(sampled):
        rows.append(('smaller', 'sensitivity', lambda report: report.guarantee.sensitivity))
    elif not all(sampled):
        yield f'Only the guarantee of the {SIDES[sampled.index(True)]} is amplified by sampling.'
    elif both[0].plan.sampling_name == both[1].plan.sampling_name:
        rows.append(('smaller', 'number of rounds', lambda report: report.guarantee.rounds))
        rows.append(('smaller', 'share of clients in a round', _share))
    for better, name, value in rows:
        values = zip(map(value, both), SIDES, strict=True)
        (best, side), (other, _) = sorted(values, reverse=better == 'larger')
        if best != other:
            yield f'The {side} has the {better} {name}: {best:.6g} against {other:.6g}.'


def _share(report: PrivacyReport) -> float:
    assert report.plan.population is not None  # As plans with sampling have it.
    return report.plan.clients_per_round / report.plan.population


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
    event = dp.ComposedDpEvent([report.dp_event() for report in reports])
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


@dataclasses.dataclass(frozen=True)
class Composition:
    """The guarantee of several runs on the same clients together, as `composition` of a report.

    Attributes:
      statement: the guarantee in words, rounded up.
      reports: number of runs.
      rho: zCDP parameter; None if a run has none.
      delta: the first of the deltas.
      epsilon: epsilon at `delta`; infinite without a guarantee.
      accountant: method of epsilon.
      noise_is_seeded: whether that of one of the runs is.
      sampling_is_seeded: whether that of one of the runs is.
      train_metrics_released: whether those of one of the runs were.
    """

    statement: str
    reports: Annotated[int, Limits('runs', minimum=1)]
    rho: Nats | None
    delta: Probability
    epsilon: Epsilon
    accountant: str
    noise_is_seeded: bool
    sampling_is_seeded: bool
    train_metrics_released: bool


def to_dict(reports: Sequence[PrivacyReport]) -> dict[str, Any]:
    """The joint guarantee as values that JSON has, with its statement; arguments of `guarantee`."""
    joint = guarantee(reports)
    words = ''
    if joint.finite_epsilon is not None:
        kind = f'{rounding.round_up(joint.revealed)}-approximate ' if joint.revealed else ''
        words = '' if joint.rho is None else f'{kind}{rounding.round_up(joint.rho)}-zCDP and '
        delta = rounding.shown_delta(joint.delta)
        words += f'({rounding.round_up(joint.epsilon)}, {delta})-DP'
    composition = Composition(
        page.statement_together(reports, words),
        len(reports),
        joint.rho,
        joint.delta,
        joint.epsilon,
        joint.accountant,
        *(any(getattr(report, name) for report in reports) for name in _FLAGS),
    )
    return _json.plain(composition)
