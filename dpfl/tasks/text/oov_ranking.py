"""The most probable words of a character model (document 004, tables 2 and 8)."""

import dataclasses
from collections.abc import Container, Sequence
from typing import Any

import numpy as np

from dpfl import _validate, errors
from dpfl.tasks.text import encoding
from dpfl.tasks.text.models import architectures, generation

BYTES = generation.SpecialTokens(encoding.BYTE_PAD_ID, encoding.WORD_BEGIN_ID, encoding.WORD_END_ID)


@dataclasses.dataclass(frozen=True)
class RankedWord:
    """A word that the model wrote.

    Attributes:
      word: its text.
      probability: joint probability of its characters and of its end (document 004, equation 1).
      count: how often it was drawn.
    """

    word: str
    probability: float
    count: int


@dataclasses.dataclass(frozen=True)
class Ranking:
    """Words by decreasing probability.

    Attributes:
      words: the most probable ones that were drawn.
      samples: how many words were drawn.
      missing: at most this is the probability that some word at least as probable as the last of
        `words` was never drawn.
    """

    words: tuple[RankedWord, ...]
    samples: int
    missing: float


def rank(
    architecture: architectures.Architecture,
    weights: Sequence[Any],
    *,
    samples: int,
    length: int,
    top: int,
    seed: int,
    known: Container[str] = (),
) -> Ranking:
    """Draws words by Monte Carlo, and ranks the distinct ones by their joint probability.

    Args:
      architecture: of a model of `encoding.NUM_BYTE_TOKENS` tokens.
      weights: the model's.
      samples: how many words are drawn.
      length: most bytes of a word, its end included; longer words are not ranked, nor is the
        empty one.
      top: how many words are kept.
      seed: of the draws.
      known: words that are not ranked: those of the vocabulary, which no client has sent to be
        learned.

    Raises:
      ValueError: if an argument is outside its range, or the model has other tokens.
    """
    _validate.integer('top', top, minimum=1)
    if architectures.check_weights(architecture, weights) != encoding.NUM_BYTE_TOKENS:
        raise errors.ArgumentError(
            'weights', errors.NOT_SHOWN, f'must be of a model of {encoding.NUM_BYTE_TOKENS} tokens'
        )
    drawn = generation.sample(architecture, weights, BYTES, count=samples, length=length, seed=seed)
    ended = (drawn.tokens == BYTES.end).any(axis=1) & (drawn.tokens[:, 0] != BYTES.end)
    sequences, counts = np.unique(drawn.tokens[ended], axis=0, return_counts=True)
    probabilities = np.exp(generation.log_probabilities(architecture, weights, BYTES, sequences))
    ranked = sorted(
        (
            RankedWord(word, float(probability), int(number))
            for word, probability, number in zip(
                encoding.decode_words(sequences), probabilities, counts, strict=True
            )
            if word not in known
        ),
        key=lambda word: -word.probability,
    )
    words = tuple(ranked[:top])
    return Ranking(words, samples, _missing(words, samples) if len(words) == top else 1.0)


def _missing(words: Sequence[RankedWord], samples: int) -> float:
    """Union bound: at most 1 / p words have probability p or more, each missed with (1 - p)^n.

    Words are drawn at least as often as the model says: what is never drawn, the begin of a word
    and padding, leaves more for them.
    """
    least = words[-1].probability
    return min(1.0, (1 - least) ** samples / least)
