"""The part of a comparison about character models: the unknown words that they write."""

import dataclasses
from collections.abc import Container
from typing import Any

import numpy as np

from dpfl.debugging import differences
from dpfl.debugging.differences import Difference, Mean
from dpfl.debugging.text import ngrams
from dpfl.tasks.text import tokenization
from dpfl.tasks.text.models import generation
from dpfl.tasks.text.oov_ranking import BYTES
from experiments.studies.generators import allowance, grams, unknown_words
from experiments.studies.generators.config import ComparisonConfig
from experiments.studies.generators.sides import Generator
from experiments.studies.generators.verdict import Area


@dataclasses.dataclass(frozen=True)
class Words:
    """What two character models write.

    Attributes:
      samples: Number of words of each side.
      length: Most bytes of a word, its end included.
      rated: The most probable words of either model.
      kinds: Shares of words with some kind of character.
      lengths: Mean number of bytes.
      grams: N-grams of bytes, of all orders.
    """

    samples: int
    length: int
    rated: tuple[unknown_words.RatedWord, ...]
    kinds: tuple[Difference, ...]
    lengths: tuple[Difference, ...]
    grams: tuple[grams.Grams, ...]

    def areas(self) -> tuple[Area, ...]:
        """The areas of the verdict."""
        return (
            Area('kinds of characters of unknown words', self.kinds),
            Area('lengths of unknown words', self.lengths, is_share=False),
            *(each.area(_order_name(each.order)) for each in self.grams),
        )

    def to_dict(self, top: int) -> dict[str, Any]:
        """The part as JSON values."""
        return {
            'samples': self.samples,
            'word_length': self.length,
            'words': [dataclasses.asdict(each) for each in self.rated],
            'kinds': [each.to_dict() for each in self.kinds],
            'lengths': [each.to_dict() for each in self.lengths],
            'ngrams': [each.to_dict(top) for each in self.grams],
        }


def compare(
    first: Generator, second: Generator, known: Container[str], config: ComparisonConfig
) -> Words:
    """Draws words of two character models and compares them.

    Args:
      first, second: The generators.
      known: Words of the vocabulary, which rankings leave out; empty without a word model.
      config: How they are compared.
    """
    drawn = config.drawn
    models, samples = [], []
    for number, each in enumerate((first, second)):
        assert each.model is not None  # Language models have one.
        models.append(unknown_words.CharModel(each.model.architecture, each.weights))
        samples.append(
            generation.sample(
                each.model.architecture,
                each.weights,
                BYTES,
                count=drawn.samples,
                length=drawn.word_length,
                # Other seeds, so that the two samples are independent.
                seed=2 * drawn.seed + number,
            ).tokens
        )
    pair = samples[0], samples[1]
    rated = unknown_words.rate(models[0], models[1], pair, top=config.top, known=known)
    return of_samples(pair, rated, config)


def of_samples(
    samples: tuple[np.ndarray, np.ndarray],
    rated: tuple[unknown_words.RatedWord, ...],
    config: ComparisonConfig,
) -> Words:
    """Compares words.

    Args:
      samples: Byte ids of the two sides, integers [N, L].
      rated: The most probable words, as both models rate them.
      config: How they are compared.
    """
    allowed = allowance.Allowance(config.training_deviation)
    alphabet = ngrams.Alphabet(tokenization.NUM_BYTE_TOKENS, BYTES.begin, BYTES.end, BYTES.pad)
    kinds = [unknown_words.kinds(each) for each in samples]
    lengths = [Mean.of(unknown_words.lengths(each)) for each in samples]
    return Words(
        samples=len(samples[0]),
        length=samples[0].shape[1],
        rated=rated,
        kinds=differences.compare_all(
            kinds[0],
            kinds[1],
            between={name: allowed.of(share, kinds[1][name]) for name, share in kinds[0].items()},
        ),
        lengths=(
            differences.compare(
                'mean bytes of a word', *lengths, between=allowed.of(lengths[0], lengths[1])
            ),
        ),
        grams=grams.compare(samples, alphabet, _written, config),
    )


def _order_name(order: int) -> str:
    return {
        1: 'characters of unknown words',
        2: 'pairs of characters of unknown words',
        3: 'triples of characters of unknown words',
    }.get(order, f'{order}-grams of characters of unknown words')


def _written(gram: tuple[int, ...]) -> str:
    """Bytes as text: ^ begins a word, $ ends it, other bytes beyond ASCII are in hex."""
    return ''.join(map(_character, gram))


def _character(token: int) -> str:
    names = {BYTES.begin: '^', BYTES.end: '$', 32: '␣'}
    if token in names:
        return names[token]
    return chr(token) if 32 < token < 127 else f'⟨{token:02x}⟩'
