"""The joint guarantee of several runs on the same clients, from their reports."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import dp_accounting

from dpfl import _json, errors
from dpfl.accounting import events, part
from dpfl.accounting.reports import checklist, noise_keys
from dpfl.accounting.reports.report import PrivacyReport
from dpfl.mechanisms import rounding

# Reports with other values of these fields of the plan are about other neighbouring runs.
_NEIGHBOURS = ('adjacency', 'group_size')
# What two logs with the same cohorts have in common, whatever the plans of their runs.
_COUNTS = ('rounds', 'clients', 'smallest_cohort', 'largest_cohort', 'clients_by_participations')
_FLAGS = ('noise_is_seeded', 'sampling_is_seeded', 'train_metrics_released')


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
    shared = noise_keys.obstacle(reports)
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
        'statement': checklist.statement_together(reports, _in_words(joint)),
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
