"""Comparison of sentences that word models write, and of unknown words of character models.

Each sentence is one independent draw. Shares of words are ratios over sentences, since the words of
a sentence depend on each other. A word's probability under a character model is computed, not
counted, so it has no sampling error: only which words are looked at depends on the draws
([Augenstein20], equation 1). Words of both models are pooled, and both models rate all of them.
"""

import dataclasses
from collections.abc import Callable, Container, Sequence
from typing import Any

import numpy as np

from dpfl import _validate
from dpfl.debugging.differences import Difference, Mean, Share
from dpfl.debugging.text import traits
from dpfl.reporting import charts, html_parts
from dpfl.reporting.html_parts import Cell
from dpfl.tasks.text import tokenization
from dpfl.tasks.text.models import generation
from dpfl.tasks.text.models.generation import BYTES
from dpfl.tasks.text.tokenization import EOS_ID, NUM_SPECIAL_TOKENS, OOV_ID, PAD_ID
from experiments.studies.shared import ngrams, written
from experiments.studies.shared.generators import Generator
from experiments.studies.shared.written import Allowance, Area, ComparisonConfig, Part

Samples = tuple[np.ndarray, np.ndarray]
_PHRASES = 8
# Names of tokens that are no words of the vocabulary, by their ids.
_NAMES = ('', '⟨begin⟩', '⟨end⟩', 'UNK')
_ORDERS = {1: 'single', 2: 'pairs', 3: 'triples'}


@dataclasses.dataclass(frozen=True)
class Ranked:
    """A word in the lists of both sides.

    Attributes:
      word: its text; bytes that are no UTF-8 are U+FFFD.
      first, second: its share of all words, or its probability, of the two sides.
      first_rank, second_rank: its ranks, from 1.
    """

    word: str
    first: float
    second: float
    first_rank: int
    second_rank: int

    def row(self, scale: float) -> list[str]:
        """Cells of the page; values are multiplied by `scale`."""
        moved = self.first_rank - self.second_rank
        arrow = f'{"▲" if moved > 0 else "▼"} {abs(moved):,}' if moved else '='
        return [
            f'{self.first_rank:,}',
            Cell(self.word, 'text'),
            f'{scale * self.first:.3g}',
            f'{scale * self.second:.3g}',
            written.quotient(self.first, self.second),
            f'{self.second_rank:,}',
            arrow,
        ]


def _ranked_table(words: Sequence[Ranked], unit: str, scale: float, clear=()) -> str:
    names = ['rank in a', Cell('word', 'text'), f'a ({unit})', f'b ({unit})', 'a : b', 'rank in b']
    rows = [word.row(scale) for word in words]
    return html_parts.table([*names, 'up or down in b'], rows, clear=clear)


def ranks(scores: np.ndarray) -> np.ndarray:
    """Ranks of scores [N], 1 for the largest; ties keep their order."""
    ranked = np.empty(len(scores), int)
    ranked[np.argsort(-scores, kind='stable')] = np.arange(1, len(scores) + 1)
    return ranked


# Sentences of word models.


def is_word(tokens: np.ndarray) -> np.ndarray:
    """Which tokens are words, known or not; bool of the shape of the tokens."""
    return (tokens != PAD_ID) & (tokens != EOS_ID)


def sentence_lengths(tokens: np.ndarray) -> np.ndarray:
    """Number of words of each sentence, int64 [N], from token ids [N, L]."""
    return is_word(tokens).sum(axis=1)


def share_of_words(tokens: np.ndarray, token: int) -> Mean:
    """Share of all words that are a token, such as `OOV_ID`, from token ids [N, L]."""
    return Mean.ratio((tokens == token).sum(axis=1), sentence_lengths(tokens))


def frequent(samples: Samples, num_words: int, top: int) -> list[tuple[int, int, int]]:
    """The most frequent words of either sample: token ids and ranks, in the order of the first.

    Args:
      samples: token ids, integers [N, L] and [M, L'].
      num_words: number of words of the vocabulary; `OOV_ID` stands for all unknown words.
      top: number of words that each list gives.
    """
    _validate.integer('top', top, minimum=1)
    counts = [
        np.bincount(tokens[is_word(tokens)], minlength=num_words + NUM_SPECIAL_TOKENS)[OOV_ID:]
        for tokens in samples
    ]
    first, second = map(ranks, counts)
    chosen = ((first <= top) & (counts[0] > 0)) | ((second <= top) & (counts[1] > 0))
    places = sorted(np.flatnonzero(chosen), key=lambda word: (first[word], second[word]))
    return [(OOV_ID + int(word), int(first[word]), int(second[word])) for word in places]


