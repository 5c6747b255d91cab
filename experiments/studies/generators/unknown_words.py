"""Unknown words that two character models write, ranked by both ([Augenstein20], equation 1).

A word's probability is computed from the model, not counted, so it has no sampling error: only
which words are looked at depends on the draws. Words of both models are pooled, and both models
rate all of them.
"""

import dataclasses
from collections.abc import Container, Sequence
from typing import Any

import numpy as np

from dpfl import _validate
from dpfl.debugging.differences import Share
from dpfl.tasks.text import tokenization
from dpfl.tasks.text.models import architectures, generation
from dpfl.tasks.text.oov_ranking import BYTES


@dataclasses.dataclass(frozen=True)
class CharModel:
    """A character model.

    Attributes:
      architecture: its architecture.
      weights: its weights.
    """

    architecture: architectures.Architecture
    weights: Sequence[Any]


@dataclasses.dataclass(frozen=True)
class RatedWord:
    """A word that one of two models wrote, and how both rate it.

    Attributes:
      word: the text; bytes that are no UTF-8 are U+FFFD.
      first, second: its probabilities under the two models.
      first_rank, second_rank: ranks among all words that either model wrote, from 1.
    """

    word: str
    first: float
    second: float
    first_rank: int
    second_rank: int


def rate(
    first: CharModel,
    second: CharModel,
    samples: tuple[np.ndarray, np.ndarray],
    *,
    top: int,
    known: Container[str] = (),
) -> tuple[RatedWord, ...]:
    """The most probable words of either model, in the order of their ranks under the first.

    Args:
      first, second: the two models.
      samples: what they wrote, byte ids [N, L] and [M, L], as `generation.Samples.tokens`. Words
        without an end and the empty word are left out.
      top: number of words that each model gives.
      known: words to leave out, such as those of a vocabulary.
    """
    _validate.integer('top', top, minimum=1)
    pooled = np.unique(np.concatenate([tokens[is_whole(tokens)] for tokens in samples]), axis=0)
    words = tokenization.decode_words(pooled)
    kept = np.array([word not in known for word in words], bool)
    pooled, words = pooled[kept], [word for word, keep in zip(words, kept, strict=True) if keep]
    logs, ranks, chosen = [], [], set()
    for model in (first, second):
        log = generation.log_probabilities(model.architecture, model.weights, BYTES, pooled)
        order = np.argsort(-log, kind='stable')
        rank = np.empty(len(order), int)
        rank[order] = np.arange(1, len(order) + 1)
        logs.append(log)
        ranks.append(rank)
        chosen |= set(order[:top].tolist())
    return tuple(
        RatedWord(
            words[i],
            float(np.exp(logs[0][i])),
            float(np.exp(logs[1][i])),
            int(ranks[0][i]),
            int(ranks[1][i]),
        )
        for i in sorted(chosen, key=lambda i: int(ranks[0][i]))
    )


def is_whole(tokens: np.ndarray) -> np.ndarray:
    """Which words have an end and are not empty, bool [N], from byte ids [N, L]."""
    return (tokens == BYTES.end).any(axis=1) & (tokens[:, 0] != BYTES.end)


def kinds(tokens: np.ndarray) -> dict[str, Share]:
    """Shares of words with some kind of character, by name, of byte ids [N, L].

    White space, digits, capital letters, punctuation and bytes beyond ASCII are what damaged
    tokenisation and encoding leave.
    """
    is_byte = (tokens < tokenization.WORD_BEGIN_ID) & (tokens != tokenization.BYTE_PAD_ID)
    space = (tokens == 32) | ((tokens >= 9) & (tokens <= 13))
    digit = (tokens >= 48) & (tokens <= 57)
    capital = (tokens >= 65) & (tokens <= 90)
    letter = capital | ((tokens >= 97) & (tokens <= 122))
    beyond = (tokens >= 128) & is_byte
    punctuation = (tokens > 32) & (tokens < 127) & ~digit & ~letter
    masks = {
        'white space': space,
        'a digit': digit,
        'a capital letter': capital,
        'punctuation': punctuation,
        'a byte beyond ASCII': beyond,
        'no end (cut)': ~(tokens == BYTES.end).any(axis=1, keepdims=True),
    }
    return {name: Share.of(mask.any(axis=1)) for name, mask in masks.items()}


def lengths(tokens: np.ndarray) -> np.ndarray:
    """Number of bytes of each word, int64 [N], from byte ids [N, L]."""
    return ((tokens < tokenization.WORD_BEGIN_ID) & (tokens != tokenization.BYTE_PAD_ID)).sum(
        axis=1
    )
