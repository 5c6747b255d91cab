"""Trigram model with interpolated, modified Kneser-Ney smoothing.

Source: S. F. Chen and J. Goodman, An Empirical Study of Smoothing Techniques for Language Modeling,
Computer Speech and Language 13 (1999), section 3: p(w | u v) is the discounted share of w after u v
plus a weight times p(w | v), and so on down to the uniform distribution. Below the trigrams, the
count of v w is the number of different tokens before it. Sentences begin without a token u; as
usual, the pairs at their begin have their own counts.

The distribution is over what a model of words predicts: the words of the vocabulary, a word outside
of it, and end of sentence.
"""

import dataclasses

import numpy as np

from dpfl.errors import ArgumentError
from dpfl.tasks.text.baselines import Counts
from dpfl.tasks.text.tokenization import BOS_ID, NUM_SPECIAL_TOKENS, PAD_ID

# Three token ids are one int64.
BITS = 21
MASK = (1 << BITS) - 1


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


def of_pairs(counts: Counts) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The pairs at the ends of counted trigrams.

    Returns:
      Pairs `before << BITS | word`, int64, increasing; how often each occurs, int64; and after how
      many different tokens each occurs, int64 (no token before the pair counts as one).
    """
    pairs, places = np.unique(counts.keys & (1 << 2 * BITS) - 1, return_inverse=True)
    occurrences = np.bincount(places, counts.counts, pairs.size).astype(np.int64)
    return pairs, occurrences, np.bincount(places, minlength=pairs.size)


# Discounts of counts of 0, 1, 2, and of 3 or more where the text is too small to estimate them.
_DEFAULT_DISCOUNTS = (0.0, 0.5, 1.0, 1.5)


@dataclasses.dataclass(frozen=True)
class _Order:
    """The n-grams of one n. A context is the n - 1 tokens before a word; 0 if n is 1.

    Attributes:
      grams: `context << BITS | word` of those that occur, int64, increasing.
      probabilities: of the word after the context, smoothed, float64 [grams].
      contexts: contexts that occur, int64, increasing.
      weights: of the distribution of the next shorter context, float64 [contexts].
      best: the most probable word of the vocabulary after each context, int64 [contexts].
      best_probabilities: at least its backed-off probability, float64 [contexts].
    """

    grams: np.ndarray
    probabilities: np.ndarray
    contexts: np.ndarray
    weights: np.ndarray
    best: np.ndarray
    best_probabilities: np.ndarray


@dataclasses.dataclass(frozen=True)
class KneserNey:
    """Probabilities of words after the two tokens before them.

    Attributes:
      num_tokens: number of token ids.
      orders: unigrams, bigrams, trigrams; the lowest back off to the uniform distribution.
    """

    num_tokens: int
    orders: tuple[_Order, ...]

    @classmethod
    def of(cls, counts: Counts, num_tokens: int) -> 'KneserNey':
        """The model of counted trigrams; without any, it is uniform.

        Raises:
          ArgumentError: if there are more than 2 ** 21 token ids.
        """
        if num_tokens > MASK + 1:
            raise ArgumentError(
                'vocabulary_size', num_tokens, f'must be <= {MASK - 3} for trigrams to be counted'
            )
        model = cls(num_tokens, ())
        pairs, occurrences, num_before = of_pairs(counts)
        num_before = np.where(pairs >> BITS == BOS_ID, occurrences, num_before)
        words, before_word = np.unique(pairs & MASK, return_counts=True)
        has_two_before = counts.keys >> 2 * BITS != PAD_ID
        return (
            model._extended(words, before_word)
            ._extended(pairs, num_before)
            ._extended(counts.keys[has_two_before], counts.counts[has_two_before])
        )

    def _extended(self, grams: np.ndarray, counts: np.ndarray) -> 'KneserNey':
        """The model with n-grams of one token more."""
        contexts, starts, sizes = np.unique(grams >> BITS, return_index=True, return_counts=True)
        place = np.repeat(np.arange(contexts.size), sizes)
        removed = np.array(_discounts(counts))[np.minimum(counts, 3)]
        totals = np.bincount(place, counts, contexts.size)
        weights = np.bincount(place, removed, contexts.size) / totals
        words, shorter = grams & MASK, self._shortened(contexts)
        probabilities = (counts - removed) / totals[place]
        probabilities += weights[place] * self._probabilities(shorter[place], words)

        # The best word is the best that was seen here, or the best after the shorter context.
        of_words = np.where(words >= NUM_SPECIAL_TOKENS, probabilities, 0.0)
        top = np.maximum.reduceat(of_words, starts) if starts.size else np.zeros(0)
        at_top = np.flatnonzero(of_words == top[place])
        first = at_top[np.diff(place[at_top], prepend=-1) > 0]
        other, other_probabilities = self._best(shorter)
        other_probabilities = weights * other_probabilities
        is_other = (other_probabilities > top) | (top == 0)
        order = _Order(
            grams,
            probabilities,
            contexts,
            weights,
            np.where(is_other, other, words[first]),
            np.where(is_other, other_probabilities, top),
        )
        return KneserNey(self.num_tokens, (*self.orders, order))

    def _shortened(self, contexts: np.ndarray) -> np.ndarray:
        """Contexts of this model from those with one token more in front."""
        return contexts & ((1 << max(len(self.orders) - 1, 0) * BITS) - 1)

    @property
    def _shorter(self) -> 'KneserNey':
        return KneserNey(self.num_tokens, self.orders[:-1])

    def log_probabilities(self, trigrams: np.ndarray) -> np.ndarray:
        """Logarithms of the probabilities of the last tokens of trigrams, float64.

        Args:
          trigrams: as in `trigrams`.
        """
        return np.log(self._probabilities(trigrams >> BITS, trigrams & MASK))

    def predictions(self, trigrams: np.ndarray) -> np.ndarray:
        """The most probable words of the vocabulary after the first two tokens, int64."""
        return self._best(trigrams >> BITS)[0]

    def _probabilities(self, contexts: np.ndarray, words: np.ndarray) -> np.ndarray:
        if not self.orders:
            return np.full(words.shape, 1 / (self.num_tokens - len((PAD_ID, BOS_ID))))
        order, shorter = self.orders[-1], self._shorter
        place, is_seen = _found(order.grams, contexts << BITS | words)
        result = np.empty(words.shape)
        result[is_seen] = order.probabilities[place[is_seen]]
        rest = ~is_seen
        contexts = contexts[rest]
        place, is_seen = _found(order.contexts, contexts)
        weights = np.ones(contexts.shape)
        weights[is_seen] = order.weights[place[is_seen]]
        result[rest] = weights * shorter._probabilities(shorter._shortened(contexts), words[rest])
        return result

    def _best(self, contexts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The most probable words of the vocabulary, and their probabilities."""
        if not self.orders:
            words = np.full(contexts.shape, NUM_SPECIAL_TOKENS, np.int64)
            return words, self._probabilities(contexts, words)
        order, shorter = self.orders[-1], self._shorter
        place, is_seen = _found(order.contexts, contexts)
        words, probabilities = np.empty(contexts.shape, np.int64), np.empty(contexts.shape)
        words[is_seen] = order.best[place[is_seen]]
        probabilities[is_seen] = order.best_probabilities[place[is_seen]]
        words[~is_seen], probabilities[~is_seen] = shorter._best(
            shorter._shortened(contexts[~is_seen])
        )
        return words, probabilities


def _found(keys: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where each wanted key stands among increasing keys, and whether it does."""
    place = np.searchsorted(keys, wanted)
    is_found = place < keys.size
    is_found[is_found] = keys[place[is_found]] == wanted[is_found]
    return place, is_found


def _discounts(counts: np.ndarray) -> tuple[float, ...]:
    """What is subtracted from counts of 0, 1, 2, and of 3 or more (equation 26 of the source)."""
    n = np.bincount(np.minimum(counts, 5), minlength=6)[:5].tolist()
    if not all(n[1:]):
        return _DEFAULT_DISCOUNTS
    ratio = n[1] / (n[1] + 2 * n[2])
    discounts = tuple(i - (i + 1) * ratio * n[i + 1] / n[i] for i in (1, 2, 3))
    is_possible = all(0 <= discount <= i for i, discount in enumerate(discounts, 1))
    return (0.0, *discounts) if is_possible else _DEFAULT_DISCOUNTS
