"""What is counted on the text of clients: vocabulary coverage, amounts of text, and baselines.

All numbers are exact counts of the clients' data, without noise: no guarantee covers them.

Coverage is the share of the text that a vocabulary has, measured on held-out clients and not on
training clients. It is for the one who trains, shown at the start of a run and not kept.

Baselines are the accuracies of predictors that only count words, which a trained model has to beat.
A unigram predictor always says the most frequent word, a bigram predictor the word that most often
follows the word before. Both say words of the vocabulary only, never end of sentence or an unknown
word, which are misses for a model too. The measures are those of a model's metrics: `accuracy` is
over the words of the vocabulary, `accuracy_with_oov` over all words, where an unknown word is a
miss.
"""

import collections
import dataclasses
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from dpfl import errors
from dpfl.tasks.text.tokenization import NUM_SPECIAL_TOKENS, OOV_ID, PAD_ID
from dpfl.tasks.text.vocabulary import Vocabulary

# Clients that use an unknown word at least, for it to be shown: others may identify a client.
LEAST_CLIENTS = 5
# How many unknown words are shown.
_SHOWN = 10
# Share of unknown tokens above which there is a warning.
_MOST_UNKNOWN = 0.1
_WARNING = (
    'warning: {unknown:.0%} of the tokens are unknown. The model learns to predict the unknown '
    'word, and accuracy counts that as a miss (accuracy_known does not). Give more words: '
    'vocabulary_file with the words and marks of such text, vocabulary_text with public text of '
    'the kind, or vocabulary=private'
)
# Two token ids are one int64.
_BITS = 32
_MASK = (1 << _BITS) - 1
# Words that are counted for a run at most: more would change no line in a plot.
MOST_WORDS = 300_000


def coverage(clients: Iterable[Iterable[Sequence[str]]], vocabulary: Vocabulary) -> list[str]:
    """The lines on the share of the tokens that a vocabulary has; a run shows them at its start.

    They name the most frequent unknown words that at least `LEAST_CLIENTS` clients use. If more
    than a tenth of the tokens is unknown, the last line is a warning.

    Args:
      clients: the sentences of each held-out client, lists of tokens.
      vocabulary: the words that are known.
    """
    tokens, num_clients = 0, 0
    unknown: collections.Counter[str] = collections.Counter()
    users: collections.Counter[str] = collections.Counter()
    for sentences in clients:
        num_clients += 1
        own: collections.Counter[str] = collections.Counter()
        for sentence in sentences:
            tokens += len(sentence)
            own.update(token for token in sentence if token not in vocabulary.ids)
        unknown.update(own)
        users.update(own.keys())
    ranked = sorted(unknown, key=lambda token: (-unknown[token], token))
    frequent = [token for token in ranked if users[token] >= LEAST_CLIENTS][:_SHOWN]
    share = unknown.total() / tokens if tokens else 0.0
    text = (
        f'vocabulary: has {1 - share:.1%} of the tokens of {num_clients} '
        'held-out clients (exact; for the one who trains)'
    )
    if frequent:
        text += (
            f'; the most frequent others, each used by {LEAST_CLIENTS} clients or more: '
            + ' '.join(frequent)
        )
    return [text] if share <= _MOST_UNKNOWN else [text, _WARNING.format(unknown=share)]


