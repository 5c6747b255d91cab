"""Measures of sentences that a word model writes: unknown words, lengths, frequent words (NumPy).

Each sentence is one independent draw. Shares of words are ratios over sentences, since the words of
a sentence depend on each other.
"""

import dataclasses

import numpy as np

from dpfl import _validate
from dpfl.debugging.differences import Mean
from dpfl.tasks.text.tokenization import EOS_ID, NUM_SPECIAL_TOKENS, OOV_ID, PAD_ID


@dataclasses.dataclass(frozen=True)
class FrequentWord:
    """A word in the two lists of frequent words.

    Attributes:
      token: its token id; `OOV_ID` stands for all unknown words.
      first, second: shares of all words that the two models wrote.
      first_rank, second_rank: ranks by these shares, from 1.
    """

    token: int
    first: Mean
    second: Mean
    first_rank: int
    second_rank: int


def is_word(tokens: np.ndarray) -> np.ndarray:
    """Which tokens are words, known or not; bool of the shape of the tokens."""
    return (tokens != PAD_ID) & (tokens != EOS_ID)


def lengths(tokens: np.ndarray) -> np.ndarray:
    """Number of words of each sentence, int64 [N], from token ids [N, L]."""
    return is_word(tokens).sum(axis=1)


def is_cut(tokens: np.ndarray) -> np.ndarray:
    """Which sentences have no end within L tokens, bool [N], from token ids [N, L]."""
    return ~(tokens == EOS_ID).any(axis=1)


def unknown(tokens: np.ndarray) -> Mean:
    """Share of all words that are unknown, from token ids [N, L]."""
    return Mean.ratio((tokens == OOV_ID).sum(axis=1), lengths(tokens))


def frequent(
    first: np.ndarray, second: np.ndarray, num_words: int, top: int
) -> tuple[FrequentWord, ...]:
    """The most frequent words of either sample, in the order of their ranks in the first.

    Args:
      first, second: token ids, integers [N, L] and [M, L'].
      num_words: number of words of the vocabulary.
      top: number of words that each list gives.
    """
    _validate.integer('top', top, minimum=1)
    samples, ranks, chosen = (first, second), [], []
    for tokens in samples:
        words = tokens[is_word(tokens)]
        counts = np.bincount(words, minlength=num_words + NUM_SPECIAL_TOKENS)[OOV_ID:]
        order = np.argsort(-counts, kind='stable')
        rank = np.empty(len(order), int)
        rank[order] = np.arange(1, len(order) + 1)
        ranks.append(rank)
        chosen += order[:top][counts[order[:top]] > 0].tolist()
    listed = sorted(set(chosen), key=lambda word: (ranks[0][word], ranks[1][word]))
    return tuple(
        FrequentWord(
            OOV_ID + word,
            _share(first, OOV_ID + word),
            _share(second, OOV_ID + word),
            int(ranks[0][word]),
            int(ranks[1][word]),
        )
        for word in listed
    )


def _share(tokens: np.ndarray, token: int) -> Mean:
    return Mean.ratio((tokens == token).sum(axis=1), lengths(tokens))
