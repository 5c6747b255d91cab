"""Clients with sentences of words, and the encoding of their words as token ids."""

import collections
import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from dpfl import _validate, errors
from dpfl.tasks.text import sentence_batches
from dpfl.tasks.text.token_ids import BOS_ID, EOS_ID, OOV_ID, PAD_ID
from dpfl.tasks.text.vocabulary import Vocabulary


@dataclasses.dataclass(frozen=True)
class WordClients:
    """Clients and their sentences.

    Attributes:
      count: number of clients; their ids are 0 to `count - 1`.
      sentences: maps a client id to the client's sentences, lists of words, in the order of the
        data. Callers may stop iterating early. May raise `errors.DataError`.
    """

    count: int
    sentences: Callable[[int], Iterable[list[str]]]

    def slice(self, first: int, last: int) -> 'WordClients':
        """The clients `first` to `last - 1`, renumbered from 0."""
        return WordClients(last - first, lambda client: self.sentences(client + first))


@dataclasses.dataclass(frozen=True)
class WordTask:
    """A text task: training clients and held-out clients as batches of token ids.

    Attributes:
      training: clients to train on.
      heldout: clients for evaluation, disjoint from the training clients.
      vocabulary: words with token ids of their own.
      sentence_length: L, the most words of a sentence; longer sentences are cut.
      max_tokens: only the first `max_tokens` words of a client are used (1600 in [McMahan18]); None
        for all.

    Raises:
      ValueError: if a parameter is outside its range; the message names it.
    """

    training: WordClients
    heldout: WordClients
    vocabulary: Vocabulary
    sentence_length: int
    max_tokens: int | None = None

    def __post_init__(self):
        _validate.integer('sentence_length', self.sentence_length, minimum=1)
        if self.max_tokens is not None:
            _validate.integer('client_max_tokens', self.max_tokens, minimum=1)

    def client_batches(
        self, client: int, batch_size: int, epochs: int = 1, max_batches: int | None = None
    ) -> list[collections.OrderedDict]:
        """Batches of a training client, as from `sentence_batches.batches`.

        Raises:
          ValueError: if an argument is outside its range.
          DataError: if the data cannot be read.
        """
        _validate.integer('client', client, minimum=0, maximum=self.training.count - 1)
        most = None if max_batches is None else max_batches * batch_size  # No more are read.
        tokens = self._encode(self.training.sentences(client), most)
        return sentence_batches.batches(tokens, batch_size, epochs, max_batches)

    def heldout_dataset(self, num_clients: int, batch_size: int) -> Any:
        """Pooled sentences of the first `num_clients` held-out clients as a `tf.data.Dataset`."""
        _validate.integer('num_clients', num_clients, minimum=1)
        clients = range(min(num_clients, self.heldout.count))
        tokens = [self._encode(self.heldout.sentences(client)) for client in clients]
        return sentence_batches.dataset(np.concatenate(tokens), batch_size)

    def heldout_owners(self, num_clients: int) -> np.ndarray:
        """The held-out client of each sentence of `heldout_dataset`, int64 [sentences]."""
        clients = range(min(num_clients, self.heldout.count))
        sizes = [len(self._encode(self.heldout.sentences(client))) for client in clients]
        return np.repeat(np.arange(len(sizes)), sizes)

    def _encode(
        self, sentences: Iterable[list[str]], max_sentences: int | None = None
    ) -> np.ndarray:
        return encode(
            sentences, self.vocabulary.ids, self.sentence_length, self.max_tokens, max_sentences
        )


def encode(
    sentences: Iterable[list[str]],
    ids: Mapping[str, int],
    sentence_length: int,
    max_tokens: int | None = None,
    max_sentences: int | None = None,
) -> np.ndarray:
    """Encodes sentences as token ids.

    Args:
      sentences: lists of words; empty lists are skipped.
      ids: token ids of the words of the vocabulary.
      sentence_length: L, the most words of a sentence.
      max_tokens: total number of words at most; the sentence that exceeds it is cut. None for no
        bound.
      max_sentences: number of sentences at most; None for no bound.

    Returns:
      int32 [sentences, L + 1]: begin of sentence, at most L words, end of sentence (unless the
      sentence was cut or fills all positions), padding.
    """
    rows: list[list[int]] = []
    left = max_tokens
    for words in sentences:
        if not words:
            continue
        kept = words[: sentence_length if left is None else min(sentence_length, left)]
        row = [BOS_ID, *(ids.get(word, OOV_ID) for word in kept)]
        if len(kept) == len(words) < sentence_length:
            row.append(EOS_ID)
        rows.append(row + [PAD_ID] * (sentence_length + 1 - len(row)))
        if left is not None:
            left -= len(kept)
        if left == 0 or len(rows) == max_sentences:
            break
    return np.array(rows, np.int32).reshape(-1, sentence_length + 1)


def share_of_heldout(num_clients: int, fraction: float) -> int:
    """Number of held-out clients: the given fraction, but at least one and not all.

    Raises:
      ValueError: if there are fewer than two clients, or the fraction is not in (0, 1).
    """
    _validate.number('heldout_fraction', fraction, above=0, below=1)
    if num_clients < 2:
        raise errors.ArgumentError(
            'num_clients', num_clients, 'must be at least 2, one to train on and one held out'
        )
    return min(max(round(fraction * num_clients), 1), num_clients - 1)