def compare_sentences(first: Generator, second: Generator, config: ComparisonConfig) -> Part:
    """Draws sentences of two word models and compares them."""
    default = max(first.sentence_length, second.sentence_length) or 20
    length = config.drawn.sentence_length or default
    return of_sentences(
        _drawn((first, second), generation.WORDS, length, config), first.vocabulary, config
    )


def _drawn(
    pair: tuple[Generator, Generator], special: Any, length: int, config: ComparisonConfig
) -> Samples:
    first, second = (
        generation.sample(
            generator.language_model.architecture,
            generator.weights,
            special,
            count=config.drawn.samples,
            length=length,
            # Other seeds, so that the two samples are independent.
            seed=2 * config.drawn.seed + number,
        ).tokens
        for number, generator in enumerate(pair)
    )
    return first, second


def of_sentences(samples: Samples, vocabulary: Sequence[str], config: ComparisonConfig) -> Part:
    """Compares sentences.

    Args:
      samples: token ids of the two sides, integers [N, L] and [M, L].
      vocabulary: words by token id, from `NUM_SPECIAL_TOKENS` on.
      config: settings of the comparison.
    """
    names, special = (*_NAMES, *vocabulary), generation.WORDS
    compare = Allowance(config.training_deviation).compare
    length = samples[0].shape[1]
    positions = [traits.unknown_by_position(tokens) for tokens in samples]
    shares_of_unknown = [
        {'all positions': share_of_words(tokens, OOV_ID)}
        | {f'position {i}': share for i, share in enumerate(shares, start=1)}
        for tokens, shares in zip(samples, positions, strict=True)
    ]
    unknown = compare(shares_of_unknown, ratios=('all positions',))
    lengths = compare(
        {'mean words of a sentence': Mean.of(sentence_lengths(tokens))} for tokens in samples
    )
    is_cut = [~(tokens == EOS_ID).any(axis=1) for tokens in samples]
    cut = compare({f'no end within {length} words': Share.of(each)} for each in is_cut)
    chosen = frequent(samples, len(vocabulary), config.top)
    # By token, since a word of the vocabulary may be written as the unknown ones are.
    tokens = [token for token, _, _ in chosen]
    shares = [{str(token): share_of_words(each, token) for token in tokens} for each in samples]
    of_words = [
        dataclasses.replace(each, name=names[token])
        for token, each in zip(tokens, compare(shares, ratios=tuple(shares[0])), strict=True)
    ]
    words = [
        Ranked(names[token], each.first, each.second, first_rank, second_rank)
        for (token, first_rank, second_rank), each in zip(chosen, of_words, strict=True)
    ]
    histogram = [
        np.bincount(sentence_lengths(tokens), minlength=length + 1) / len(tokens)
        for tokens in samples
    ]
    alphabet = ngrams.Alphabet(len(names), special.begin, special.end, special.pad)
    grams = compare_grams(
        samples, alphabet, lambda gram: ' '.join(names[token] for token in gram), config
    )
    phrases = [tokenization.decode_sentences(each[:_PHRASES], vocabulary) for each in samples]

    def render(level: float) -> str:
        return '\n'.join(
            [
                '<h2>Unknown words by position</h2>',
                _positions(positions),
                written.table('words of sentences', unknown, level),
                html_parts.note(
                    'Share of words outside the vocabulary (UNK), of the sentences that have a '
                    f'word at the position; {len(samples[0]):,} sentences of each side.'
                ),
                '<h2>Frequent words</h2>',
                _ranked_table(words, '%', 100, [each.is_clear(level) for each in of_words]),
                html_parts.note(
                    'Shares of all words that each side wrote. The words are those at the top of '
                    'either list; ranks are of these samples. Marked: the adjusted p-value over '
                    'this list is clear.'
                ),
                '<h2>Sentence lengths</h2>',
                _lengths(histogram),
                written.table('', lengths, level, is_share=False),
                written.table('', cut, level),
                '<h2>N-grams of words</h2>',
                _grams(grams, level, config.top, 'sentences'),
                '<h2>Sentences</h2>',
                html_parts.table(
                    ['written by a', 'written by b'], zip(*phrases, strict=True), kind='words'
                ),
                html_parts.note('The first sentences that were drawn, not a choice.'),
            ]
        )

    order_names = {1: 'words', 2: 'pairs of words', 3: 'triples of words'}
    return Part(
        areas=(
            Area('unknown words by position', unknown),
            Area('sentence lengths', lengths, is_share=False),
            Area('cut sentences', cut),
            *(
                Area(order_names.get(one.order, f'{one.order}-grams'), one.differences)
                for one in grams
            ),
        ),
        values={
            'samples': [len(tokens) for tokens in samples],
            'sentence_length': length,
            'words': [
                {
                    'word': word.word,
                    'ranks': [word.first_rank, word.second_rank],
                    **difference.to_dict(),
                }
                for word, difference in zip(words, of_words, strict=True)
            ],
            'unknown': [each.to_dict() for each in unknown],
            'lengths': [each.to_dict() for each in (*lengths, *cut)],
            'length_histogram': [shares.tolist() for shares in histogram],
            'ngrams': [one.to_dict(config.top) for one in grams],
            'sentences': phrases,
        },
        render=render,
    )


