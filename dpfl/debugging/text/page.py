"""The page of the study: verdicts, differences, sentences of the generators, and privacy cost.

The page is one HTML file that loads nothing from elsewhere. No TensorFlow.
"""

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dpfl.debugging import page
from dpfl.debugging.diagnosis import TOLD, Measures
from dpfl.debugging.differences import Difference, Mean
from dpfl.debugging.text import diagnosis, traits
from dpfl.mechanisms import rounding
from dpfl.reporting import charts, html_parts
from dpfl.reporting.html_parts import Cell

if TYPE_CHECKING:
    from dpfl.debugging.text.results import Written
    from dpfl.debugging.text.study import Found

_STYLE = """
th, td { text-align: left; }
td.number { text-align: right; }
"""


def render(found: 'Found') -> str:
    """The page as HTML."""
    written = found.written
    return page.document(
        'Text debugging',
        'What generators say about text that nobody may look at',
        [
            ('Verdicts', f'{_verdicts(found)}\n{_introduction(found)}'),
            ('What differs', _differences(found)),
            ('Sentences that the primary model finds improbable (T6)', _improbable(found)),
            ('What the primary model learns from private sentences (T5)', _learned(found)),
            ('Unknown words by position', _positions(written)),
            ('Most probable unknown words', _rankings(written)),
            ('Sentences that the generators write', _phrases(written)),
            ('All traits', _traits(written)),
            ('How to read the verdicts', _method()),
            ('Models and privacy', _models(written) + _privacy(found)),
        ],
        style=_STYLE,
    )


def _introduction(found: 'Found') -> str:
    kinds = ', '.join(dict.fromkeys(output.of_what for output in found.cases[0].written.values()))
    injected = (
        ' Faults were injected on purpose, to see whether they are found.'
        if len(found.cases) > 1
        else ''
    )
    how = (
        'without noise, so that nothing protects a client'
        if found.together is None
        else 'under user-level differential privacy'
    )
    return (
        f'<p>Generative models learned from text {how}, and people '
        f'look only at what these models write (Augenstein et al. 2020). They learned from: '
        f'{html.escape(kinds)}.{injected} Nothing on this page is copied from the text of a client.'
        '</p>'
    )


def _verdicts(found: 'Found') -> str:
    items = ''.join(
        f'<li><strong>{html.escape(compared.title)}: {_verdict(compared.diagnosis.verdict)}.'
        f'</strong> {html.escape(compared.diagnosis.text[:1].upper())}'
        f'{html.escape(compared.diagnosis.text[1:])}</li>\n'
        for compared in found.compared
    )
    return f'<ul>{items}</ul>' if items else '<p>Nothing was compared.</p>'


def _differences(found: 'Found') -> str:
    parts = []
    for compared in found.compared:
        differs = compared.diagnosis.differences
        if not differs:
            continue
        parts.append(f'<h3>{html.escape(compared.title)}</h3>')
        parts.append(_of_traits(differs, compared.diagnosis.clear))
        if any(difference.name in traits.SENTENCE_NAMES for difference in differs):
            parts.append(page.words(compared.words))
    return '\n'.join(parts)


def _improbable(found: 'Found') -> str:
    parts = []
    for ratios in found.ratios:
        rows = [[sentence, Cell(f'{ratio:.2f}')] for sentence, ratio in ratios.improbable]
        parts += [
            f'<p>{html.escape(ratios.case)}: the log-likelihood ratio, private generator against '
            f'primary model, is {_nats(ratios.private)} in sentences that the private generator '
            f'writes, and {_nats(ratios.public)} in those that the primary model writes. It is '
            'zero on average only if both write the same. In brackets: 95% intervals of the '
            'samples.</p>',
            html_parts.table(['sentence', 'nats per word'], rows),
        ]
    return '\n'.join(parts)


