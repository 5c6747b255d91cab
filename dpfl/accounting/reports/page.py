"""The readable page of a privacy report, in Markdown."""

import functools
from collections.abc import Callable, Iterable

from dpfl.accounting import facts
from dpfl.accounting.measured import section
from dpfl.accounting.measured.measured import Measured
from dpfl.accounting.reports import card, checklist, glossary
from dpfl.accounting.reports.observed import Guarantee, Observed
from dpfl.accounting.reports.report_values import ReportValues
from dpfl.accounting.selection import Selected
from dpfl.accounting.tradeoff import Tradeoff
from dpfl.mechanisms import rounding

# Longer lists of how often clients took part are cut.
_MOST_COUNTS = 12
_REMARKS = (
    'No guarantee depends on these. `--run_dir` compares them with the settings of the run; in a '
    'report alone they are the words of whoever made it.'
)
_SHOWN_RATES = (1e-4, 1e-3, 0.01, 0.1)


def render(report: ReportValues) -> str:
    """The whole page."""
    sections = [
        '# Privacy report',
        card.render(report),
        f'**{checklist.statement(report)}**',
        *([] if report.observed is None else [_log_section(report, report.observed)]),
        *(['## Clip norm', report.clip_course.render()] if report.clip_course else []),
        *(['## Course of the run', _bullets(report.history)] if report.history else []),
        *(['## Selection', _selection(report, report.selected)] if report.selected else []),
        '## Checklist',
        _checklist(report),
        '## Assumptions',
        _bullets(report.facts.bullets(facts.ASSUMPTION)),
        '## Not covered',
        _bullets(report.facts.bullets(facts.NOT_COVERED)),
        *(['## Remarks', _REMARKS, _bullets(report.remarks)] if report.remarks else []),
        '## Numbers',
        _numbers(report),
        *(['## Membership tests', _tradeoff(report, report.tradeoff)] if report.tradeoff else []),
        *(['## Measured', _measured(report, report.measured)] if report.measured else []),
        _run(report),
        '## Glossary',
        glossary.render(),
    ]
    return '\n\n'.join(sections) + '\n'


def _bullets(items: Iterable[str]) -> str:
    return '\n'.join(f'- {item}' for item in items)


def _checklist(report: ReportValues) -> str:
    is_approximate = report.uses_sampling or report.plan.delta_before
    kind = 'approximate DP' if is_approximate else 'zCDP'
    output = report.facts.text(facts.DEFINITION, 'output')
    adjacency = report.facts.text(facts.DEFINITION, 'adjacency')
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
            '    - *Verifiability*: `python -m experiments.report_privacy` recomputes these '
            'numbers from the parameters below. With `--run_dir` it recomputes them from the '
            f"directory of the run, and also checks the directory's files. {_rounds(report)}",
        ]
    )


def _unit(report: ReportValues) -> str:
    size = report.plan.group_size
    if size == 1:
        return 'a client with all of its data'
    return f'{size} clients with all of their data'


def _rounds(report: ReportValues) -> str:
    ended = checklist.early_end(report)
    if ended:
        return f'The run ended {ended}.'
    if report.observed is None:
        return f'The plan has {report.guarantee.rounds} rounds.'
    return f'The run had {report.observed.rounds} rounds.'


def _participation(report: ReportValues) -> str:
    holds, plan = report.guarantee, report.plan
    if not report.uses_sampling:
        apart = f', at least {holds.min_separation} apart' if holds.max_participations > 1 else ''
        return f'at most {holds.max_participations} of {holds.rounds} rounds per client{apart}.'
    assert plan.sampling is not None  # As the guarantee uses it.
    return (
        f'{plan.sampling.title()}, {plan.clients_per_round} of {plan.population} clients in each '
        f'of {holds.rounds} rounds; the guarantee uses privacy amplification by sampling.'
    )


