"""Accuracies of predictors that only count: what a trained model has to beat.

A unigram predictor always says the most frequent word, a bigram predictor the word that most often
follows the word before, and a trigram predictor the most probable word of a smoothed trigram model
(`ngrams.kneser_ney`). All of them say words of the vocabulary only, never end of sentence or an
unknown word, which are misses for a model too. All measures are those of a model's metrics:

* `accuracy` is over the words of the vocabulary;
* `accuracy_with_oov` is over all words, where an unknown word is a miss;
* `loss` and `perplexity`, of the trigram model, are over all targets but padding.
"""

import dataclasses
import math
from collections.abc import Iterable, Sequence

import numpy as np

from dpfl.tasks.text.ngrams.counts import BITS, MASK, TrigramCounts, trigrams
from dpfl.tasks.text.ngrams.kneser_ney import KneserNey
from dpfl.tasks.text.token_ids import NUM_SPECIAL_TOKENS, OOV_ID

NAMES = ('unigram', 'bigram', 'trigram')
# Words that are counted for a run at most: more would change no line in a plot.
MOST_WORDS = 300_000


@dataclasses.dataclass(frozen=True)
class Measures:
    """How predictors did on text.

    Attributes:
      hits: words that were predicted rightly, by unigrams, bigrams and trigrams.
      words: words of the vocabulary.
      unknown: words outside of it.
      targets: words, unknown words and ends of sentences.
      loss: sum over the targets of the trigram model's loss, in nats.
    """

    hits: tuple[int, ...] = (0,) * len(NAMES)
    words: int = 0
    unknown: int = 0
    targets: int = 0
    loss: float = 0.0

    def __add__(self, other: 'Measures') -> 'Measures':
        return Measures(
            tuple(a + b for a, b in zip(self.hits, other.hits, strict=True)),
            self.words + other.words,
            self.unknown + other.unknown,
            self.targets + other.targets,
            self.loss + other.loss,
        )

    def to_dict(self) -> dict[str, float]:
        """The measures by name, such as `bigram_accuracy_with_oov`; empty if there are no words."""
        if not self.words:
            return {}
        found: dict[str, float] = {}
        for name, hits in zip(NAMES, self.hits, strict=True):
            found[f'{name}_accuracy'] = hits / self.words
            found[f'{name}_accuracy_with_oov'] = hits / (self.words + self.unknown)
        loss = self.loss / self.targets
        return {**found, 'trigram_loss': loss, 'trigram_perplexity': math.exp(loss)}


@dataclasses.dataclass(frozen=True)
class Predictors:
    """The three predictors, made of the same text.

    Attributes:
      best: the most frequent word, as a token id.
      after: the tokens that words follow, int64, increasing.
      next: the word that most often follows each of them, int64; of equally frequent words the
        first in the vocabulary, as for `best`.
      trigrams: the smoothed trigram model.
    """

    best: int
    after: np.ndarray
    next: np.ndarray
    trigrams: KneserNey

    @classmethod
    def of(cls, counts: TrigramCounts) -> 'Predictors | None':
        """The predictors of counted text; None if it has no word of the vocabulary."""
        pairs, occurrences, _ = counts.pairs()
        is_word = pairs & MASK >= NUM_SPECIAL_TOKENS
        pairs, occurrences = pairs[is_word], occurrences[is_word]
        if not pairs.size:
            return None
        # By token before, then by count, the most frequent first; the order of words is kept.
        order = np.lexsort((-occurrences, pairs >> BITS))
        after, first = np.unique(pairs[order] >> BITS, return_index=True)
        return cls(
            int(np.bincount(pairs & MASK, occurrences).argmax()),
            after,
            pairs[order][first] & MASK,
            KneserNey.of(counts),
        )

    def measure(self, tokens: np.ndarray) -> Measures:
        """Predicts every word of sentences.

        Args:
          tokens: token ids with begin of sentence first, int [sentences, L + 1].
        """
        keys = trigrams(tokens)
        targets = keys & MASK
        is_word = targets >= NUM_SPECIAL_TOKENS
        words, before = targets[is_word], keys[is_word] >> BITS & MASK
        # A token that was never seen is followed by the most frequent word.
        followers = np.full(words.size, self.best)
        places = np.searchsorted(self.after, before)
        known = places < self.after.size
        known[known] = self.after[places[known]] == before[known]
        followers[known] = self.next[places[known]]
        predicted = (self.best, followers, self.trigrams.predictions(keys[is_word]))
        return Measures(
            tuple(int((words == each).sum()) for each in predicted),
            words.size,
            int((targets == OOV_ID).sum()),
            targets.size,
            -float(self.trigrams.log_probabilities(keys).sum()),
        )


def of_clients(
    clients: Sequence[np.ndarray], others: Iterable[np.ndarray], num_tokens: int
) -> dict[str, float]:
    """Measures on clients, counted on other text and on the other half of the clients.

    A client is never predicted from its own text: with few clients the counts would know the
    answers.

    Args:
      clients: sentences of each client, as in `Predictors.measure`.
      others: more sentences of the same kind, by other people; only the first are counted.
      num_tokens: number of token ids.

    Returns:
      As `Measures.to_dict`; empty if nothing was predicted rightly.
    """
    counted = TrigramCounts.of(limited(others, MOST_WORDS), num_tokens)
    total = Measures()
    for half in (0, 1):
        predictors = Predictors.of(counted + TrigramCounts.of(clients[1 - half :: 2], num_tokens))
        if predictors is not None and clients[half::2]:
            total += predictors.measure(np.concatenate(clients[half::2]))
    return total.to_dict() if any(total.hits) else {}


def limited(texts: Iterable[np.ndarray], most_words: int) -> Iterable[np.ndarray]:
    """The first texts, until there are enough words of the vocabulary."""
    words = 0
    for tokens in texts:
        yield tokens
        words += int((tokens >= NUM_SPECIAL_TOKENS).sum())
        if words >= most_words:
            break
