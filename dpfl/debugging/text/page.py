"""The page of the study: verdicts, what differs, what the generators write, and the privacy cost.

The page is one HTML file that loads nothing from elsewhere. No TensorFlow.
"""

import html
from typing import TYPE_CHECKING

from dpfl.debugging.differences import Mean
from dpfl.debugging.text import background, tables, traits
from dpfl.reporting import charts, html_page, html_parts
from dpfl.reporting.html_parts import Cell

if TYPE_CHECKING:
    from dpfl.debugging.text.results import CaseResult, Compared, Written
    from dpfl.debugging.text.study import Found


def render(found: 'Found') -> str:
    """The page as HTML."""
    written = [(case, one) for case in found.cases for one in case.written.values()]
    parts = [
        '<h1>What generators say about text that nobody may look at</h1>',
        '<h2>Verdicts</h2>',
        _verdicts(found),
        _introduction(found),
        *_differences(found),
        *_improbable(found),
        *_learned(found),
        *_positions(written),
        *_rankings(written),
        *_phrases(written),
        '<h2>All traits</h2>',
        _traits(written),
        '<h2>How to read the verdicts</h2>',
        background.method(),
        '<h2>Models and privacy</h2>',
        background.models([(_name(*each), each[1].model) for each in written]),
        background.privacy(found),
    ]
    return html_page.document('Text debugging', '\n'.join(parts), tables.STYLE)


def _introduction(found: 'Found') -> str:
    kinds = ', '.join(
        dict.fromkeys(one.generator.of_what for one in found.cases[0].written.values())
    )
    injected = (
        ' Faults were injected on purpose, to see whether they are found.'
        if len(found.cases) > 1
        else ''
    )
    return (
        '<p>Generative models learned from text under user-level differential privacy, and people '
        f'look only at what these models write (Augenstein et al. 2020). They learned from: '
        f'{html.escape(kinds)}.{injected} Nothing on this page is copied from the text of a client.'
        '</p>'
    )


def _verdicts(found: 'Found') -> str:
    items = ''.join(
        f'<li><strong>{html.escape(each.title)}: {tables.verdict(each.diagnosis.verdict)}.'
        f'</strong> {html.escape(each.diagnosis.text[:1].upper() + each.diagnosis.text[1:])}</li>\n'
        for each in found.compared
    )
    return f'<ul>{items}</ul>' if items else '<p>Nothing was compared.</p>'


def _differences(found: 'Found') -> list[str]:
    parts = []
    for each in found.compared:
        differs = each.diagnosis.differences
        if not differs and not each.examples:
            continue
        parts.append(f'<h3>{html.escape(each.title)}</h3>')
        if differs:
            parts.append(tables.of_traits(differs, each.diagnosis.clear))
        if any(difference.name in traits.SENTENCE_NAMES for difference in differs):
            parts.append(tables.of_words(each.words))
        parts.append(_examples(each))
    return ['<h2>What differs</h2>', *parts] if parts else []


def _examples(compared: 'Compared') -> str:
    if not compared.examples:
        return ''
    items = ''.join(
        f'<li>{html.escape(traits.ALL[name].meaning)}: '
        + ', '.join(f'<code>{html.escape(word)}</code>' for word in words)
        + '</li>\n'
        for name, words in compared.examples.items()
    )
    return (
        f'<p>What the character model writes most often with these traits:</p>\n<ul>{items}</ul>\n'
    )


def _improbable(found: 'Found') -> list[str]:
    title = '<h2>Sentences that the primary model finds improbable (T6)</h2>'
    parts = [title] if found.ratios else []
    for each in found.ratios:
        rows = [[sentence, Cell(f'{ratio:.2f}')] for sentence, ratio in each.improbable]
        parts += [
            f'<p>{html.escape(each.case)}: the log-likelihood ratio, private generator against '
            f'primary model, is {_nats(each.private)} in sentences that the private generator '
            f'writes, and {_nats(each.public)} in those that the primary model writes. It is zero '
            'on average only if both write the same. In brackets: 95% intervals of the '
            'samples.</p>',
            html_parts.table(['sentence', 'nats per word'], rows),
        ]
    return parts


