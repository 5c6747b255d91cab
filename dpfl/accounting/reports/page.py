"""The readable page of a privacy report, in Markdown, and the sentences that it begins with."""

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from dpfl.accounting import part
from dpfl.accounting.clipping import ClipCourse
from dpfl.accounting.evidence import refutation
from dpfl.accounting.measured.measured import Measured, audit_section
from dpfl.accounting.part import (
    ASSUMPTION,
    CHECKED,
    DEFINITION,
    MEANING,
    NOT_COVERED,
    TOOK_PART,
    Facts,
)
from dpfl.accounting.reports import checklist
from dpfl.accounting.reports.observed import Guarantee
from dpfl.accounting.selection import Selected
from dpfl.accounting.tradeoff import Tradeoff
from dpfl.mechanisms import rounding

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
    if facts.bullets(part.VOID) or report.guarantee.epsilons[0] is None:
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


# Digits of epsilon in brackets, for comparisons with published numbers; also rounded up.
_DIGITS = 7
_REMARKS = (
    'No guarantee depends on these. `--run_dir` compares them with the settings of the run; in a '
    'report alone they are the words of whoever made it.'
)
_HOW_TO_CHECK = (
    '`dpfl report --run_dir` computes this page again from plan, log and journal of the run, and '
    'names every difference.'
)
_LOG_DIGEST_TEXT = (
    'Observed limits: the guarantee for every client that keeps the limits that all clients of '
    'the log kept. Observed clients: the guarantee for the clients of the log, from the rounds in '
    'which they really took part, without amplification by sampling.'
)
_NO_AUDIT = 'None was made with this run: nothing here was measured by an attack.'
_SHOWN_RATES = (1e-4, 1e-3, 0.01, 0.1)
# Longer lists of clip norms are cut.
_MOST_NORMS = 12
# The symbols and terms of a report.
_TERMS = {
    'client': 'one participant with all of its data: the unit of privacy.',
    'epsilon, delta': 'whatever is released is at most e^epsilon times as probable with a client '
    'as without it, except for events of probability delta. Smaller is more private.',
    'zCDP, rho': 'zero-concentrated differential privacy (Bun and Steinke 2016): a bound for all '
    'deltas at once, which adds up over runs. rho = mu^2 / 2.',
    'Gaussian DP, mu': 'telling a client apart from its absence is at least as hard as telling two '
    'normal distributions of variance 1 apart whose means differ by mu (Dong, Roth and Su 2022).',
    'clip norm': 'largest L2 norm of what one client sends in a round; longer updates are scaled '
    'down to it.',
    'noise multiplier': 'standard deviation of the noise z, divided by the clip norm.',
    'C': 'the strategy matrix of the mechanism, lower triangular, a row and a column for each '
    'round. The noise of the rounds is C^-1 z, with independent entries of z.',
    'C x': 'what z hides: x has the clipped sum of each round. C x + z is released in effect, and '
    'everything else follows from it.',
    'sensitivity': 'largest norm of C u, where u has 1 in the rounds of one client and 0 in the '
    'others: how far one client moves C x, at clip norm 1.',
    'min separation, max participations': 'least distance j - i of two rounds i < j of one client, '
    'and most rounds of one client.',
    'observed limits, observed clients': 'the same limits as all clients of the log kept them, and '
    'exactly the rounds in which they took part.',
}


class Section(NamedTuple):
    """A part of the page.

    Attributes:
      title: its heading.
      text: what it says, in Markdown.
    """

    title: str
    text: str


def render(report: 'PrivacyReport') -> str:
    """The whole page."""
    parts = [
        f'# Privacy report: {" ".join(headline(report))}',
        *([] if report.about is None else [report.about.line()]),
        opening(report),
        *(f'## {section.title}\n\n{section.text}' for section in sections(report)),
    ]
    return '\n\n'.join(parts) + '\n'


def headline(report: 'PrivacyReport') -> tuple[str, str]:
    """Epsilon with warnings, if it must not be believed as it is; then its delta and unit."""
    whole, observed = report.guarantee.epsilons[0], report.observed
    if whole is None:
        return 'no guarantee', ''
    delta = rounding.shown_delta(report.deltas[0])
    first, where = whole, f'at delta = {delta}, for {_unit(report)}'
    if report.so_far is not None and report.so_far[0] is not None and observed is not None:
        first, planned = report.so_far[0], report.plan.participation.rounds
        shown = rounding.round_up(whole)
        where = f'after {observed.rounds} rounds, {shown} after all {planned}, {where}'
    warnings = [
        *(['refuted by its audit'] if report.measured and report.measured.refutations else []),
        *(['a simulation'] if checklist.seeded_secrets(report) else []),
        *(['the log breaks the plan'] if report.basis == 'log' else []),
    ]
    value = f'epsilon = {rounding.round_up(first)}'
    return value + (f' ({", ".join(warnings)})' if warnings else ''), where