@dataclasses.dataclass(frozen=True)
class TextStatistics:
    """Statistics of the text of some clients.

    Attributes:
      clients: number of clients that were read.
      words: words of each client, int64 [clients].
      sentences: sentences of each client, int64 [clients].
      lengths: number of sentences by their words, int64; index 0 is unused.
      covered: share of the words that the first i words of the vocabulary cover, by i, float64
        [vocabulary + 1].
    """

    clients: int
    words: np.ndarray
    sentences: np.ndarray
    lengths: np.ndarray
    covered: np.ndarray

    @classmethod
    def of(
        cls,
        clients: Iterable[Iterable[list[str]]],
        vocabulary: Vocabulary,
        max_words: int | None = None,
    ) -> 'TextStatistics':
        """Reads the sentences of clients.

        Args:
          clients: the sentences of each client, lists of words.
          vocabulary: words, the most frequent first.
          max_words: how many words of a client count; None for all.

        Raises:
          ValueError: if there are no words.
        """
        place = {word: number for number, word in enumerate(vocabulary.words)}
        counted: collections.Counter[int] = collections.Counter()
        lengths: collections.Counter[int] = collections.Counter()
        words, sentences = [], []
        for client in clients:
            read = rows = 0
            for sentence in client:
                if max_words is not None and read >= max_words:
                    break
                kept = sentence if max_words is None else sentence[: max_words - read]
                places = [place.get(word, len(place)) for word in kept]
                counted.update(places)
                lengths[len(sentence)] += 1
                read += len(kept)
                rows += 1
            words.append(read)
            sentences.append(rows)
        if not counted:
            raise errors.ArgumentError('data_path', errors.NOT_SHOWN, 'must have words')
        by_length = np.zeros(max(lengths) + 1, np.int64)
        by_length[list(lengths)] = list(lengths.values())
        counts = np.zeros(len(place) + 1, np.int64)  # The last: words outside of the vocabulary.
        counts[list(counted)] = list(counted.values())
        covered = np.concatenate([[0.0], np.cumsum(counts[:-1])]) / counts.sum()
        return cls(len(words), np.array(words), np.array(sentences), by_length, covered)

    def quantile_of_words(self, share: float) -> int:
        """The number of words that this share of the clients does not exceed."""
        return int(np.quantile(self.words, share, method='lower'))

    def length_that_covers(self, share: float) -> int:
        """The least length that this share of the sentences does not exceed."""
        cumulated = np.cumsum(self.lengths) / self.lengths.sum()
        return int(np.argmax(cumulated >= share))

    @property
    def oov_share(self) -> float:
        """Share of the words that are outside the vocabulary."""
        return float(1 - self.covered[-1])

    def covered_beside(self, last: int) -> np.ndarray:
        """`covered`, of vocabularies that always have the `last` words, besides others."""
        return self.covered[: self.covered.size - last] + (
            self.covered[-1] - self.covered[-1 - last]
        )

    def words_that_cover(self, share: float, last: int = 0) -> int | None:
        """Size of the smallest vocabulary that covers a share of the words; None if none does.

        Args:
          share: between 0 and 1.
          last: number of the last words, which are in every vocabulary and are not counted.
        """
        enough = self.covered_beside(last) >= share
        return int(np.argmax(enough)) if enough.any() else None


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
    def of(cls, parts: Sequence[np.ndarray]) -> 'Predictors | None':
        """The predictors of `pairs`; None if they have no word of the vocabulary."""
        keys = np.concatenate([np.zeros(0, np.int64), *parts])
        is_word = keys & _MASK >= NUM_SPECIAL_TOKENS
        keys, occurrences = np.unique(keys[is_word], return_counts=True)
        if not keys.size:
            return None
        # By token before, then by count, the most frequent first; the order of words is kept.
        order = np.lexsort((-occurrences, keys >> _BITS))
        after, first = np.unique(keys[order] >> _BITS, return_index=True)
        best = int(np.bincount(keys & _MASK, occurrences).argmax())
        return cls(best, after, keys[order][first] & _MASK)

    def measure(self, tokens: np.ndarray) -> collections.Counter[str]:
        """Predicts every word of sentences.

        Args:
          tokens: token ids with begin of sentence first, int [sentences, L + 1].

        Returns:
          The right predictions `unigram` and `bigram`, and the numbers of `words` of the vocabulary
          and of `unknown` words.
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
        return collections.Counter(
            unigram=int((words == self.best).sum()),
            bigram=int((words == followers).sum()),
            words=words.size,
            unknown=int((targets == OOV_ID).sum()),
        )


def baselines(clients: Sequence[np.ndarray], others: Iterable[np.ndarray]) -> dict[str, float]:
    """Accuracies of the predictors, by name, such as `bigram_accuracy_with_oov`.

    The counts are those of other text and of the other half of the clients. A client is never
    predicted from its own text: with few clients the counts would know the answers.

    Args:
      clients: sentences of each client, as in `Predictors.measure`.
      others: more sentences of the same kind, by other people; only the first are counted.

    Returns:
      The accuracies; empty if nothing was predicted rightly.
    """

    def pairs_of_others() -> Iterator[np.ndarray]:
        num_words = 0
        for tokens in others:
            yield pairs(tokens)
            num_words += int((tokens >= NUM_SPECIAL_TOKENS).sum())
            if num_words >= MOST_WORDS:
                break

    counted = list(pairs_of_others())
    total: collections.Counter[str] = collections.Counter()
    for half in (0, 1):
        predictors = Predictors.of([*counted, *map(pairs, clients[1 - half :: 2])])
        if predictors is not None and clients[half::2]:
            total += predictors.measure(np.concatenate(clients[half::2]))
    if not total['unigram'] + total['bigram']:
        return {}
    accuracies: dict[str, float] = {}
    for name in ('unigram', 'bigram'):
        accuracies[f'{name}_accuracy'] = total[name] / total['words']
        accuracies[f'{name}_accuracy_with_oov'] = total[name] / (total['words'] + total['unknown'])
    return accuracies