def _learned(found: 'Found') -> str:
    if not found.learned:
        return ''
    rows = [
        [
            learned.case,
            *(Cell(f'{value:.4f}') for value in learned.accuracy),
            Cell(_interval(learned.accuracy_gained, '{:+.4f}')),
            *(Cell(f'{value:.3f}') for value in learned.loss),
            Cell(_interval(learned.loss_gained, '{:+.3f}')),
        ]
        for learned in found.learned
    ]
    names = ['text', 'accuracy before', 'after', 'change', 'loss before (nats)', 'after', 'change']
    return (
        f'<p>It goes on learning from {found.learned[0].sentences:,} sentences that the private '
        'generator wrote, whose labels are their next words, and is measured on held-out clients. '
        'In brackets: 95% intervals over their sentences. People may label the sentences '
        'otherwise.</p>\n' + html_parts.table(names, rows)
    )


def _nats(mean: Mean) -> str:
    return _interval(mean, '{:.3f}') + ' nats per word'


def _interval(mean: Mean, form: str) -> str:
    low, high = (form.format(bound) for bound in mean.interval())
    return f'{form.format(mean.value)} ({low} to {high})'


def _positions(written: 'list[Written]') -> str:
    shown = [output for output in written if output.positions]
    if not shown:
        return ''
    lines = []
    for number, output in enumerate(shown):
        known = [(at, share) for at, share in enumerate(output.positions, start=1) if share.count]
        intervals = [share.interval() for _, share in known]
        lines.append(
            charts.Line(
                output.title,
                [at for at, _ in known],
                [100 * share.value for _, share in known],
                number,
                ends=[(100 * low, 100 * high) for low, high in intervals],
            )
        )
    title = 'Unknown words by position'
    panel = charts.Panel(title, 'position in the sentence', 'unknown words (%)', lines)
    rows = [
        [output.title, Cell(f'{output.heldout_oov_rate:.2%}')]
        for output in shown
        if output.heldout_oov_rate is not None
    ]
    drawn = html_parts.figure(
        charts.draw([panel], 1),
        f'Share of the words outside the vocabulary at each position, in '
        f'{len(shown[0].tokens):,} sentences that each generator wrote, with 95% intervals '
        'of the samples (without what varies between trainings).',
    )
    return drawn + html_parts.folded(
        'The true share in the text of held-out clients',
        html_parts.table(['generator', 'unknown words'], rows)
        + '<p>Only a simulation can show it, and no guarantee covers it.</p>',
    )


def _rankings(written: 'list[Written]') -> str:
    shown = {output.case.name: output.ranking for output in written if output.ranking is not None}
    if not shown:
        return ''
    rankings, rows = list(shown.values()), []
    for i in range(max(len(ranking.words) for ranking in rankings)):
        row: list[str] = []
        for ranking in rankings:
            words = ranking.words[i : i + 1]
            row += [words[0].word, Cell(f'{1e3 * words[0].probability:.2f}')] if words else ['', '']
        rows.append(row)
    names = [cell for case in shown for cell in (case, 'probability (10⁻³)')]
    missing = max(ranking.missing for ranking in rankings)
    return html_parts.table(names, rows) + (
        f'<p>Each character model wrote {rankings[0].samples:,} words, ranked here by the joint '
        'probability of their characters (Augenstein et al. 2020, equation 1), without the words '
        'of the vocabulary. The probability that a ranking lacks a word because it was never drawn '
        f'is at most {missing:.2g}.</p>'
    )


def _phrases(written: 'list[Written]') -> str:
    return ''.join(
        f'<h3>{html.escape(output.title)}</h3>\n<ul>'
        + ''.join(f'<li>{html.escape(phrase)}</li>' for phrase in output.phrases)
        + '</ul>\n'
        for output in written
        if output.phrases
    )


def _traits(written: 'list[Written]') -> str:
    kinds: dict[str, dict[str, Measures]] = {}
    for output in written:
        kinds.setdefault(output.generator.kind, {})[output.title] = output.traits
    return '\n'.join(page.measured(generators, traits.ALL) for generators in kinds.values())