def opening(report: 'PrivacyReport') -> str:
    """The text below the headline: the statement, and its meaning for one client."""
    meaning = ' '.join(report.facts.bullets(MEANING))
    return f'**{checklist.statement(report)}**\n\n{meaning}'


def sections(report: 'PrivacyReport') -> list[Section]:
    """All other parts, in order: those that every reader needs come first."""
    of_run = TOOK_PART, CHECKED
    took_part, checked = (' '.join(report.facts.bullets(kind)) for kind in of_run)
    if report.observed is not None and report.observed.violations:
        checked += f'\n\n{_bullets(report.observed.violations)}'
    if report.journal_head is not None:
        checked += f'\n\n{_HOW_TO_CHECK}'
    titled = [
        ('Who took part', took_part),
        ('What was checked', checked),
        ('Not covered', _bullets(report.facts.bullets(NOT_COVERED))),
        ('Mechanism, noise and clip norm', _mechanism(report)),
        ('Definition and accounting', _checklist(report)),
        ('Assumptions', _bullets(report.facts.bullets(ASSUMPTION))),
        ('Numbers', _numbers(report)),
        ('Membership tests', report.tradeoff and _tradeoff(report, report.tradeoff)),
        ('Selection', report.selected and _selection(report, report.selected)),
        ('Audit', _measured(report, report.measured) if report.measured else _NO_AUDIT),
        ('Course of the run', _bullets(report.history)),
        ('Remarks', report.remarks and f'{_REMARKS}\n\n{_bullets(report.remarks)}'),
        ('Glossary', _bullets(f'**{term}**: {meaning}' for term, meaning in _TERMS.items())),
    ]
    return [Section(title, text) for title, text in titled if text]


def _bullets(items: Iterable[str]) -> str:
    return '\n'.join(f'- {item}' for item in items)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = (''.join(f'| {cell} ' if cell else '| ' for cell in row) + '|' for row in (head, *rows))
    first, *others = lines
    return '\n'.join([first, '|---' * len(head) + '|', *others])


def _checklist(report: 'PrivacyReport') -> str:
    is_approximate = report.uses_sampling or report.plan.delta_before
    kind = 'approximate DP' if is_approximate else 'zCDP'
    output = report.facts.text(DEFINITION, 'output')
    adjacency = report.facts.text(DEFINITION, 'adjacency')
    return '\n'.join(
        [
            '1. **DP setting.** Central DP: the server sees clipped updates and is trusted to '
            'add the noise.',
            '2. **Definition**',
            '    - *Data accesses covered*: one training run, all clients that follow the '
            'algorithm.',
            f'    - *Output of the mechanism*: {output}',
            f'    - *Unit of privacy*: {_unit(report)}.',
            f'    - *Adjacency*: {adjacency}',
            '3. **Accounting**',
            f'    - *Type*: {kind}; epsilon by {checklist.accountant(report)}.',
            f'    - *Participation*: {_participation(report)}',
            f'    - *Formal statement*: {checklist.statement(report)}',
            '    - *Verifiability*: `dpfl report` recomputes these numbers from the parameters '
            f'above. {_rounds(report)}',
        ]
    )


def _unit(report: 'PrivacyReport') -> str:
    size = report.plan.group_size
    if size == 1:
        return 'a client with all of its data'
    return f'{size} clients with all of their data'


def _rounds(report: 'PrivacyReport') -> str:
    ended = checklist.early_end(report)
    if ended:
        return f'The run ended {ended}.'
    if report.observed is None:
        return f'The plan has {report.guarantee.rounds} rounds.'
    return f'The run had {report.observed.rounds} rounds.'


def _participation(report: 'PrivacyReport') -> str:
    holds, plan = report.guarantee, report.plan
    if not report.uses_sampling:
        apart = f', at least {holds.min_separation} apart' if holds.max_participations > 1 else ''
        return f'at most {holds.max_participations} of {holds.rounds} rounds per client{apart}.'
    assert plan.sampling is not None  # As the guarantee uses it.
    return (
        f'{plan.sampling.title()}, {plan.clients_per_round} of {plan.population} clients in each '
        f'of {holds.rounds} rounds; the guarantee uses privacy amplification by sampling.'
    )


