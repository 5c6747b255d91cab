"""Sections of the page about sentences and unknown words. No TensorFlow."""

import html
from typing import Any

import numpy as np
from matplotlib import figure, ticker

from dpfl.reporting import html_page
from experiments.studies.generators import grams as grams_lib
from experiments.studies.generators.html_parts import (
    Cell,
    differences,
    folded,
    note,
    p_value,
    percent,
    table,
)
from experiments.studies.generators.sentences_part import Sentences
from experiments.studies.generators.verdict import Verdict
from experiments.studies.generators.words_part import Words

# As in `charts`: told apart with any colour vision.
COLORS = ('#0072B2', '#D55E00')
_ORDERS = {1: 'single', 2: 'pairs', 3: 'triples'}


def of_sentences(part: Sentences, verdict: Verdict, top: int) -> str:
    """The sections about what word models write."""
    return '\n'.join(
        [
            '<h2>Unknown words by position</h2>',
            _positions(part),
            differences('words of sentences', part.unknown, verdict),
            note(
                'Share of words outside the vocabulary (UNK), of the sentences that have a word at '
                f'the position; {part.samples[0]:,} sentences of each side.'
            ),
            '<h2>Frequent words</h2>',
            _frequent(part, verdict),
            '<h2>Sentence lengths</h2>',
            _lengths(part),
            differences('', part.lengths, verdict, is_share=False),
            differences('', part.cut, verdict),
            '<h2>N-grams of words</h2>',
            _grams(part.grams, verdict, top, 'sentences'),
            '<h2>Sentences</h2>',
            table(
                [Cell('written by a'), Cell('written by b')],
                [
                    [Cell(text, 'sentence') for text in row]
                    for row in zip(*part.phrases, strict=True)
                ],
            ),
            note('The first sentences that were drawn, not a choice.'),
        ]
    )


def of_words(part: Words, verdict: Verdict, top: int) -> str:
    """The sections about what character models write."""
    return '\n'.join(
        [
            '<h2>Unknown words</h2>',
            _rated(part, top),
            differences('share of words with', part.kinds, verdict, ratio=True),
            differences('', part.lengths, verdict, is_share=False),
            note(
                f'{part.samples:,} words of each character model, written byte by byte, at most '
                f'{part.length} bytes with the end.'
            ),
            '<h2>N-grams of characters</h2>',
            note(
                '^ is the begin of a word, $ its end, ␣ a space; other bytes beyond ASCII are hex.'
            ),
            _grams(part.grams, verdict, top, 'words'),
        ]
    )


def _positions(part: Sentences) -> str:
    drawn = figure.Figure(figsize=(8, 3.6), layout='constrained')
    axes = drawn.add_subplot(xlabel='position in the sentence', ylabel='unknown words (%)')
    axes.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
    for number, (shares, name) in enumerate(zip(part.shares, 'ab', strict=True)):
        known = [(i, each) for i, each in enumerate(shares, start=1) if each.count]
        values = np.array([each.value for _, each in known])
        bounds = np.array([each.interval() for _, each in known]).T
        axes.errorbar(
            np.array([i for i, _ in known]) + 0.12 * number,
            100 * values,
            100 * np.abs(bounds - values),
            color=COLORS[number],
            linestyle=('-', '--')[number],
            marker='os'[number],
            markersize=4,
            capsize=2,
            label=name,
        )
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    return _figure(
        drawn, 'Share of unknown words by position, with 95 % intervals of the drawn sentences.'
    )


def _lengths(part: Sentences) -> str:
    drawn = figure.Figure(figsize=(8, 3), layout='constrained')
    axes = drawn.add_subplot(xlabel='words of a sentence', ylabel='sentences (%)')
    for number, (shares, name) in enumerate(zip(part.histogram, 'ab', strict=True)):
        axes.step(
            range(len(shares)),
            100 * shares,
            where='mid',
            color=COLORS[number],
            linestyle=('-', '--')[number],
            label=name,
        )
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    return _figure(
        drawn, f'Number of words of a sentence; sentences are cut after {part.length} words.'
    )


