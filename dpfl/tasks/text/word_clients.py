"""Clients with sentences of words, and the encoding of their words as token ids."""

import collections
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from dpfl import _validate
from dpfl.tasks.text import packing as packing_lib
from dpfl.tasks.text import sentence_batches
from dpfl.tasks.text.token_ids import BOS_ID, EOS_ID, OOV_ID, PAD_ID
from dpfl.tasks.text.vocabulary import Vocabulary

# Test clients that are read at a time: a test can be on very many.
_TEST_CLIENTS = 100


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

    def with_first(self, sentences: Mapping[int, Sequence[list[str]]]) -> 'WordClients':
        """The same clients, some of which have further sentences before their own.

        Args:
          sentences: by client; lists of words.
        """
        return WordClients(
            self.count,
            lambda client: itertools.chain(sentences.get(client, ()), self.sentences(client)),
        )


@dataclasses.dataclass(frozen=True)
class WordTask:
    """A text task: training clients and held-out clients as batches of token ids.

    Attributes:
      training: clients to train on.
      heldout: clients for evaluation, disjoint from the training clients.
      vocabulary: words with token ids of their own.
      packing: how sentences become rows. Its filters apply to training clients only.
      test: clients for a test of the final model, disjoint from the others; None if there are none.
    """

    training: WordClients
    heldout: WordClients
    vocabulary: Vocabulary
    packing: packing_lib.Packing
    test: WordClients | None = None

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
        sentences = self.packing.of_long_enough(self.training.sentences(client))
        tokens = self._encode(sentences, most)
        return sentence_batches.batches(tokens, batch_size, epochs, max_batches)

    def training_tokens(self) -> Iterator[np.ndarray]:
        """Token ids of each training client, all that the model may see, int32 [rows, L + 1]."""
        for client in range(self.training.count):
            yield self._encode(self.packing.of_long_enough(self.training.sentences(client)))

    def heldout_dataset(self, num_clients: int, batch_size: int) -> Any:
        """Pooled sentences of the first `num_clients` held-out clients as a `tf.data.Dataset`."""
        tokens = list(self.heldout_tokens(0, num_clients))
        return sentence_batches.dataset(np.concatenate(tokens), batch_size)

    def heldout_tokens(self, first: int, last: int | None = None) -> Iterator[np.ndarray]:
        """Token ids of the held-out clients from `first` on, before `last` if it is given.

        int32 [sentences, L + 1] of each client.

        Raises:
          ValueError: if there is no client before `last`.
        """
        if last is not None:
            _validate.integer('num_clients', last, minimum=1)
        end = self.heldout.count if last is None else min(last, self.heldout.count)
        for client in range(first, end):
            yield self._encode(self.heldout.sentences(client))

    def test_batches(self, num_clients: int, batch_size: int) -> Iterator[collections.OrderedDict]:
        """Batches of the first `num_clients` test clients, read while they are used.

        Raises:
          ValueError: if there are fewer test clients, or an argument is not a positive integer.
        """
        most = 0 if self.test is None else self.test.count
        _validate.integer('num_clients', num_clients, minimum=1, maximum=most)
        assert self.test is not None
        sentences = self.test.sentences
        for first in range(0, num_clients, _TEST_CLIENTS):
            clients = range(first, min(first + _TEST_CLIENTS, num_clients))
            rows = np.concatenate([self._encode(sentences(client)) for client in clients])
            yield from sentence_batches.batches(rows, batch_size)

    def encoded(self, sentences: Iterable[Sequence[str]]) -> np.ndarray:
        """Token ids of all of these sentences, packed as those of clients, int32 [rows, L + 1]."""
        return self._rows(sentences, None, None)

    def heldout_owners(self, num_clients: int) -> np.ndarray:
        """The held-out client of each sentence of `heldout_dataset`, int64 [sentences]."""
        clients = range(min(num_clients, self.heldout.count))
        sizes = [len(self._encode(self.heldout.sentences(client))) for client in clients]
        return np.repeat(np.arange(len(sizes)), sizes)

    def _encode(
        self, sentences: Iterable[Sequence[str]], max_rows: int | None = None
    ) -> np.ndarray:
        return self._rows(sentences, self.packing.max_tokens, max_rows)

    def _rows(
        self, sentences: Iterable[Sequence[str]], max_tokens: int | None, max_rows: int | None
    ) -> np.ndarray:
        ids, length = self.vocabulary.ids, self.packing.length
        if self.packing.kind == 'sentences':
            return encode(sentences, ids, length, max_tokens, max_rows)
        if max_rows is not None:
            most = max_rows * length
            max_tokens = most if max_tokens is None else min(max_tokens, most)
        return packing_lib.windows(encode_joined(sentences, ids, max_tokens), length)


def encode(
    sentences: Iterable[Sequence[str]],
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


def encode_joined(
    sentences: Iterable[Sequence[str]], ids: Mapping[str, int], max_tokens: int | None = None
) -> np.ndarray:
    """Encodes sentences as token ids in one array, with the end-of-sentence token after each.

    Args:
      sentences: lists of words; empty lists are skipped.
      ids: token ids of the words of the vocabulary.
      max_tokens: number of tokens at most, the first ones; None for no bound.

    Returns:
      int32 [tokens].
    """
    tokens: list[int] = []
    for words in sentences:
        if words:
            tokens += (ids.get(word, OOV_ID) for word in words)
            tokens.append(EOS_ID)
        if max_tokens is not None and len(tokens) >= max_tokens:
            break
    return np.array(tokens[:max_tokens], np.int32)