def _learned(found: 'Found') -> list[str]:
    if not found.learned:
        return []
    rows = [
        [
            each.case,
            *(Cell(f'{value:.4f}') for value in each.accuracy),
            Cell(_interval(each.accuracy_gained, '{:+.4f}')),
            *(Cell(f'{value:.3f}') for value in each.loss),
            Cell(_interval(each.loss_gained, '{:+.3f}')),
        ]
        for each in found.learned
    ]
    names = ['text', 'accuracy before', 'after', 'change', 'loss before (nats)', 'after', 'change']
    return [
        '<h2>What the primary model learns from private sentences (T5)</h2>',
        f'<p>It goes on learning from {found.learned[0].sentences:,} sentences that the private '
        'generator wrote, whose labels are their next words, and is measured on held-out clients. '
        'In brackets: 95% intervals over their sentences. People may label the sentences '
        'otherwise.</p>',
        html_parts.table(names, rows),
    ]


def _nats(mean: Mean) -> str:
    return _interval(mean, '{:.3f}') + ' nats per word'


def _interval(mean: Mean, form: str) -> str:
    low, high = (form.format(bound) for bound in mean.interval())
    return f'{form.format(mean.value)} ({low} to {high})'


def _positions(written: 'list[tuple[CaseResult, Written]]') -> list[str]:
    shown = [(case, one) for case, one in written if one.positions]
    if not shown:
        return []
    lines = []
    for number, (case, one) in enumerate(shown):
        known = [(at, share) for at, share in enumerate(one.positions, start=1) if share.count]
        intervals = [share.interval() for _, share in known]
        lines.append(
            charts.Line(
                _name(case, one),
                [at for at, _ in known],
                [100 * share.value for _, share in known],
                number,
                ends=[(100 * low, 100 * high) for low, high in intervals],
            )
        )
    title = 'Unknown words by position'
    panel = charts.Panel(title, 'position in the sentence', 'unknown words (%)', lines)
    rows = [
        [_name(case, one), Cell(f'{one.heldout_oov_rate:.2%}')]
        for case, one in shown
        if one.heldout_oov_rate is not None
    ]
    return [
        f'<h2>{title}</h2>',
        html_parts.figure(
            charts.draw([panel], 1),
            f'Share of the words outside the vocabulary at each position, in '
            f'{len(shown[0][1].tokens):,} sentences that each generator wrote, with 95% intervals '
            'of the samples (without what varies between trainings).',
        ),
        html_parts.folded(
            'The true share in the text of held-out clients',
            html_parts.table(['generator', 'unknown words'], rows)
            + '<p>Only a simulation can show it, and no guarantee covers it.</p>',
        ),
    ]


def _rankings(written: 'list[tuple[CaseResult, Written]]') -> list[str]:
    shown = [(case, one.ranking) for case, one in written if one.ranking is not None]
    if not shown:
        return []
    rows = []
    for i in range(max(len(ranking.words) for _, ranking in shown)):
        row: list[str] = []
        for _, ranking in shown:
            words = ranking.words[i : i + 1]
            row += [words[0].word, Cell(f'{1e3 * words[0].probability:.2f}')] if words else ['', '']
        rows.append(row)
    names = [cell for case, _ in shown for cell in (case.case.name, 'probability (10⁻³)')]
    missing = max(ranking.missing for _, ranking in shown)
    return [
        '<h2>Most probable unknown words</h2>',
        html_parts.table(names, rows),
        f'<p>Each character model wrote {shown[0][1].samples:,} words, ranked here by the joint '
        'probability of their characters (Augenstein et al. 2020, equation 1), without the words '
        'of the vocabulary. The probability that a ranking lacks a word because it was never drawn '
        f'is at most {missing:.2g}.</p>',
    ]


def _phrases(written: 'list[tuple[CaseResult, Written]]') -> list[str]:
    shown = [(case, one) for case, one in written if one.phrases]
    if not shown:
        return []
    lists = ''.join(
        f'<h3>{html.escape(_name(case, one))}</h3>\n<ul>'
        + ''.join(f'<li>{html.escape(phrase)}</li>' for phrase in one.phrases)
        + '</ul>\n'
        for case, one in shown
    )
    return ['<h2>Sentences that the generators write</h2>', lists]


def _traits(written: 'list[tuple[CaseResult, Written]]') -> str:
    parts = []
    for names in (traits.SENTENCE_NAMES, traits.WORD_NAMES):
        shown = [(case, one) for case, one in written if set(one.traits) == set(names)]
        if not shown:
            continue
        rows = [
            [
                traits.ALL[name].meaning,
                *(Cell(tables.measured(name, one.traits[name])) for _, one in shown),
            ]
            for name in names
        ]
        parts.append(html_parts.table(['trait', *(_name(*each) for each in shown)], rows))
    return '\n'.join(parts) + '<p>In brackets: 95% intervals of the samples.</p>'


def _name(case: 'CaseResult', one: 'Written') -> str:
    return f'{one.generator.name} ({case.case.name})'