def _verdict(verdict: str) -> str:
    """A verdict in its colour."""
    return f'<span class="{verdict.replace(" ", "-")}">{verdict}</span>'


def _of_traits(compared: Sequence[Difference], clear: Sequence[str]) -> str:
    """The differences of traits that are clear, and the others folded."""
    ordered = sorted(compared, key=lambda difference: difference.adjusted)
    marked = [difference for difference in ordered if difference.name in clear]
    others = [difference for difference in ordered if difference.name not in clear]
    return (
        page.differences(marked, traits.ALL, clear)
        if marked
        else '<p>No trait differs clearly.</p>\n'
    ) + html_parts.folded(
        f'{len(others)} traits without a clear difference', page.differences(others, traits.ALL)
    )


def _method() -> str:
    """How verdicts come about, and their limits."""
    signatures = ''.join(
        f'<li><strong>{signature.fault}</strong>: '
        + ' and '.join(
            f'{"more" if sign.is_higher else "fewer"} {traits.ALL[sign.trait].meaning}'
            for sign in signature.signs
        )
        + '</li>'
        for signature in diagnosis.SIGNATURES
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
        'complete. <em>Not seen</em>: nothing is clear, and a fault in the stated share of the '
        f'text would have been found with a probability of at least {TOLD:g}. This power is '
        'computed from what the fault does to held-out text, how much of it the generators have '
        'learned, and the test. <em>Cannot tell</em>: nothing is clear, and nothing would be, for '
        'example if a generator predicts held-out text no better than the frequencies of single '
        'tokens do. '
        'Without a reference, a fault is found only '
        'if it leaves words that no text has: the lower bound of their share exceeds the last '
        f'column.</p>\n<ul>{signatures}</ul>\n'
        + html_parts.folded('Thresholds of all traits', html_parts.table(names, rows))
        + '<p>What a verdict cannot show: a fault in few sentences or few clients, which the noise '
        'hides by design; a fault that is in the reference as well; a cause, since other texts can '
        'have the traits of a fault. The allowances were measured on one data set (commit messages '
        'at epsilon 8); models trained with more noise differ more. A part of the text that is '
        'selected by the errors of a model differs from the rest in what is hard to predict, with '
        'or without a fault.</p>'
    )


def _models(written: 'list[Written]') -> str:
    """How the generators were trained: metrics and guarantees of runs, with their names."""
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
            output.title,
            Cell(f'{model["parameters"]:,}'),
            Cell(str(model['rounds'])),
            Cell(str(model['clients_per_round'])),
            model['mechanism'],
            Cell(f'{model["clip_norm"]:g}'),
            Cell(f'{model["noise_multiplier"]:.4g}'),
            Cell(f'{model["loss"]:.3f}'),
            Cell(f'{model["accuracy"]:.3f}'),
            Cell(page.epsilon(model['epsilon'])),
        ]
        for output in written
        for model in [output.model]
    ]
    return html_parts.table(names, rows)


def _privacy(found: 'Found') -> str:
    """The privacy cost of all generators together."""
    models = [output.model for output in found.written]
    of_cases = '; '.join(
        f'{html.escape(case.case.name)}: {page.epsilon(case.together)}' for case in found.cases
    )
    simulated = ''
    if any(model['noise_is_seeded'] for model in models):
        simulated = page.simulated('The noise comes')
    elif any(model['sampling_is_seeded'] for model in models):
        simulated = page.simulated('The cohorts come')
    return (
        '<p>The table has epsilon of a single generator, at delta = '
        f'{rounding.shown_delta(models[0]["delta"])}. They learn from the same clients. Epsilon of '
        'all generators of a case together: '
        f'{of_cases}. Epsilon of all that was trained for this page: '
        f'{page.epsilon(found.together)}. '
        'Verdicts, figures, rankings and sentences are made from the models and cost no further '
        'privacy. Loss and accuracy are those of held-out clients. The privacy report of each '
        f'model is in its folder.{simulated}</p>'
    )
