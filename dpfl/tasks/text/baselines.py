"""Accuracies of predictors that only count words, which a trained model has to beat.

A unigram predictor always says the most frequent word, a bigram predictor the word that most often
follows the word before. Both say words of the vocabulary only, never end of sentence or an unknown
word, which are misses for a model too. The measures are those of a model's metrics:

* `accuracy` is over the words of the vocabulary;
* `accuracy_with_oov` is over all words, where an unknown word is a miss.
"""

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from dpfl.tasks.text.tokenization import NUM_SPECIAL_TOKENS, OOV_ID, PAD_ID

# Two token ids are one int64.
_BITS = 32
_MASK = (1 << _BITS) - 1
# N-grams that are collected before they are counted: 32 MB.
_COLLECTED = 1 << 22
# Words that are counted for a run at most: more would change no line in a plot.
MOST_WORDS = 300_000


@dataclasses.dataclass(frozen=True)
class Counts:
    """How often each n-gram occurs. Text is read in parts and not kept.

    Attributes:
      keys: the n-grams that occur, int64, increasing; `pairs` or others.
      counts: how often each occurs, int64, at least 1.
    """

    keys: np.ndarray
    counts: np.ndarray

    @classmethod
    def of(cls, parts: Iterable[np.ndarray]) -> 'Counts':
        """Counts n-grams, int64 [n-grams] in each part."""
        total = cls(np.zeros(0, np.int64), np.zeros(0, np.int64))
        collected: list[np.ndarray] = []
        size = 0
        for keys in parts:
            collected.append(keys)
            size += keys.size
            # Parts grow with the counts, so that each n-gram is merged few times.
            if size >= max(_COLLECTED, total.keys.size):
                total, size = total._with(collected), 0
                collected.clear()
        return total._with(collected)

    def _with(self, collected: list[np.ndarray]) -> 'Counts':
        if not collected:
            return self
        return self + Counts(*np.unique(np.concatenate(collected), return_counts=True))

    def __add__(self, other: 'Counts') -> 'Counts':
        """The counts of both texts together."""
        if not self.keys.size:
            return other
        keys = np.concatenate([self.keys, other.keys])
        order = np.argsort(keys, kind='stable')  # Fast: both parts are sorted.
        keys = keys[order]
        first = np.flatnonzero(np.diff(keys, prepend=-1))
        counts = np.concatenate([self.counts, other.counts])[order]
        return Counts(keys[first], np.add.reduceat(counts, first))


def pairs(tokens: np.ndarray) -> np.ndarray:
    """The targets of sentences, which are all tokens but padding, with the token before each.

    Args:
      tokens: token ids with begin of sentence first, int [sentences, L + 1].

    Returns:
      `before << _BITS | target`, int64 [targets].
    """
    words = tokens.astype(np.int64)
    return (words[:, :-1] << _BITS | words[:, 1:])[words[:, 1:] != PAD_ID]


@dataclasses.dataclass(frozen=True)
class Measures:
    """How predictors did on text.

    Attributes:
      hits: words that were predicted rightly, by predictor.
      words: words of the vocabulary.
      unknown: words outside of it.
    """

    hits: dict[str, int] = dataclasses.field(default_factory=dict)
    words: int = 0
    unknown: int = 0

    def __add__(self, other: 'Measures') -> 'Measures':
        hits = {name: self.hits.get(name, 0) + count for name, count in other.hits.items()}
        return Measures(hits, self.words + other.words, self.unknown + other.unknown)

    def to_dict(self) -> dict[str, float]:
        """The measures by name, such as `bigram_accuracy_with_oov`; empty if there are no words."""
        if not self.words:
            return {}
        accuracies: dict[str, float] = {}
        for name, hits in self.hits.items():
            accuracies[f'{name}_accuracy'] = hits / self.words
            accuracies[f'{name}_accuracy_with_oov'] = hits / (self.words + self.unknown)
        return accuracies


@dataclasses.dataclass(frozen=True)
class Predictors:
    """Both predictors, made of the same text.

    Attributes:
      best: the most frequent word, as a token id.
      after: the tokens that words follow, int64, increasing.
      next: the word that most often follows each of them, int64; of equally frequent words the
        first in the vocabulary, as for `best`.
    """

    best: int
    after: np.ndarray
    next: np.ndarray

    @classmethod
    def of(cls, counts: Counts) -> 'Predictors | None':
        """The predictors of counted pairs; None if they have no word of the vocabulary."""
        is_word = counts.keys & _MASK >= NUM_SPECIAL_TOKENS
        keys, occurrences = counts.keys[is_word], counts.counts[is_word]
        if not keys.size:
            return None
        # By token before, then by count, the most frequent first; the order of words is kept.
        order = np.lexsort((-occurrences, keys >> _BITS))
        after, first = np.unique(keys[order] >> _BITS, return_index=True)
        best = int(np.bincount(keys & _MASK, occurrences).argmax())
        return cls(best, after, keys[order][first] & _MASK)

    def measure(self, tokens: np.ndarray) -> Measures:
        """Predicts every word of sentences.

        Args:
          tokens: token ids with begin of sentence first, int [sentences, L + 1].
        """
        keys = pairs(tokens)
        targets = keys & _MASK
        is_word = targets >= NUM_SPECIAL_TOKENS
        words, before = targets[is_word], keys[is_word] >> _BITS
        # A token that was never seen is followed by the most frequent word.
        followers = np.full(words.size, self.best)
        places = np.searchsorted(self.after, before)
        known = places < self.after.size
        known[known] = self.after[places[known]] == before[known]
        followers[known] = self.next[places[known]]
        return Measures(
            {
                'unigram': int((words == self.best).sum()),
                'bigram': int((words == followers).sum()),
            },
            words.size,
            int((targets == OOV_ID).sum()),
        )


def of_clients(clients: Sequence[np.ndarray], others: Iterable[np.ndarray]) -> dict[str, float]:
    """Measures on clients, counted on other text and on the other half of the clients.

    A client is never predicted from its own text: with few clients the counts would know the
    answers.

    Args:
      clients: sentences of each client, as in `Predictors.measure`.
      others: more sentences of the same kind, by other people; only the first are counted.

    Returns:
      As `Measures.to_dict`; empty if nothing was predicted rightly.
    """
    counted = Counts.of(map(pairs, _limited(others, MOST_WORDS)))
    total = Measures()
    for half in (0, 1):
        predictors = Predictors.of(counted + Counts.of(map(pairs, clients[1 - half :: 2])))
        if predictors is not None and clients[half::2]:
            total += predictors.measure(np.concatenate(clients[half::2]))
    return total.to_dict() if any(total.hits.values()) else {}


def _limited(texts: Iterable[np.ndarray], most_words: int) -> Iterable[np.ndarray]:
    """The first texts, until there are enough words of the vocabulary."""
    words = 0
    for tokens in texts:
        yield tokens
        words += int((tokens >= NUM_SPECIAL_TOKENS).sum())
        if words >= most_words:
            break