def _numbers(report: 'PrivacyReport') -> str:
    columns = [('plan', report.plan_guarantee)]
    for name, guarantee in (
        ('observed limits', report.observed_guarantee),
        ('observed clients', report.pattern_guarantee),
    ):
        if guarantee is not None:
            columns.append((name, guarantee))
    round_up = rounding.round_up
    rows: list[tuple[str, Callable[[Guarantee], int | str]]] = [
        ('rounds', lambda g: g.rounds),
        ('min separation', lambda g: g.min_separation),
        ('max participations', lambda g: g.max_participations),
        ('sensitivity (clip norm 1)', lambda g: round_up(g.sensitivity)),
        ('rho (zCDP)', lambda g: round_up(g.rho)),
        ('mu (Gaussian DP)', lambda g: round_up(g.mu)),
    ]
    rows += [
        (f'epsilon at delta = {rounding.shown_delta(delta)}', functools.partial(_epsilon, place=i))
        for i, delta in enumerate(report.deltas)
    ]
    table = _table(
        ['', *(name for name, _ in columns)],
        ([label, *(str(value(g)) for _, g in columns)] for label, value in rows),
    )
    return table if report.observed is None else f'{table}\n\n{_LOG_DIGEST_TEXT}'


def _tradeoff(report: 'PrivacyReport', curve: Tradeoff) -> str:
    secrets = checklist.seeded_secrets(report)
    sampling = report.plan.sampling
    is_uncertain = sampling is not None and sampling.caveat
    confidence = ', with the confidence of epsilon' if is_uncertain else ''
    whose = 'the client' if report.plan.group_size == 1 else 'the group'
    return '\n\n'.join(
        [
            f'A test tells from all releases of the run{" (without its seeds)" if secrets else ""} '
            f'whether it used the data of {whose}, or is the neighbouring run. No test reaches '
            'more than the following, whatever else it knows '
            + (
                f'(upper bounds{confidence}).'
                if report.uses_sampling
                else '(exact, for the worst data).'
            ),
            _table(
                ['false positive rate', 'largest true positive rate'],
                (
                    [f'{rate:g}', f'{min(1.0, float(rounding.round_up(true))):.4g}']
                    for rate, true in curve.points
                    if rate in _SHOWN_RATES
                ),
            ),
            'Largest difference of the two rates (advantage): '
            f'{min(1.0, float(rounding.round_up(curve.advantage))):.4g}. Least probability of a '
            'wrong answer if both runs are equally likely (Bayes risk): '
            f'{rounding.round_down(curve.error, 3)}.',
        ]
    )


def _selection(report: 'PrivacyReport', selected: Selected) -> str:
    return (
        f'**{checklist.statement_selected(report, selected)}** By Renyi DP (Papernot and Steinke '
        '2022). This counts that many runs with fresh noise each, whose settings were chosen '
        'without looking at the data or at other runs, and whose number was drawn in advance. The '
        'score that chose the best may be exact; it must not be released, and nothing of the other '
        'runs either. There is no such rho: the bound is not one of zCDP.'
    )


def _measured(report: 'PrivacyReport', measured: Measured) -> str:
    text = audit_section(measured)
    if report.basis == 'plan':
        return text
    return f'The claim is that of the plan, which the participation log breaks.\n\n{text}'


def _epsilon(holds: Guarantee, place: int) -> str:
    """Epsilon, rounded up, and in brackets with more digits, if it has more."""
    epsilon = holds.epsilons[place]
    shown, exact = rounding.round_up(epsilon), rounding.round_up(epsilon, _DIGITS)
    return shown if shown == exact else f'{shown} ({exact})'


def _mechanism(report: 'PrivacyReport') -> str:
    plan = report.plan
    part = 'part' if report.uses_sampling else 'not part'
    lines = [
        f'mechanism: {plan.mechanism.name}, parameters with SHA-256 {plan.mechanism.digest()}',
        f'noise multiplier: {plan.noise_multiplier:g} (standard deviation / clip norm)',
        f'clip norm: {plan.clip_norm:g}',
        f'planned clients per round: {plan.clients_per_round} ({part} of the guarantee)',
    ]
    if plan.sampling is not None:
        own = plan.sampling.to_dict()
        lines += [f'{name.replace("_", " ")}: {value}' for name, value in own.items()]
    course = [] if report.clip_course is None else _clip_norms(report.clip_course)
    return '\n\n'.join([_bullets(lines), *course])


def _clip_norms(course: ClipCourse) -> list[str]:
    """What the course of a clip norm tells the next run, and the course."""
    rows = [[f'{first}', f'{norm:.6g}'] for first, norm in course.norms[:_MOST_NORMS]]
    left = len(course.norms) - _MOST_NORMS
    if left > 0:
        first, norm = course.norms[-1]
        rows.append([f'and {left} later changes, the last in {first}', f'{norm:.6g}'])
    return [
        'The estimate of the quantile after the last round is '
        f'{course.estimate:.6g}: `--clip_norm={course.estimate:.6g}` fixes the clip norm of '
        'another run to it (Xu et al. 2023, section 2.5). Like the models, norms and estimate are '
        'computed from noised sums alone. `metrics.csv` has them for every round.',
        _table(['from round (counted from 0)', 'clip norm'], rows),
    ]