def _log_section(report: ReportValues, observed: Observed) -> str:
    verdict = (
        'The participation log **breaks the plan**; the statement above is for what happened.'
        if observed.violations
        else 'The participation log keeps the plan.'
    )
    times = ', '.join(
        f'{clients} {_times(count)}'
        for count, clients in observed.clients_by_participations[:_MOST_COUNTS]
    )
    sizes = sorted({observed.smallest_cohort, observed.largest_cohort})
    more = ', ...' if len(observed.clients_by_participations) > _MOST_COUNTS else ''
    return '\n\n'.join(
        [
            '## Participation',
            verdict,
            *([_bullets(observed.violations)] if observed.violations else []),
            f'{observed.rounds} rounds recorded '
            f'({report.plan.participation.rounds} planned), cohorts of '
            f'{" to ".join(map(str, sizes))} clients, {observed.clients} clients in all (clients '
            f'by how often they took part: {times}{more}).',
        ]
    )


def _times(count: int) -> str:
    return {1: 'once', 2: 'twice'}.get(count, f'{count} times')


def _numbers(report: ReportValues) -> str:
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
        (f'epsilon at delta = {delta:g}', functools.partial(_epsilon, place=i))
        for i, delta in enumerate(report.deltas)
    ]
    return '\n'.join(
        [
            '| | ' + ' | '.join(name for name, _ in columns) + ' |',
            '|---' * (len(columns) + 1) + '|',
            *(
                f'| {label} | ' + ' | '.join(str(value(g)) for _, g in columns) + ' |'
                for label, value in rows
            ),
        ]
    )


def _tradeoff(report: ReportValues, found: Tradeoff) -> str:
    secrets = checklist.seeded_secrets(report)
    sampling = report.plan.sampling
    is_uncertain = sampling is not None and sampling.caveat
    confidence = ', with the confidence of epsilon' if is_uncertain else ''
    whose = 'the client' if report.plan.group_size == 1 else 'the group'
    return '\n'.join(
        [
            f'A test tells from all releases of the run{" (without its seeds)" if secrets else ""} '
            f'whether it used the data of {whose}, or is the neighbouring run. No test reaches '
            'more than the following, whatever else it knows '
            + (
                f'(upper bounds{confidence}).'
                if report.uses_sampling
                else '(exact, for the worst data).'
            ),
            '',
            '| false positive rate | largest true positive rate |',
            '|---|---|',
            *(
                f'| {rate:g} | {min(1.0, float(rounding.round_up(true))):.4g} |'
                for rate, true in found.points
                if rate in _SHOWN_RATES
            ),
            '',
            'Largest difference of the two rates (advantage): '
            f'{min(1.0, float(rounding.round_up(found.advantage))):.4g}. Least probability of a '
            f'wrong answer if both runs are equally likely (Bayes risk): {found.error:.3g}.',
        ]
    )


def _selection(report: ReportValues, selected: Selected) -> str:
    return (
        f'**{checklist.statement_selected(report, selected)}** By Renyi DP (Papernot and Steinke '
        '2022). This counts that many runs with fresh noise each, whose settings were chosen '
        'without looking at the data or at other runs, and whose number was drawn in advance. The '
        'score that chose the best may be exact; it must not be released, and nothing of the other '
        'runs either. There is no such rho: the bound is not one of zCDP.'
    )


def _measured(report: ReportValues, measured: Measured) -> str:
    text = section.render(measured)
    if report.basis == 'plan':
        return text
    return f'The claim is that of the plan, which the participation log breaks.\n\n{text}'


def _epsilon(holds: Guarantee, place: int) -> str:
    return rounding.round_up(holds.epsilons[place])


def _run(report: ReportValues) -> str:
    plan = report.plan
    part = 'part' if report.uses_sampling else 'not part'
    lines = [
        f'mechanism: {plan.mechanism.name}, parameters with SHA-256 {plan.mechanism.digest()}',
        f'noise multiplier: {plan.noise_multiplier:g} (standard deviation / clip norm)'
        + ('' if plan.noise_match is None else f'. {plan.noise_match.describe()}'),
        f'clip norm: {plan.clip_norm:g}',
        f'planned clients per round: {plan.clients_per_round} ({part} of the guarantee)',
    ]
    if plan.sampling is not None:
        own = plan.sampling.to_dict()
        lines += [f'{name.replace("_", " ")}: {value}' for name, value in own.items()]
    if report.observed is not None:
        lines.append(
            'observed limits: the guarantee for every client that keeps the limits that all '
            'clients of the log kept'
        )
        lines.append(
            'observed clients: the guarantee for the clients of the log, from the rounds in which '
            'they really took part, without amplification by sampling'
        )
    return _bullets(lines)
