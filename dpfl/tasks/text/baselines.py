"""Accuracies of predictors that only count: what a trained model has to beat.

The counts come from public text, or from held-out clients. In the second case a client is never
predicted from its own text: with few clients the counts would know the answers.
"""

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from dpfl.tasks.text.token_ids import NUM_SPECIAL_TOKENS

# Words that are counted at most: more would change no line in a plot.
MOST_WORDS = 300_000


@dataclasses.dataclass(frozen=True)
class Counts:
    """How often words and pairs of tokens occur in text.

    Attributes:
      best: the most frequent word, as a token id; None if there are no words.
      after: the tokens that words follow, int64, increasing.
      next: the word that most often follows each of them, int64.
    """

    best: int | None
    after: np.ndarray
    next: np.ndarray

    @classmethod
    def of(cls, tokens: np.ndarray, num_tokens: int) -> 'Counts':
        """Counts the words of sentences; of equally frequent words the first in the vocabulary.

        Args:
          tokens: token ids with begin of sentence first, int [sentences, L + 1].
          num_tokens: number of token ids.
        """
        before, words = _pairs(tokens)
        if not words.size:
            return cls(None, np.zeros(0, np.int64), np.zeros(0, np.int64))
        pairs, counts = np.unique(before * num_tokens + words, return_counts=True)
        # By token before, then by count, the most frequent first; the order of words is kept.
        order = np.lexsort((-counts, pairs // num_tokens))
        after, first = np.unique(pairs[order] // num_tokens, return_index=True)
        return cls(int(np.bincount(words).argmax()), after, pairs[order][first] % num_tokens)

    def hits(self, tokens: np.ndarray) -> tuple[int, int, int]:
        """How many words of sentences are predicted rightly, by word counts and by pairs.

        A token that was never seen is followed by the most frequent word.

        Returns:
          Hits of the unigram and of the bigram predictor, and the number of words.
        """
        before, words = _pairs(tokens)
        if self.best is None:
            return 0, 0, words.size
        predicted = np.full(words.size, self.best)
        places = np.searchsorted(self.after, before)
        known = places < self.after.size
        known[known] = self.after[places[known]] == before[known]
        predicted[known] = self.next[places[known]]
        return int((words == self.best).sum()), int((words == predicted).sum()), words.size


def accuracies(
    clients: Sequence[np.ndarray], others: Iterable[np.ndarray], num_tokens: int
) -> dict[str, float]:
    """Accuracies on clients, counted on other text and on the other half of the clients.

    Args:
      clients: sentences of each client, as in `Counts.of`.
      others: more sentences of the same kind, by other people.
      num_tokens: number of token ids.

    Returns:
      `unigram_accuracy` and `bigram_accuracy`, as the metric `accuracy` counts them: over the words
      of the vocabulary. Empty if there are no such words, or nothing to count.
    """
    more = _limited(others)
    totals = np.zeros(3, np.int64)
    for half in (0, 1):
        counted = [*more, *clients[1 - half :: 2]]
        if not counted or not len(clients[half::2]):
            continue
        counts = Counts.of(np.concatenate(counted), num_tokens)
        totals += counts.hits(np.concatenate(clients[half::2]))
    unigram, bigram, words = totals.tolist()
    if not unigram and not bigram:
        return {}
    return {'unigram_accuracy': unigram / words, 'bigram_accuracy': bigram / words}


def _pairs(tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The words of the vocabulary in sentences, and the token before each of them, int64."""
    before, targets = tokens[:, :-1].astype(np.int64), tokens[:, 1:].astype(np.int64)
    is_word = targets >= NUM_SPECIAL_TOKENS
    return before[is_word], targets[is_word]


def _limited(texts: Iterable[np.ndarray]) -> list[np.ndarray]:
    """The first texts, until there are enough words."""
    found: list[np.ndarray] = []
    words = 0
    for tokens in texts:
        found.append(tokens)
        words += int((tokens >= NUM_SPECIAL_TOKENS).sum())
        if words >= MOST_WORDS:
            break
    return found