def _frequent(part: Sentences, verdict: Verdict) -> str:
    names = ['rank in a', Cell('word'), 'a (%)', 'b (%)', 'rank in b', 'up or down in b']
    names += ['a minus b, 95 % interval (points)']
    rows = [
        [
            f'{each.first_rank:,}',
            Cell(each.word),
            percent(each.first.value),
            percent(each.second.value),
            f'{each.second_rank:,}',
            rank_change(each.first_rank, each.second_rank),
            f'{100 * each.difference.low:+.3g} to {100 * each.difference.high:+.3g}',
        ]
        for each in part.words
    ]
    clear = [each.difference.is_clear(verdict.of_area) for each in part.words]
    return table(names, rows, clear) + note(
        'Shares of all words that each side wrote. The words are those at the top of either list; '
        'ranks are of these samples. Marked: the adjusted p-value over this list is clear.'
    )


def _rated(part: Words, top: int) -> str:
    rows = [
        [
            f'{each.first_rank:,}',
            Cell(each.word.replace(' ', '␣')),
            f'{1e3 * each.first:.3g}',
            f'{1e3 * each.second:.3g}',
            f'{each.first / each.second:.3g}' if each.second else 'only a',
            f'{each.second_rank:,}',
            rank_change(each.first_rank, each.second_rank),
        ]
        for each in part.rated
    ]
    names = ['rank in a', Cell('word'), '10⁻³ in a', '10⁻³ in b', 'a : b', 'rank in b']
    return table([*names, 'up or down in b'], rows) + note(
        f'The {top} most probable words of either model, by the joint probability of their bytes '
        '(Augenstein et al. 2020, equation 1), without the words of the vocabulary. Probabilities '
        'are computed from the models, and have no sampling error. Ranks are among all words that '
        'either model wrote.'
    )


def rank_change(first: int, second: int) -> str:
    """How far a word moves from the first list to the second."""
    if first == second:
        return '='
    return f'▲ {first - second:,}' if second < first else f'▼ {second - first:,}'


def _grams(found: tuple[grams_lib.Grams, ...], verdict: Verdict, top: int, what: str) -> str:
    rows: list[list[Any]] = [
        [
            Cell(_name(each.order)),
            f'{each.number:,}',
            f'{len(each.differences):,}',
            f'{sum(one.is_clear(verdict.of_area) for one in each.differences):,}',
            f'{each.distance.total_variation:.4f} ({each.distance.floor:.4f})',
            f'{each.distance.divergence:.4f} ({each.distance.divergence_floor:.4f})',
            p_value(each.distance.p_value),
            '–' if each.implied is None else f'{each.implied:.2g}',
        ]
        for each in found
    ]
    names = [
        Cell('n-grams'),
        'different',
        'compared',
        'clear',
        'total variation (by chance)',
        'Jensen-Shannon divergence, bits (by chance)',
        'p of equal models',
        'implied training deviation',
    ]
    tables = ''.join(_largest(each, verdict, top, what) for each in found)
    return (
        table(names, rows)
        + note(
            'By chance: the mean distance of random splits of both samples together, which is the '
            f'noise floor; p from {found[0].distance.splits} splits. It is about these models: two '
            'trainings on equal data also differ by it. The implied training deviation is the '
            '--training_deviation that would explain all differences if the data were equal.'
        )
        + tables
    )


def _largest(each: grams_lib.Grams, verdict: Verdict, top: int, what: str) -> str:
    """The largest differences, and the clear ones that are not among them; folded without any."""
    clear = [one for one in each.differences[top:] if one.is_clear(verdict.of_area)]
    shown = (*each.differences[:top], *clear[:top])
    is_open = any(one.is_clear(verdict.of_area) for one in shown)
    title = f'{_name(each.order).capitalize()}: {"clear and " if clear else ""}largest differences'
    body = differences(f'share of {what} with', shown, verdict, ratio=True)
    return folded(title, body, is_open)


def _name(order: int) -> str:
    return _ORDERS.get(order, f'{order}-grams')


def _figure(drawn: figure.Figure, caption: str) -> str:
    return (
        f'<figure>{html_page.svg(drawn)}<figcaption>{html.escape(caption)}</figcaption></figure>\n'
    )