def _positions(positions: Sequence[Sequence[Share]]) -> str:
    lines = []
    for number, (name, shares) in enumerate(zip('ab', positions, strict=True)):
        known = [(i, share) for i, share in enumerate(shares, start=1) if share.count]
        ends = [share.interval() for _, share in known]
        lines.append(
            charts.Line(
                name,
                [i + 0.12 * number for i, _ in known],
                [100 * share.value for _, share in known],
                number,
                number,
                ends=[(100 * low, 100 * high) for low, high in ends],
            )
        )
    panel = charts.Panel('', 'position in the sentence', 'unknown words (%)', lines)
    caption = 'Share of unknown words by position, with 95 % intervals of the drawn sentences.'
    return html_parts.figure(charts.draw([panel], 1), caption)


def _lengths(histogram: Sequence[np.ndarray]) -> str:
    lines = [
        charts.Line(name, range(len(shares)), (100 * shares).tolist(), number, number)
        for number, (name, shares) in enumerate(zip('ab', histogram, strict=True))
    ]
    panel = charts.Panel('', 'words of a sentence', 'sentences (%)', lines)
    caption = (
        f'Number of words of a sentence; sentences are cut after {len(histogram[0]) - 1} words.'
    )
    return html_parts.figure(charts.draw([panel], 1), caption)


# Words of character models.


def is_whole(tokens: np.ndarray) -> np.ndarray:
    """Which words have an end and are not empty, bool [N], from byte ids [N, L]."""
    return (tokens == BYTES.end).any(axis=1) & (tokens[:, 0] != BYTES.end)


def is_byte(tokens: np.ndarray) -> np.ndarray:
    """Which tokens of words are bytes; bool of the shape of the tokens."""
    return (tokens < tokenization.WORD_BEGIN_ID) & (tokens != tokenization.BYTE_PAD_ID)


def character_kinds(tokens: np.ndarray) -> dict[str, Share]:
    """Shares of words with some kind of character, by name, of byte ids [N, L].

    White space, digits, capital letters, punctuation and bytes beyond ASCII are what damaged
    tokenisation and encoding leave.
    """
    space = (tokens == 32) | ((tokens >= 9) & (tokens <= 13))
    digit = (tokens >= 48) & (tokens <= 57)
    capital = (tokens >= 65) & (tokens <= 90)
    letter = capital | ((tokens >= 97) & (tokens <= 122))
    masks = {
        'white space': space,
        'a digit': digit,
        'a capital letter': capital,
        'punctuation': (tokens > 32) & (tokens < 127) & ~digit & ~letter,
        'a byte beyond ASCII': (tokens >= 128) & is_byte(tokens),
        'no end (cut)': ~(tokens == BYTES.end).any(axis=1, keepdims=True),
    }
    return {name: Share.of(mask.any(axis=1)) for name, mask in masks.items()}


