"""The page of the study: verdicts, what differs, what the generators write, and the privacy cost.

The page is one HTML file that loads nothing from elsewhere. No TensorFlow.
"""

import html
from typing import TYPE_CHECKING

from matplotlib import figure

from dpfl.debugging.text import diagnosis, traits
from dpfl.reporting import html_page
from experiments.debugging.text import tables
from experiments.debugging.text.tables import Cell

if TYPE_CHECKING:
    from experiments.debugging.text.results import CaseResult, Written
    from experiments.debugging.text.study import Found


def render(found: 'Found') -> str:
    """The page as HTML."""
    written = [(case, one) for case in found.cases for one in case.written.values()]
    parts = [
        '<h1>What generators say about text that nobody may look at</h1>',
        '<h2>Verdicts</h2>',
        _verdicts(found),
        _introduction(found),
        *_differences(found),
        *_positions(written),
        *_rankings(written),
        *_phrases(written),
        '<h2>All traits</h2>',
        _traits(written),
        '<h2>How to read the verdicts</h2>',
        _method(),
        '<h2>Models and privacy</h2>',
        _models(written),
        _privacy(found),
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
        f'{html.escape(kinds)}.{injected} No line of this page is from a client.</p>'
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
        if each.diagnosis.differences:
            parts += [
                f'<h3>{html.escape(each.title)}</h3>',
                tables.of_traits(each.diagnosis.differences, each.diagnosis.clear),
            ]
            if any(name.name in traits.SENTENCE_NAMES for name in each.diagnosis.differences):
                parts.append(tables.of_words(each.words))
    return ['<h2>What differs</h2>', *parts] if parts else []


def _positions(written: 'list[tuple[CaseResult, Written]]') -> list[str]:
    shown = [(case, one) for case, one in written if one.positions]
    if not shown:
        return []
    drawn = figure.Figure(figsize=(8, 4), layout='constrained')
    axes = drawn.add_subplot(xlabel='position in the sentence', ylabel='unknown words (%)')
    for i, (case, one) in enumerate(shown):
        kept = [(at + 1, share) for at, share in enumerate(one.positions) if share.count]
        values = [100 * share.value for _, share in kept]
        bounds = [share.interval() for _, share in kept]
        errors = [
            [value - 100 * low for value, (low, _) in zip(values, bounds, strict=True)],
            [100 * high - value for value, (_, high) in zip(values, bounds, strict=True)],
        ]
        axes.errorbar(
            [at for at, _ in kept],
            values,
            yerr=[[max(0, each) for each in side] for side in errors],
            marker='os^vD*xP'[i % 8],
            capsize=2,
            label=_name(case, one),
        )
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    rows = [
        [_name(case, one), Cell(f'{one.heldout_oov_rate:.2%}')]
        for case, one in shown
        if one.heldout_oov_rate is not None
    ]
    return [
        '<h2>Unknown words by position</h2>',
        f'<figure>{html_page.svg(drawn)}<figcaption>Share of the words outside the vocabulary at '
        f'each position, in {len(shown[0][1].tokens):,} sentences that each generator wrote, with '
        '95% intervals of the samples (without what varies between trainings).</figcaption>'
        '</figure>',
        tables.folded(
            'The true share in the text of held-out clients',
            tables.table(['generator', 'unknown words'], rows)
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
    names = [cell for case, _ in shown for cell in (case.case.name, '10⁻³')]
    missing = max(ranking.missing for _, ranking in shown)
    return [
        '<h2>Most probable unknown words</h2>',
        tables.table(names, rows),
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
        parts.append(tables.table(['trait', *(_name(*each) for each in shown)], rows))
    return '\n'.join(parts) + '<p>In brackets: 95% intervals of the samples.</p>'


def _method() -> str:
    signatures = ''.join(
        f'<li><strong>{each.fault}</strong>: '
        + ' and '.join(
            f'{"more" if sign.is_higher else "fewer"} {traits.ALL[sign.trait].meaning}'
            for sign in each.signs
        )
        + '</li>'
        for each in diagnosis.SIGNATURES
    )
    rows = [
        [
            trait.meaning,
            Cell(
                f'{100 * trait.least:g} points'
                if trait.unit == '%'
                else f'{trait.least:g} {trait.unit}'
            ),
            Cell(f'{trait.spread:g}{" (log odds)" if trait.unit == "%" else " of the value"}'),
            Cell('' if trait.most is None else f'{trait.most:.1%}'),
        ]
        for trait in traits.ALL.values()
    ]
    names = ['trait', 'least difference', 'allowance for trainings', 'most without a reference']
    return (
        '<p>All traits are compared together. A difference is clear if its p-value, corrected by '
        f'Holm for the number of comparisons, is at most {diagnosis.ALPHA:g}, and if it has at '
        'least the size in the table. The test adds to the error of the samples an allowance for '
        'how two trainings on the same text differ by themselves, as a standard deviation, in '
        'quadrature; intervals include it, and each is at 95% by itself. <em>Found</em>: all signs '
        'of a fault are clear. <em>Suspected</em>: something is clear, but no signature is '
        'complete. <em>Not seen</em>: nothing is clear. Without a reference, a fault is found only '
        'if it leaves words that no text has: the lower bound of their share exceeds the last '
        f'column.</p>\n<ul>{signatures}</ul>\n'
        + tables.folded('Thresholds of all traits', tables.table(names, rows))
        + '<p>What a verdict cannot show: a fault in few sentences or few clients, which the noise '
        'hides by design; a fault that is in the reference as well; a cause, since other texts can '
        'have the traits of a fault. The allowances were measured on one data set (commit messages '
        'at epsilon 8); models trained with more noise differ more. A part of the text that is '
        'selected by the errors of a model differs from the rest in what is hard to predict, with '
        'or without a fault.</p>'
    )


def _models(written: 'list[tuple[CaseResult, Written]]') -> str:
    names = [
        'generator',
        'parameters',
        'rounds',
        'clients per round',
        'mechanism',
        'clip norm',
        'noise multiplier',
        'loss (nats)',
        'accuracy',
        'epsilon',
    ]
    rows = [
        [
            _name(case, one),
            Cell(f'{one.model["parameters"]:,}'),
            Cell(str(one.model['rounds'])),
            Cell(str(one.model['clients_per_round'])),
            one.model['mechanism'],
            Cell(f'{one.model["clip_norm"]:g}'),
            Cell(f'{one.model["noise_multiplier"]:.4g}'),
            Cell(f'{one.model["loss"]:.3f}'),
            Cell(f'{one.model["accuracy"]:.3f}'),
            Cell(tables.epsilon(one.model['epsilon'])),
        ]
        for case, one in written
    ]
    return tables.table(names, rows)


def _privacy(found: 'Found') -> str:
    models = [one.model for case in found.cases for one in case.written.values()]
    each = '; '.join(
        f'{html.escape(case.case.name)}: {tables.epsilon(case.together)}' for case in found.cases
    )
    simulated = (
        ' The noise comes from a known seed: this is a simulation and protects nobody.'
        if any(model['noise_is_seeded'] for model in models)
        else ''
    )
    return (
        f'<p>The table has epsilon of a single generator, at delta = {models[0]["delta"]:g}. They '
        'learn from the same clients. Epsilon of all generators of a case together: '
        f'{each}. Epsilon of all that was trained for this page: {tables.epsilon(found.together)}. '
        'Verdicts, figures, rankings and sentences are made from the models and cost no further '
        'privacy. Loss and accuracy are those of held-out clients. The privacy report of each '
        f'model is in its folder.{simulated}</p>'
    )


def _name(case: 'CaseResult', one: 'Written') -> str:
    return f'{one.generator.name} ({case.case.name})'
