"""The page of a privacy report in Markdown, and its statement: what is guaranteed to whom."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from dpfl import _json
from dpfl.accounting.measured.measured import audit_section
from dpfl.accounting.part import (
    ASSUMPTION,
    CHECKED,
    COMPOSED,
    DEFINITION,
    MEANING,
    NOT_COVERED,
    TOOK_PART,
    VOID,
)
from dpfl.accounting.reports.sentences import counted
from dpfl.accounting.selection import Selected
from dpfl.accounting.tradeoff import Tradeoff
from dpfl.mechanisms import rounding

if TYPE_CHECKING:
    from dpfl.accounting.reports.report import PrivacyReport

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
_ACCOUNTANT = {
    'pld': 'privacy loss distribution (dp_accounting), pessimistic by the width of its grid',
    'rdp': 'Renyi DP (dp_accounting), converted to epsilon, an upper bound',
    'analytic_gaussian': 'exact curve of the Gaussian mechanism (Balle and Wang 2018, theorem 8)',
    'monte_carlo': 'Monte Carlo estimate, an upper confidence bound',
    'moments': 'integer moments up to 32 with the classic conversion (McMahan et al. 2018), an '
    'upper bound and the loosest of the accountants',
}


def unit(report: 'PrivacyReport') -> str:
    """Whom the guarantee protects."""
    size = report.plan.group_size
    return 'each client' if size == 1 else f'every group of {size} clients'


def _accountant(report: 'PrivacyReport') -> str:
    """How epsilon was computed."""
    used = dict.fromkeys(report.guarantee.accountants or (report.accountant,))
    how = ' and '.join(_ACCOUNTANT[name] for name in used)
    if report.accountant == 'best':
        return f'{how}; the smallest epsilon of all accountants that support the plan'
    if report.accountant not in used or len(used) > 1:
        return f'{how}; accountant={report.accountant} gives no value for these numbers'
    return how


def statement(report: 'PrivacyReport') -> str:
    """The formal statement, in one sentence; before it a second one if an audit refutes it."""
    if report.measured is None or not report.measured.refutations:
        return _statement(report)
    reasons = '; '.join(report.measured.refutations)
    return f'The audit of the run refutes what follows ({reasons}). {_statement(report)}'


def _statement(report: 'PrivacyReport') -> str:
    holds = report.guarantee
    if void := report.facts.bullets(VOID):
        return f'No differential privacy: {void[0]}.'
    revealed = report.plan.delta_before
    kind = f'{rounding.round_up(revealed)}-approximate ' if revealed else ''
    parts = [] if holds.rho is None else [f'{kind}{rounding.round_up(holds.rho)}-zCDP']
    parts += _in_words(report, holds.epsilons)
    without = [
        f'{delta:g}'
        for epsilon, delta in zip(holds.epsilons, report.deltas, strict=True)
        if epsilon is None
    ]
    if not parts:
        return f'No differential privacy: there is no epsilon at delta = {", ".join(without)}.'
    secrets = seeded_secrets(report)
    run = 'The run' if report.observed is not None else 'A run of this plan'
    if secrets:
        run = f'Simulation: with secret {" and ".join(secrets)} this run'
    run += ''.join(report.facts.bullets(COMPOSED))
    ended = _early_end(report)
    run = f'{run.removesuffix(",")}, which ended {ended},' if ended else run
    verb = 'would satisfy' if secrets else 'satisfies'
    whom = f'for {unit(report)}{_exception([report])}'
    no_epsilon = f' There is no epsilon at delta = {", ".join(without)}.' if without else ''
    if report.so_far is None or None in report.so_far:
        return f'{run} {verb} {" and ".join(parts)} {whom}.{no_epsilon}'
    so_far = ' and '.join(_in_words(report, report.so_far))
    return (
        f'{run} {verb} {so_far} {whom}, if what ended it did not depend on the data. In any case '
        f'it {verb} {" and ".join(parts)}, the guarantee of all '
        f'{report.plan.participation.rounds} planned rounds.{no_epsilon}'
    )


def _in_words(report: 'PrivacyReport', epsilons: Sequence[float | None]) -> list[str]:
    return [
        f'({rounding.round_up(epsilon)}, {rounding.shown_delta(delta)})-DP'
        for epsilon, delta in zip(epsilons, report.deltas, strict=True)
        if epsilon is not None
    ]


def statement_together(reports: 'Sequence[PrivacyReport]', guarantee: str) -> str:
    """What several runs on the same clients satisfy together, in one sentence.

    Args:
      reports: one of each run.
      guarantee: in words; empty if there is none.
    """
    subject = f'This run and {len(reports) - 1} other(s) on the same clients together'
    if not guarantee:
        return f'{subject}: no differential privacy.'
    secrets = sorted({secret for report in reports for secret in seeded_secrets(report)})
    if secrets:
        subject = (
            f'Simulation: with secret {" and ".join(reversed(secrets))} this run and '
            f'{len(reports) - 1} other(s) on the same clients would together satisfy'
        )
    else:
        subject += ' satisfy'
    sampled = sum(report.uses_sampling for report in reports) > 1
    how = ', if the cohorts of each run were drawn independently' if sampled else ''
    return f'{subject} {guarantee} for {unit(reports[0])}{_exception(reports)}{how}.'


def statement_selected(report: 'PrivacyReport', selected: Selected) -> str:
    """What the best of several such runs satisfies, in one sentence."""
    subject = (
        f'The best of a random number of such runs, drawn from a {selected.selection.describe()}, '
        'of which only that one is released,'
    )
    parts = _in_words(report, [_json.finite(epsilon) for epsilon in selected.epsilons])
    if not parts:
        return f'{subject} has no differential privacy.'
    secrets = seeded_secrets(report)
    verb = f'would with secret {" and ".join(secrets)} satisfy' if secrets else 'satisfies'
    return f'{subject} {verb} {" and ".join(parts)} for {unit(report)}{_exception([report])}.'


def seeded_secrets(report: 'PrivacyReport') -> list[str]:
    """Which secrets of the guarantee come from a known seed: with any, the run is a simulation."""
    return [
        *(['noise'] if report.noise_is_seeded else []),
        *(['cohorts'] if report.sampling_is_seeded and report.uses_sampling else []),
    ]


def _early_end(report: 'PrivacyReport') -> str:
    """After how many of the planned rounds the log ends, in words; empty if it has all of them."""
    if report.observed is None or not report.ended_early:
        return ''
    return f'after {report.observed.rounds} of {report.plan.participation.rounds} planned rounds'


def _exception(reports: 'Sequence[PrivacyReport]') -> str:
    text = ''
    if any(report.warm_start_is_public for report in reports):
        text = ', provided that the model that training began with is public, as was declared'
    if any(report.train_metrics_released for report in reports):
        text += (
            ', except for the metrics of the training clients, which were released without noise'
        )
    return text


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
        ran = counted(str(observed.rounds), 'round')
        where = f'after {ran}, {shown} after all {planned}, {where}'
    warnings = [
        *(['refuted by its audit'] if report.measured and report.measured.refutations else []),
        *(['a simulation'] if seeded_secrets(report) else []),
        *(['the log breaks the plan'] if report.basis == 'log' else []),
    ]
    value = f'epsilon = {rounding.round_up(first)}'
    return value + (f' ({", ".join(warnings)})' if warnings else ''), where


def opening(report: 'PrivacyReport') -> str:
    """The text below the headline: the statement, and its meaning for one client."""
    meaning = ' '.join(report.facts.bullets(MEANING))
    return f'**{statement(report)}**\n\n{meaning}'


def sections(report: 'PrivacyReport') -> list[Section]:
    """All other parts, in order: those that every reader needs come first."""
    of_run = TOOK_PART, CHECKED
    took_part, checked = (' '.join(report.facts.bullets(kind)) for kind in of_run)
    if report.observed is not None and report.observed.violations:
        checked += f'\n\n{_bullets(report.observed.violations)}'
    if report.journal_head is not None:
        checked += f'\n\n{_HOW_TO_CHECK}'
    audit = audit_section(report.measured) if report.measured else _NO_AUDIT
    if report.measured and report.basis != 'plan':
        audit = f'The claim is that of the plan, which the participation log breaks.\n\n{audit}'
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
        ('Audit', audit),
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
    holds, plan, ended = report.guarantee, report.plan, _early_end(report)
    if report.uses_sampling:
        assert plan.sampling is not None  # As the guarantee uses it.
        participation = (
            f'{plan.sampling.title()}, {plan.clients_per_round} of {plan.population} clients in '
            f'each of {holds.rounds} rounds; the guarantee uses privacy amplification by sampling.'
        )
    else:
        apart = f', at least {holds.min_separation} apart' if holds.max_participations > 1 else ''
        participation = (
            f'at most {holds.max_participations} of {holds.rounds} rounds per client{apart}.'
        )
    if ended:
        rounds = f'The run ended {ended}.'
    elif report.observed is None:
        rounds = f'The plan has {counted(str(holds.rounds), "round")}.'
    else:
        rounds = f'The run had {counted(str(report.observed.rounds), "round")}.'
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
            f'    - *Type*: {kind}; epsilon by {_accountant(report)}.',
            f'    - *Participation*: {participation}',
            f'    - *Formal statement*: {statement(report)}',
            '    - *Verifiability*: `dpfl report` recomputes these numbers from the parameters '
            f'above. {rounds}',
        ]
    )


def _unit(report: 'PrivacyReport') -> str:
    size = report.plan.group_size
    if size == 1:
        return 'a client with all of its data'
    return f'{size} clients with all of their data'


def _numbers(report: 'PrivacyReport') -> str:
    columns = [('plan', report.plan_guarantee)]
    for name, guarantee in (
        ('observed limits', report.observed_guarantee),
        ('observed clients', report.pattern_guarantee),
    ):
        if guarantee is not None:
            columns.append((name, guarantee))
    guarantees, round_up = [guarantee for _, guarantee in columns], rounding.round_up
    rows = [
        ['rounds', *(f'{holds.rounds}' for holds in guarantees)],
        ['min separation', *(f'{holds.min_separation}' for holds in guarantees)],
        ['max participations', *(f'{holds.max_participations}' for holds in guarantees)],
        ['sensitivity (clip norm 1)', *(round_up(holds.sensitivity) for holds in guarantees)],
        ['rho (zCDP)', *(round_up(holds.rho) for holds in guarantees)],
        ['mu (Gaussian DP)', *(round_up(holds.mu) for holds in guarantees)],
    ]
    for i, delta in enumerate(report.deltas):
        rows.append([f'epsilon at delta = {rounding.shown_delta(delta)}'])
        for holds in guarantees:
            epsilon = holds.epsilons[i]
            shown, exact = round_up(epsilon), round_up(epsilon, _DIGITS)
            rows[-1].append(shown if shown == exact else f'{shown} ({exact})')
    table = _table(['', *(name for name, _ in columns)], rows)
    return table if report.observed is None else f'{table}\n\n{_LOG_DIGEST_TEXT}'


def _tradeoff(report: 'PrivacyReport', curve: Tradeoff) -> str:
    secrets = seeded_secrets(report)
    sampling = report.plan.sampling
    is_uncertain = sampling is not None and sampling.caveat
    confidence = ', with the confidence of epsilon' if is_uncertain else ''
    # Of one Gaussian mechanism, whose largest shift a client attains.
    is_exact = report.guarantee.sensitivity_is_exact and not (
        report.uses_sampling or report.plan.run.others
    )
    whose = 'the client' if report.plan.group_size == 1 else 'the group'
    return '\n\n'.join(
        [
            f'A test tells from all releases of the run{" (without its seeds)" if secrets else ""} '
            f'whether it used the data of {whose}, or is the neighbouring run. No test reaches '
            'more than the following, whatever else it knows '
            + ('(exact, for the worst data).' if is_exact else f'(upper bounds{confidence}).'),
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
        f'**{statement_selected(report, selected)}** By Renyi DP (Papernot and Steinke '
        '2022). This counts that many runs with fresh noise each, whose settings were chosen '
        'without looking at the data or at other runs, and whose number was drawn in advance. The '
        'score that chose the best may be exact; it must not be released, and nothing of the other '
        'runs either. There is no such rho: the bound is not one of zCDP.'
    )


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
    course = report.clip_course
    if course is None:
        return _bullets(lines)
    rows = [[f'{first}', f'{norm:.6g}'] for first, norm in course.norms[:_MOST_NORMS]]
    left = len(course.norms) - _MOST_NORMS
    if left > 0:
        first, norm = course.norms[-1]
        rows.append([f'and {left} later changes, the last in {first}', f'{norm:.6g}'])
    return '\n\n'.join(
        [
            _bullets(lines),
            # What the course tells the next run.
            'The estimate of the quantile after the last round is '
            f'{course.estimate:.6g}: `--clip_norm={course.estimate:.6g}` fixes the clip norm of '
            'another run to it (Xu et al. 2023, section 2.5). Like the models, norms and estimate '
            'are computed from noised sums alone. `metrics.csv` has them for every round.',
            _table(['from round (counted from 0)', 'clip norm'], rows),
        ]
    )
