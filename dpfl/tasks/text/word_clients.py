"""Clients with sentences of words, and the encoding of their words as token ids.

How the sentences of a client become the rows that a model trains on (NumPy only).

`sentences`: a row is one sentence, cut off at the end of the row or padded.

`windows`: the sentences are joined, each followed by the end-of-sentence token, and cut into
windows of equally many tokens, as in [McMahan18], section 3: 1600 tokens are 160 windows of 10,
which are 20 batches of 8 windows. Nothing is cut off, and only a client's last window has padding.
The first input of a window is the token before it: the last one of the window before, or begin of
sentence for the first window of a client. A model begins every window without a state.
"""

import collections
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dpfl import _validate
from dpfl.tasks import federated_task
from dpfl.tasks.text.tokenization import BOS_ID, EOS_ID, OOV_ID, PAD_ID

if TYPE_CHECKING:
    from dpfl.tasks.text.vocabulary import Vocabulary
# Test clients that are read at a time: a test can be on very many.
_TEST_CLIENTS = 100
# Number of clients of a synthetic population.
ENDLESS = 2**64


def examples(tokens: np.ndarray) -> federated_task.Examples:
    """Inputs x and targets y of sentences; y is x one position later.

    Args:
      tokens: int32 [sentences, L + 1].

    Returns:
      Arrays x and y, int32 [sentences, L].
    """
    return {'x': tokens[:, :-1], 'y': tokens[:, 1:]}


def batches(
    tokens: np.ndarray, batch_size: int, epochs: int = 1, max_batches: int | None = None
) -> list[collections.OrderedDict]:
    """Batches of the `examples` of sentences, as `federated_task.batches` cuts them."""
    return federated_task.batches(examples(tokens), batch_size, epochs, max_batches)


@dataclasses.dataclass(frozen=True)
class Packing:
    """The form of a client's rows, and how much text a client must have and may use.

    A client's tokens are the words that its rows have: with 'windows' all of them and the
    end-of-sentence tokens, with 'sentences' those within the rows.

    Attributes:
      kind: 'sentences' or 'windows'.
      length: L, the number of positions of a row that a model predicts.
      max_tokens: only the first `max_tokens` tokens of a client are used; None for all.
      min_tokens: a client with fewer tokens has no rows ([McMahan18] removes users with less than
        1600).
    """

    kind: str
    length: int
    max_tokens: int | None = None
    min_tokens: int = 0

    def of_long_enough(self, sentences: Iterable[Sequence[str]]) -> Iterable[Sequence[str]]:
        """The sentences of a client, or none if the client has too little text.

        Args:
          sentences: lists of words; empty ones do not count. Read only as far as needed.
        """
        if not self.min_tokens:
            return sentences
        rest = iter(sentences)
        read: list[Sequence[str]] = []
        tokens = 0
        for words in rest:
            if words:
                read.append(words)
                tokens += self._tokens(len(words))
            if tokens >= self.min_tokens:
                return itertools.chain(read, rest)
        return ()

    def _tokens(self, num_words: int) -> int:
        return num_words + 1 if self.kind == 'windows' else min(num_words, self.length)


def windows(tokens: np.ndarray, length: int) -> np.ndarray:
    """Cuts joined sentences into windows.

    Args:
      tokens: int32 [tokens]: words, and end of sentence after each sentence.
      length: L, the number of tokens of a window.

    Returns:
      int32 [windows, L + 1]: the token before the window, or begin of sentence; its tokens, and
      padding in the last window.
    """
    count = -(-len(tokens) // length)
    padded = np.full(count * length + 1, PAD_ID, np.int32)
    padded[0] = BOS_ID
    padded[1 : len(tokens) + 1] = tokens
    starts = np.arange(count)[:, None] * length
    return padded[starts + np.arange(length + 1)]


@dataclasses.dataclass(frozen=True)
class WordClients:
    """Clients and their sentences.

    Attributes:
      count: number of clients; their ids are 0 to `count - 1`. `ENDLESS` if they are made when they
        are needed.
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
class WordTask(federated_task.ClientData):
    """A text task: training clients and held-out clients as batches of token ids.

    Attributes:
      training: clients to train on.
      heldout: clients for evaluation, disjoint from the training clients.
      vocabulary: words with token ids of their own.
      packing: how sentences become rows. Its filters apply to training clients only.
      test: clients for a test of the final model, disjoint from the others; None if there are none.
      reference_accuracies: as in `FederatedTask`.
    """

    training: WordClients
    heldout: WordClients
    vocabulary: 'Vocabulary'
    packing: Packing
    test: WordClients | None = None
    reference_accuracies: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def facts(self) -> dict[str, Any]:
        """The fields of a `FederatedTask` that say something about the data."""
        return {'reference_accuracies': self.reference_accuracies}

    def with_model(self, model: Any) -> federated_task.FederatedTask:
        """The task as training takes it, with a model of the token ids of the vocabulary."""
        from dpfl.tasks.text.models import metrics

        def with_sentences(
            sentences: Mapping[int, Sequence[list[str]]],
        ) -> federated_task.FederatedTask:
            training = self.training.with_first(sentences)
            return dataclasses.replace(self, training=training).with_model(model)

        population, tested = (
            None if clients is None or clients.count == ENDLESS else clients.count
            for clients in (self.training, self.test)
        )
        return federated_task.FederatedTask(
            model=model,
            population=population,
            client_batches=self.client_batches,
            heldout=self.heldout_dataset,
            heldout_owners=self.heldout_owners,
            hits=metrics.hits,
            num_test_clients=tested,
            test=None if self.test is None else self.test_batches,
            with_sentences=with_sentences,
            **self.facts(),
        )

    def of_client(self, client: int, limit: int | None = None) -> federated_task.Examples:
        """The rows of a training client.

        Raises:
          ValueError: if there is no such client.
          DataError: if the data cannot be read.
        """
        _validate.integer('client', client, minimum=0, maximum=self.training.count - 1)
        return examples(self.training_tokens(client, limit))

    def training_tokens(self, client: int, limit: int | None = None) -> np.ndarray:
        """Token ids of a training client, the first `limit` rows or all, int32 [rows, L + 1]."""
        sentences = self.packing.of_long_enough(self.training.sentences(client))
        return self._encode(sentences, limit)

    def of_heldout(self, num_clients: int) -> list[federated_task.Examples]:
        """The rows of each of the first held-out clients, without filters."""
        return [*map(examples, self.heldout_tokens(0, num_clients))]

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
            yield from batches(rows, batch_size)

    def encoded(self, sentences: Iterable[Sequence[str]]) -> np.ndarray:
        """Token ids of all of these sentences, packed as those of clients, int32 [rows, L + 1]."""
        return self._rows(sentences, None, None)

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
        return windows(encode_joined(sentences, ids, max_tokens), length)


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
