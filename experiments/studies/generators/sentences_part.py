"""The part of a comparison about word models: the sentences that they write."""

import dataclasses
from typing import Any

import numpy as np

from dpfl.debugging import differences
from dpfl.debugging.differences import Difference, Mean, Share
from dpfl.debugging.text import ngrams, traits
from dpfl.tasks.text import tokenization
from dpfl.tasks.text.models import generation
from dpfl.tasks.text.tokenization import NUM_SPECIAL_TOKENS
from experiments.studies.generators import allowance, grams, sentences
from experiments.studies.generators.config import ComparisonConfig
from experiments.studies.generators.sides import Generator
from experiments.studies.generators.verdict import Area

_PHRASES = 8
# Names of tokens that are no words of the vocabulary, by their ids.
_NAMES = ('', '⟨begin⟩', '⟨end⟩', 'UNK')


@dataclasses.dataclass(frozen=True)
class Word:
    """A frequent word: its text, its ranks, and the difference of its shares of all words."""

    word: str
    first_rank: int
    second_rank: int
    first: Mean
    second: Mean
    difference: Difference


@dataclasses.dataclass(frozen=True)
class Sentences:
    """What two word models write.

    Attributes:
      samples: Numbers of sentences.
      length: Most words of a sentence; longer ones are cut.
      words: Frequent words of either side.
      unknown: Share of unknown words: over all words, then by position.
      shares: Shares of unknown words by position, of both sides.
      lengths: Mean number of words.
      cut: Share of sentences without an end.
      histogram: Share of sentences of 0, 1, ... words, of both sides.
      grams: N-grams of all orders.
      phrases: Some sentences of both sides.
    """

    samples: tuple[int, int]
    length: int
    words: tuple[Word, ...]
    unknown: tuple[Difference, ...]
    shares: tuple[tuple[Share, ...], tuple[Share, ...]]
    lengths: tuple[Difference, ...]
    cut: tuple[Difference, ...]
    histogram: tuple[np.ndarray, np.ndarray]
    grams: tuple[grams.Grams, ...]
    phrases: tuple[tuple[str, ...], tuple[str, ...]]

    def areas(self) -> tuple[Area, ...]:
        """The areas of the verdict."""
        return (
            Area('unknown words by position', self.unknown),
            Area('sentence lengths', self.lengths, is_share=False),
            Area('cut sentences', self.cut),
            *(each.area(_order_name(each.order)) for each in self.grams),
        )

    def to_dict(self, top: int) -> dict[str, Any]:
        """The part as JSON values."""
        return {
            'samples': self.samples,
            'sentence_length': self.length,
            'words': [
                {
                    'word': each.word,
                    'ranks': [each.first_rank, each.second_rank],
                    **each.difference.to_dict(),
                }
                for each in self.words
            ],
            'unknown': [each.to_dict() for each in self.unknown],
            'lengths': [each.to_dict() for each in (*self.lengths, *self.cut)],
            'length_histogram': [each.tolist() for each in self.histogram],
            'ngrams': [each.to_dict(top) for each in self.grams],
            'sentences': self.phrases,
        }


def compare(first: Generator, second: Generator, config: ComparisonConfig) -> Sentences:
    """Draws sentences of two word models and compares them."""
    drawn = config.drawn
    length = (
        drawn.sentence_length or max(first.sentence_length or 0, second.sentence_length or 0) or 20
    )
    samples = tuple(
        generation.sample(
            each.model.architecture,
            each.weights,
            generation.WORDS,
            count=drawn.samples,
            length=length,
            # Other seeds, so that the two samples are independent.
            seed=2 * drawn.seed + number,
        ).tokens
        for number, each in enumerate((first, second))
        if each.model is not None
    )
    vocabulary = first.model.vocabulary if first.model is not None else None
    assert vocabulary is not None and len(samples) == 2  # Word models.
    return of_samples((samples[0], samples[1]), vocabulary, config)


def of_samples(
    samples: tuple[np.ndarray, np.ndarray], vocabulary: tuple[str, ...], config: ComparisonConfig
) -> Sentences:
    """Compares sentences.

    Args:
      samples: Token ids of the two sides, integers [N, L] and [M, L].
      vocabulary: Words by token id, from `NUM_SPECIAL_TOKENS` on.
      config: How they are compared.
    """
    first, second = samples
    names = (*_NAMES, *vocabulary)
    special = generation.WORDS
    alphabet = ngrams.Alphabet(len(names), special.begin, special.end, special.pad)
    return Sentences(
        samples=(len(first), len(second)),
        length=first.shape[1],
        words=_words(samples, names, config),
        unknown=_unknown(samples, config),
        shares=(traits.unknown_by_position(first), traits.unknown_by_position(second)),
        lengths=_compared(
            {'mean words of a sentence': [Mean.of(sentences.lengths(each)) for each in samples]},
            config,
        ),
        cut=_compared(
            {
                f'no end within {first.shape[1]} words': [
                    Share.of(sentences.is_cut(each)) for each in samples
                ]
            },
            config,
        ),
        histogram=(_histogram(first), _histogram(second)),
        grams=grams.compare(
            samples, alphabet, lambda gram: ' '.join(names[token] for token in gram), config
        ),
        phrases=(_phrases(first, vocabulary), _phrases(second, vocabulary)),
    )


def _order_name(order: int) -> str:
    return {1: 'words', 2: 'pairs of words', 3: 'triples of words'}.get(order, f'{order}-grams')


def _words(samples, names, config) -> tuple[Word, ...]:
    allowed = allowance.Allowance(config.training_deviation)
    found = sentences.frequent(samples[0], samples[1], len(names) - NUM_SPECIAL_TOKENS, config.top)
    compared = differences.corrected(
        [
            differences.compare(
                names[each.token],
                each.first,
                each.second,
                between=allowed.of_ratios(each.first, each.second),
            )
            for each in found
        ]
    )
    return tuple(
        Word(names[one.token], one.first_rank, one.second_rank, one.first, one.second, difference)
        for one, difference in zip(found, compared, strict=True)
    )


def _unknown(samples, config) -> tuple[Difference, ...]:
    allowed = allowance.Allowance(config.training_deviation)
    overall = [sentences.unknown(each) for each in samples]
    pairs = zip(*(traits.unknown_by_position(each) for each in samples), strict=True)
    return differences.corrected(
        [
            differences.compare('all positions', *overall, between=allowed.of_ratios(*overall)),
            *(
                differences.compare(f'position {i}', *pair, between=allowed.of(*pair))
                for i, pair in enumerate(pairs, start=1)
            ),
        ]
    )


def _compared(measures, config) -> tuple[Difference, ...]:
    allowed = allowance.Allowance(config.training_deviation)
    return differences.corrected(
        [
            differences.compare(name, *pair, between=allowed.of(*pair))
            for name, pair in measures.items()
        ]
    )


def _histogram(tokens: np.ndarray) -> np.ndarray:
    counts = np.bincount(sentences.lengths(tokens), minlength=tokens.shape[1] + 1)
    return counts / len(tokens)


def _phrases(tokens: np.ndarray, vocabulary: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(tokenization.decode_sentences(tokens[:_PHRASES], vocabulary))
