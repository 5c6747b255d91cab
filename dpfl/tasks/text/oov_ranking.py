"""The most probable words of a character model ([Augenstein20], tables 2 and 8)."""

import dataclasses
from collections.abc import Container, Sequence
from typing import Any

import numpy as np

from dpfl import _validate, errors
from dpfl.tasks.text import tokenization
from dpfl.tasks.text.models import architectures, generation

BYTES = generation.SpecialTokens(
    tokenization.BYTE_PAD_ID, tokenization.WORD_BEGIN_ID, tokenization.WORD_END_ID
)


@dataclasses.dataclass(frozen=True)
class RankedWord:
    """A word that the model generated.

    Attributes:
      word: the text.
      probability: joint probability of its bytes and its end ([Augenstein20], equation 1).
      count: number of times that it was drawn.
    """

    word: str
    probability: float
    count: int


@dataclasses.dataclass(frozen=True)
class Ranking:
    """Words by decreasing probability.

    Attributes:
      words: the most probable words that were drawn.
      samples: number of draws.
      missing: upper bound of the probability that a word at least as probable as the last of
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
    """Draws words from a model and ranks the distinct ones by joint probability.

    Args:
      architecture: architecture of a model of `tokenization.NUM_BYTE_TOKENS` tokens.
      weights: weights of the model.
      samples: number of words to draw.
      length: most bytes of a word, including its end. Longer words and the empty word are not
        ranked.
      top: number of words to keep.
      seed: seed of the draws.
      known: words to leave out, such as those of the vocabulary: the model was trained on words
        outside it.

    Raises:
      ValueError: if an argument is outside its range, or the model has another number of tokens.
    """
    _validate.integer('top', top, minimum=1)
    if architectures.check_weights(architecture, weights) != tokenization.NUM_BYTE_TOKENS:
        raise errors.ArgumentError(
            'weights',
            errors.NOT_SHOWN,
            f'must be of a model of {tokenization.NUM_BYTE_TOKENS} tokens',
        )
    drawn = generation.sample(architecture, weights, BYTES, count=samples, length=length, seed=seed)
    ended = (drawn.tokens == BYTES.end).any(axis=1) & (drawn.tokens[:, 0] != BYTES.end)
    sequences, counts = np.unique(drawn.tokens[ended], axis=0, return_counts=True)
    probabilities = np.exp(generation.log_probabilities(architecture, weights, BYTES, sequences))
    ranked = sorted(
        (
            RankedWord(word, float(probability), int(number))
            for word, probability, number in zip(
                tokenization.decode_words(sequences), probabilities, counts, strict=True
            )
            if word not in known
        ),
        key=lambda word: -word.probability,
    )
    words = tuple(ranked[:top])
    return Ranking(words, samples, _missing(words, samples) if len(words) == top else 1.0)


def _missing(words: Sequence[RankedWord], samples: int) -> float:
    """Union bound: at most 1 / p words have probability >= p; each is missed with (1 - p)^n.

    Draws have at least the model's probability: since begin-of-word and padding are never drawn,
    their probability mass goes to the other ids.
    """
    least = words[-1].probability
    return min(1.0, (1 - least) ** samples / least)
