"""The first sentences of a report: its meaning for one client, who took part, what was checked."""

import math
from typing import TYPE_CHECKING

from dpfl.accounting import facts as facts_lib
from dpfl.accounting.evidence import refutation
from dpfl.accounting.facts import CHECKED, MEANING, TOOK_PART, Facts

if TYPE_CHECKING:
    from dpfl.accounting.reports.observed import Observed
    from dpfl.accounting.reports.report import PrivacyReport

# False positive rate of the test that the first sentences describe.
_FALSE_ALARMS = 0.01
# Longer lists of how often clients took part are cut.
_MOST_COUNTS = 12


def put(report: 'PrivacyReport', facts: Facts) -> None:
    """Puts the facts of the kinds MEANING, TOOK_PART and CHECKED.

    Args:
      report: what the facts are about.
      facts: those of the plan and of the run.
    """
    _meaning(report, facts)
    if report.observed is None:
        _without_log(report, facts)
    else:
        _with_log(report, report.observed, facts)


def _meaning(report: 'PrivacyReport', facts: Facts) -> None:
    whom = 'one client' if report.plan.group_size == 1 else f'{report.plan.group_size} clients'
    if facts.bullets(facts_lib.VOID) or report.guarantee.epsilons[0] is None:
        facts.put(
            MEANING,
            'test',
            'The models may tell anybody whether {whom} took part, and what the data were.',
            whom=whom,
        )
        return
    if report.measured is not None and report.measured.refutations:
        facts.put(MEANING, 'audit', '**Do not rely on what follows: the audit refutes it.**')
    if report.noise_is_seeded or report.sampling_is_seeded and report.uses_sampling:
        facts.put(
            MEANING,
            'simulation',
            'This run is a simulation: it protects nobody from those who know its seed. Against '
            'others it is as follows.',
        )
    right, detected = _best_test(report)
    facts.put(
        MEANING,
        'test',
        'Somebody who sees every model of the run, knows everything about everybody else{secret}, '
        'and guesses {question}, is right in at most **{right} of 100 cases**. A coin is right in '
        '50.',
        secret=', but not who took part' if report.uses_sampling else '',
        question=f'whether the data of {whom} were used'
        if report.plan.adjacency == 'zero_out'
        else f'which of two sets of data {whom} had',
        right=right,
    )
    if detected is not None and report.plan.adjacency == 'zero_out':
        facts.put(
            MEANING,
            'test/rare',
            'At one false alarm in 100, at most {found} of 100 {whom} that took part are found.',
            found=detected,
            whom='clients' if report.plan.group_size == 1 else 'such groups',
        )
    if report.so_far is not None:
        facts.put(MEANING, 'test/planned', 'This is for all planned rounds.')


def _best_test(report: 'PrivacyReport') -> tuple[str, str | None]:
    """How often the best membership tests are right, in 100 cases, rounded up.

    The first has equal numbers of both cases; the second, None if it is not known, has a false
    alarm in one of 100. A curve that the report does not have is computed only where that is quick.
    """
    if report.has_tradeoff or not report.uses_sampling:
        curve = report.tradeoff_at([_FALSE_ALARMS])
        return _of_100((1 + curve.advantage) / 2), _of_100(curve.points[0][1])
    epsilon, delta = report.guarantee.epsilons[0], report.deltas[0]
    assert epsilon is not None
    return _of_100((1 + math.tanh(epsilon / 2) + delta) / 2), None


def _of_100(share: float) -> str:
    return f'{min(100.0, math.ceil(1000 * share) / 10):g}'


def _without_log(report: 'PrivacyReport', facts: Facts) -> None:
    facts.put(
        TOOK_PART,
        'clients',
        'Who took part is not known here. The plan has {cohort} in each of {rounds:,} rounds, and '
        '{limits}.',
        cohort=_clients(f'{report.plan.clients_per_round:,}'),
        rounds=report.plan.participation.rounds,
        limits=_limits(report),
    )
    facts.put(CHECKED, 'log', 'Nothing: this report is of a plan, which was compared with no log.')


def _with_log(report: 'PrivacyReport', seen: 'Observed', facts: Facts) -> None:
    planned = report.plan.participation.rounds
    counts = seen.clients_by_participations
    times = [f'{clients:,} {_times(count)}' for count, clients in counts[:_MOST_COUNTS]]
    if len(counts) == 1:
        times = [f'each {_times(counts[0][0])}']
    sizes = sorted({seen.smallest_cohort, seen.largest_cohort})
    facts.put(
        TOOK_PART,
        'clients',
        '{clients} took part ({times}), in {rounds:,}{planned} rounds of {sizes}.',
        clients=_clients(f'{seen.clients:,}'),
        times=', '.join([*times, *(['...'] if len(counts) > _MOST_COUNTS else [])]),
        rounds=seen.rounds,
        planned='' if seen.rounds == planned else f' of {planned:,} planned',
        sizes=_clients(' to '.join(f'{size:,}' for size in sizes)),
    )
    facts.put(
        TOOK_PART,
        'source',
        'This is known from the participation log{journal}.',
        journal=''
        if report.journal_head is None
        else ', whose cohorts the run wrote down one by one before it computed their rounds',
    )
    if seen.violations:
        facts.put(
            CHECKED,
            'log',
            'The participation log **breaks the plan**; the statement above is for what happened.',
        )
        return
    facts.put(
        CHECKED,
        'log',
        'The participation log keeps the plan: it has at most {planned:,} rounds, no client twice '
        'in a round, and {limits}.',
        planned=planned,
        limits=_limits(report),
    )
    if report.uses_sampling:
        facts.put(
            CHECKED,
            'log/sampling',
            'Exact tests find no difference between its cohorts and the planned sampling; they '
            'would find one in a run as planned with probability at most {false_alarm:g}.',
            false_alarm=refutation.FALSE_ALARM,
        )


def _limits(report: 'PrivacyReport') -> str:
    planned = report.plan.participation
    if planned.count == 1:
        return 'no client in more than one round'
    apart = f' or sooner than {planned.min_separation:,} rounds after its last one'
    return f'no client in more than {planned.count:,} rounds' + (
        apart if planned.min_separation > 1 else ''
    )


def _clients(count: str) -> str:
    return f'{count} client' if count == '1' else f'{count} clients'


def _times(count: int) -> str:
    return {1: 'once', 2: 'twice'}.get(count, f'in {count} rounds')
