"""Counts of trigrams in text of any size, by sorting."""

import dataclasses
from collections.abc import Iterable

import numpy as np

from dpfl.errors import ArgumentError
from dpfl.tasks.text.token_ids import NUM_SPECIAL_TOKENS, PAD_ID

# Three token ids are one int64.
BITS = 21
MASK = (1 << BITS) - 1
# Trigrams that are collected before they are counted: 32 MB.
_COLLECTED = 1 << 22


@dataclasses.dataclass(frozen=True)
class TrigramCounts:
    """How often each trigram occurs. Text is read in parts and not kept.

    Attributes:
      num_tokens: number of token ids.
      keys: the trigrams that occur, as in `trigrams`, int64, increasing.
      counts: how often each occurs, int64, at least 1.
    """

    num_tokens: int
    keys: np.ndarray
    counts: np.ndarray

    @classmethod
    def of(cls, texts: Iterable[np.ndarray], num_tokens: int) -> 'TrigramCounts':
        """Counts the trigrams of texts, each as in `trigrams`.

        Raises:
          ArgumentError: if there are more than 2 ** 21 token ids.
        """
        if num_tokens > MASK + 1:
            raise ArgumentError(
                'vocabulary_size', num_tokens, f'must be <= {MASK - 3} for trigrams to be counted'
            )
        found = cls(num_tokens, np.zeros(0, np.int64), np.zeros(0, np.int64))
        collected: list[np.ndarray] = []
        size = 0
        for tokens in texts:
            collected.append(trigrams(tokens))
            size += collected[-1].size
            # Parts grow with the counts, so that each trigram is merged few times.
            if size >= max(_COLLECTED, found.keys.size):
                found, size = found._with(collected), 0
                collected.clear()
        return found._with(collected)

    def _with(self, collected: list[np.ndarray]) -> 'TrigramCounts':
        if not collected:
            return self
        keys, counts = np.unique(np.concatenate(collected), return_counts=True)
        return self + TrigramCounts(self.num_tokens, keys, counts)

    def __add__(self, other: 'TrigramCounts') -> 'TrigramCounts':
        """The counts of both texts together."""
        if not self.keys.size:
            return other
        keys = np.concatenate([self.keys, other.keys])
        order = np.argsort(keys, kind='stable')  # Fast: both parts are sorted.
        keys = keys[order]
        first = np.flatnonzero(np.diff(keys, prepend=-1))
        counts = np.concatenate([self.counts, other.counts])[order]
        return TrigramCounts(self.num_tokens, keys[first], np.add.reduceat(counts, first))

    @property
    def num_words(self) -> int:
        """Number of words of the vocabulary that were counted."""
        return int(self.counts[self.keys & MASK >= NUM_SPECIAL_TOKENS].sum())

    def pairs(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The pairs at the ends of the trigrams.

        Returns:
          Pairs `before << BITS | word`, int64, increasing; how often each occurs, int64; and after
          how many different tokens each occurs, int64 (no token before the pair counts as one).
        """
        pairs, places = np.unique(self.keys & (1 << 2 * BITS) - 1, return_inverse=True)
        counts = np.bincount(places, self.counts, pairs.size).astype(np.int64)
        return pairs, counts, np.bincount(places, minlength=pairs.size)


def trigrams(tokens: np.ndarray) -> np.ndarray:
    """The targets of sentences, which are all tokens but padding, with the two tokens before each.

    Args:
      tokens: token ids with begin of sentence first, int [sentences, L + 1].

    Returns:
      `(first << BITS | second) << BITS | target`, int64 [targets]. `first` is `PAD_ID` at the first
      target of a row, which has one token before it.
    """
    words = tokens.astype(np.int64)
    first = np.pad(words[:, :-2], ((0, 0), (1, 0)), constant_values=PAD_ID)
    keys = (first << BITS | words[:, :-1]) << BITS | words[:, 1:]
    return keys[words[:, 1:] != PAD_ID]
