"""The task with synthetic text, as its configuration describes it.

The most frequent words of a synthetic language, for models that know only these.

[McMahan18], appendix D, trains models with dictionaries of 10,000, 20,000 and 30,000 words on the
same text. Here a language has more words than the model knows; the others are outside its
vocabulary. The metric `accuracy_with_oov` compares such models fairly.
"""

import collections
import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from dpfl import _validate
from dpfl.errors import NOT_SHOWN, ArgumentError, renaming
from dpfl.tasks import download
from dpfl.tasks.config import VOCABULARY_SOURCES, WORD_MODELS, TaskConfig, TextConfig
from dpfl.tasks.federated_task import ClientData, Examples, FederatedTask
from dpfl.tasks.source import TaskSource
from dpfl.tasks.text import sentence_process, synthetic_text, tokenization, word_clients
from dpfl.tasks.text.tokenization import NUM_SPECIAL_TOKENS, OOV_ID

DEFAULT_VOCABULARY_SIZE = 9_996


def vocabulary_size(config: TextConfig) -> int:
    """Number of words of a language that makes its own.

    Raises:
      ArgumentError: if a setting says where words come from.
    """
    for name in VOCABULARY_SOURCES:
        if getattr(config, name):
            raise ArgumentError(name, NOT_SHOWN, 'task=synthetic_text makes its own vocabulary')
    return config.vocabulary_size or DEFAULT_VOCABULARY_SIZE


def packing_of(config: TextConfig) -> word_clients.Packing:
    """How the sentences of a client become rows."""
    return word_clients.Packing(
        config.packing,
        config.sentence_length,
        config.client_max_tokens or None,
        config.client_min_tokens,
        config.client_min_sentences,
    )


@dataclasses.dataclass(frozen=True)
class SyntheticClients(ClientData):
    """The clients of a synthetic language, in the form that a packing gives to their sentences.

    Attributes:
      language: writes the sentences.
      packing: how they become rows. Its filters apply to training clients only.
      ids: token id of the model for each token id of the language; None for the same.
      first: sentences that training clients have before their own, lists of words by client.
    """

    language: synthetic_text.SyntheticText
    packing: word_clients.Packing
    ids: np.ndarray | None = None
    first: Mapping[int, Sequence[list[str]]] = dataclasses.field(default_factory=dict)

    def of_client(self, client: int, limit: int | None = None) -> Examples:
        """The rows of a training client; all of them, since they are drawn together."""
        tokens = self.language.tokens(client)
        if client in self.first:
            length = self.language.sentence_length
            added = word_clients.encode(self.first[client], self._ids_of_words, length)
            tokens = np.concatenate([added, tokens])
        return word_clients.examples(self._of_the_model(self.packing.of_rows(tokens)))

    @functools.cached_property
    def _ids_of_words(self) -> dict[str, int]:
        """Token ids of the language by word."""
        return {
            w: i for i, w in enumerate(self.language.vocabulary, tokenization.NUM_SPECIAL_TOKENS)
        }

    def of_heldout(self, num_clients: int) -> list[Examples]:
        """The rows of each of the first held-out clients, without filters."""
        rows = map(self.packing.without_filters.of_rows, self.language.heldout_clients(num_clients))
        return [word_clients.examples(self._of_the_model(each)) for each in rows]

    def test_batches(self, num_clients: int, batch_size: int) -> Iterator[collections.OrderedDict]:
        """The batches of test clients, which are made while they are used."""
        for client in range(num_clients):
            rows = self.packing.without_filters.of_rows(self.language.test_tokens(client))
            yield from word_clients.batches(self._of_the_model(rows), batch_size)

    def _of_the_model(self, rows: np.ndarray) -> np.ndarray:
        return rows if self.ids is None else self.ids[rows]