def rate(
    pair: Sequence[tuple[Any, Sequence[Any]]],
    samples: Samples,
    *,
    top: int,
    known: Container[str] = (),
) -> list[Ranked]:
    """The most probable words of either model, in the order of their ranks under the first.

    Args:
      pair: architectures and weights of the two models.
      samples: byte ids of their words, [N, L] and [M, L], as `generation.Samples.tokens`. Words
        without an end and the empty word are left out.
      top: number of words that each model gives.
      known: words to leave out, such as those of a vocabulary.
    """
    _validate.integer('top', top, minimum=1)
    pooled = np.unique(np.concatenate([tokens[is_whole(tokens)] for tokens in samples]), axis=0)
    words = tokenization.decode_words(pooled)
    kept = np.array([word not in known for word in words], bool)
    pooled, words = pooled[kept], [word for word, keep in zip(words, kept, strict=True) if keep]
    logs = [
        generation.log_probabilities(architecture, weights, BYTES, pooled)
        for architecture, weights in pair
    ]
    first, second = map(ranks, logs)
    chosen = np.flatnonzero((first <= top) | (second <= top))
    return [
        Ranked(
            words[i],
            float(np.exp(logs[0][i])),
            float(np.exp(logs[1][i])),
            int(first[i]),
            int(second[i]),
        )
        for i in sorted(chosen, key=lambda i: first[i])
    ]


def compare_words(
    first: Generator, second: Generator, known: Container[str], config: ComparisonConfig
) -> Part:
    """Draws words of two character models and compares them.

    Args:
      first, second: the generators.
      known: words of the vocabulary, which rankings leave out; empty without a word model.
      config: settings of the comparison.
    """
    length = config.drawn.word_length
    samples = _drawn((first, second), BYTES, length, config)
    pair = [(each.language_model.architecture, each.weights) for each in (first, second)]
    rated = rate(pair, samples, top=config.top, known=known)
    compare = Allowance(config.training_deviation).compare
    kinds = compare(map(character_kinds, samples))
    lengths = compare(
        {'mean bytes of a word': Mean.of(is_byte(tokens).sum(axis=1))} for tokens in samples
    )
    alphabet = ngrams.Alphabet(tokenization.NUM_BYTE_TOKENS, BYTES.begin, BYTES.end, BYTES.pad)
    grams = compare_grams(samples, alphabet, lambda gram: ''.join(map(_character, gram)), config)

    def render(level: float) -> str:
        shown = [dataclasses.replace(each, word=each.word.replace(' ', '␣')) for each in rated]
        return '\n'.join(
            [
                '<h2>Unknown words</h2>',
                _ranked_table(shown, '10⁻³', 1e3),
                html_parts.note(
                    f'The {config.top} most probable words of either model, by the joint '
                    'probability of their bytes (Augenstein et al. 2020, equation 1), without the '
                    'words of the vocabulary. Probabilities are computed from the models, and have '
                    'no sampling error. Ranks are among all words that either model wrote.'
                ),
                written.table('share of words with', kinds, level, ratio=True),
                written.table('', lengths, level, is_share=False),
                html_parts.note(
                    f'{len(samples[0]):,} words of each character model, written byte by byte, at '
                    f'most {length} bytes with the end.'
                ),
                '<h2>N-grams of characters</h2>',
                html_parts.note(
                    '^ is the begin of a word, $ its end, ␣ a space; other bytes beyond ASCII are '
                    'hex.'
                ),
                _grams(grams, level, config.top, 'words'),
            ]
        )

    of_unknown = 'characters of unknown words'
    order_names = {1: of_unknown, 2: f'pairs of {of_unknown}', 3: f'triples of {of_unknown}'}
    return Part(
        areas=(
            Area('kinds of characters of unknown words', kinds),
            Area('lengths of unknown words', lengths, is_share=False),
            *(
                Area(
                    order_names.get(one.order, f'{one.order}-grams of {of_unknown}'),
                    one.differences,
                )
                for one in grams
            ),
        ),
        values={
            'samples': len(samples[0]),
            'word_length': length,
            'words': [dataclasses.asdict(each) for each in rated],
            'kinds': [each.to_dict() for each in kinds],
            'lengths': [each.to_dict() for each in lengths],
            'ngrams': [one.to_dict(config.top) for one in grams],
        },
        render=render,
    )