class SyntheticTextTask(TaskSource):
    """Synthetic text with a word model."""

    def __init__(self, config: TaskConfig, seed: int):
        self._config = config
        self._seed = seed
        self._model = config.model or WORD_MODELS[0]

    def num_parameters(self) -> int:
        """Number of parameters of the model."""
        from dpfl.tasks.text.models import saved_models

        num_tokens = vocabulary_size(self._config.text) + tokenization.NUM_SPECIAL_TOKENS
        with renaming(num_tokens='vocabulary_size'):
            return saved_models.WORD_MODELS[self._model].num_parameters(num_tokens)

    def load(self) -> FederatedTask:
        """The task."""
        from dpfl.tasks.text.models import saved_models

        download.refuse(self._config.data, self._config.task)
        language, known = self._language(), self._known_words()
        text = self._config.text
        with renaming(num_tokens='vocabulary_size'):
            num_tokens = language.num_tokens if known is None else known.num_tokens
            model = saved_models.build(self._model, num_tokens, text.sentence_length, self._seed)
        ids = None if known is None else known.ids
        # They are those of a model that knows every word.
        ceilings = {} if known is not None else _ceilings(language)
        return _task(model, SyntheticClients(language, packing_of(text), ids), ceilings)

    def language_model(self) -> tuple[str, Sequence[str]]:
        """Name of the model and its vocabulary."""
        known = self._known_words()
        return self._model, tuple(self._language().vocabulary if known is None else known.words)

    def _known_words(self) -> 'KnownWords | None':
        if self._config.text.language_size is None:
            return None
        return most_frequent(self._language(), vocabulary_size(self._config.text))

    def _language(self) -> synthetic_text.SyntheticText:
        size = vocabulary_size(self._config.text)
        language_size = self._config.text.language_size
        if language_size is not None and language_size < size:
            raise ArgumentError(
                'language_size', language_size, f'must be >= {size}, vocabulary_size'
            )
        names = {} if language_size is None else {'vocabulary_size': 'language_size'}
        with renaming(**names):
            return synthetic_text.SyntheticText(
                vocabulary_size=language_size or size,
                sentence_length=self._config.text.sentence_length,
                seed=self._seed,
            )


def _task(model: Any, clients: SyntheticClients, ceilings: Mapping[str, float]) -> FederatedTask:
    """The task of a model and clients, with accuracies to compare with."""
    from dpfl.tasks.text.models import metrics

    def with_sentences(sentences: Mapping[int, Sequence[list[str]]]) -> FederatedTask:
        return _task(model, dataclasses.replace(clients, first=sentences), ceilings)

    return FederatedTask(
        model=model,
        population=None,
        client_batches=clients.client_batches,
        heldout=clients.heldout_dataset,
        heldout_owners=clients.heldout_owners,
        hits=metrics.hits,
        test=clients.test_batches,
        with_sentences=with_sentences,
        reference_accuracies=ceilings,
    )


def _ceilings(language: synthetic_text.SyntheticText) -> dict[str, float]:
    return {
        'unigram_accuracy': language.ceilings.unigram,
        'bigram_accuracy': language.ceilings.bigram,
        'best_accuracy': language.ceilings.best,
    }


@dataclasses.dataclass(frozen=True)
class KnownWords:
    """Token ids for a model that knows the most frequent words of a language.

    Attributes:
      words: the words that the model knows, the most frequent first.
      ids: the model's token id for each token id of the language, int32.
    """

    words: tuple[str, ...]
    ids: np.ndarray

    @property
    def num_tokens(self) -> int:
        """Number of token ids of the model: the words and the four special tokens."""
        return len(self.words) + NUM_SPECIAL_TOKENS


def most_frequent(language: synthetic_text.SyntheticText, count: int) -> KnownWords:
    """The `count` words that a sentence has most often, by their expected numbers.

    Raises:
      ArgumentError: if the language has fewer words; it names `vocabulary_size`.
    """
    _validate.integer('vocabulary_size', count, minimum=1, maximum=language.vocabulary_size)
    counts = sentence_process.word_counts(language.process)
    known = np.argsort(-counts, kind='stable')[:count]
    ids = np.full(language.num_tokens, OOV_ID, np.int32)
    ids[:NUM_SPECIAL_TOKENS] = np.arange(NUM_SPECIAL_TOKENS)
    ids[NUM_SPECIAL_TOKENS + known] = NUM_SPECIAL_TOKENS + np.arange(count)
    return KnownWords(tuple(language.vocabulary[word] for word in known), ids)