def _character(token: int) -> str:
    """A byte as text: ^ begins a word, $ ends it, other bytes beyond ASCII are in hex."""
    names = {BYTES.begin: '^', BYTES.end: '$', 32: '␣'}
    if token in names:
        return names[token]
    return chr(token) if 32 < token < 127 else f'⟨{token:02x}⟩'


# N-grams of both.


@dataclasses.dataclass(frozen=True)
class Grams:
    """N-grams of one order.

    Attributes:
      order: number of tokens of an n-gram.
      number: number of different n-grams that either side wrote.
      differences: differences of the shares of sequences that have an n-gram, the largest first.
        Their names are the n-grams as text.
      distance: distance of the distributions of n-grams.
      implied: the training deviation that would explain all differences; None if there are few.
    """

    order: int
    number: int
    differences: tuple[Difference, ...]
    distance: ngrams.Distance
    implied: float | None

    @property
    def name(self) -> str:
        """Name of the order."""
        return _ORDERS.get(self.order, f'{self.order}-grams')

    def to_dict(self, top: int) -> dict[str, Any]:
        """The n-grams as JSON values, with the first `top` differences."""
        return {
            'order': self.order,
            'different': self.number,
            'compared': len(self.differences),
            'largest': [each.to_dict() for each in self.differences[:top]],
            'distance': dataclasses.asdict(self.distance),
            'implied_training_deviation': self.implied,
        }


def compare_grams(
    samples: Samples,
    alphabet: ngrams.Alphabet,
    as_text: Callable[[tuple[int, ...]], str],
    config: ComparisonConfig,
) -> list[Grams]:
    """Compares the n-grams of all orders of a configuration.

    Args:
      samples: token ids that the two sides wrote.
      alphabet: the tokens.
      as_text: from the token ids of an n-gram to its text.
      config: settings of the comparison.
    """
    allowed = Allowance(config.training_deviation)
    result = []
    for order in range(1, config.orders + 1):
        grams = ngrams.ngrams(*samples, order, alphabet)
        compared = ngrams.compare(grams, least=config.least_count, between=allowed.of_shares)
        named = [dataclasses.replace(each.difference, name=as_text(each.gram)) for each in compared]
        distance = ngrams.distance(grams, config.splits, config.drawn.seed)
        implied = written.implied(*grams.sequences(), grams.sizes)
        result.append(Grams(order, len(grams.grams), tuple(named), distance, implied))
    return result


def _grams(grams: Sequence[Grams], level: float, top: int, sequences: str) -> str:
    names = [
        Cell('n-grams', 'text'),
        'different',
        'compared',
        'clear',
        'total variation (by chance)',
        'Jensen-Shannon divergence, bits (by chance)',
        'p of equal models',
        'implied training deviation',
    ]
    rows = [
        [
            Cell(one.name, 'text'),
            f'{one.number:,}',
            f'{len(one.differences):,}',
            f'{sum(each.is_clear(level) for each in one.differences):,}',
            f'{one.distance.total_variation:.4f} ({one.distance.floor:.4f})',
            f'{one.distance.divergence:.4f} ({one.distance.divergence_floor:.4f})',
            written.p_value(one.distance.p_value),
            '–' if one.implied is None else f'{one.implied:.2g}',
        ]
        for one in grams
    ]
    note = html_parts.note(
        'By chance: the mean distance of random splits of both samples together, which is the '
        f'noise floor; p from {grams[0].distance.splits} splits. It is about these models: two '
        'trainings on equal data also differ by it. The implied training deviation is the '
        '--training_deviation that would explain all differences if the data were equal.'
    )
    largest = ''.join(_largest(one, level, top, sequences) for one in grams)
    return html_parts.table(names, rows) + note + largest


def _largest(grams: Grams, level: float, top: int, sequences: str) -> str:
    """The largest differences, and the clear ones that are not among them; folded without any."""
    clear = [each for each in grams.differences[top:] if each.is_clear(level)]
    shown = (*grams.differences[:top], *clear[:top])
    title = f'{grams.name.capitalize()}: {"clear and " if clear else ""}largest differences'
    body = written.table(f'share of {sequences} with', shown, level, ratio=True)
    return html_parts.folded(title, body, is_open=any(each.is_clear(level) for each in shown))
