"""The task with synthetic text, as its configuration describes it."""

import collections
import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dpfl.errors import NOT_SHOWN, ArgumentError, renaming
from dpfl.tasks import download
from dpfl.tasks.config import VOCABULARY_SOURCES, WORD_MODELS, TaskConfig, TextConfig
from dpfl.tasks.federated_task import FederatedTask
from dpfl.tasks.text import packing, sentence_batches, token_ids, word_clients

if TYPE_CHECKING:
    from dpfl.tasks.text import known_words, synthetic_text

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


def packing_of(config: TextConfig) -> packing.Packing:
    """How the sentences of a client become rows."""
    return packing.Packing(
        config.packing,
        config.sentence_length,
        config.client_max_tokens or None,
        config.client_min_tokens,
        config.client_min_sentences,
    )


@dataclasses.dataclass(frozen=True)
class SyntheticClients:
    """The clients of a synthetic language, in the form that a packing gives to their sentences.

    Attributes:
      language: writes the sentences.
      packing: how they become rows. Its filters apply to training clients only.
      ids: token id of the model for each token id of the language; None for the same.
      first: sentences that training clients have before their own, lists of words by client.
    """

    language: 'synthetic_text.SyntheticText'
    packing: packing.Packing
    ids: np.ndarray | None = None
    first: Mapping[int, Sequence[list[str]]] = dataclasses.field(default_factory=dict)

    def client_batches(
        self, client: int, batch_size: int, epochs: int = 1, max_batches: int | None = None
    ) -> list[collections.OrderedDict]:
        """The batches of a client, as `sentence_batches.batches` cuts its rows."""
        tokens = self.language.tokens(client)
        if client in self.first:
            length = self.language.sentence_length
            added = word_clients.encode(self.first[client], self._ids_of_words, length)
            tokens = np.concatenate([added, tokens])
        rows = self._of_the_model(self.packing.of_rows(tokens))
        return sentence_batches.batches(rows, batch_size, epochs, max_batches)

    @functools.cached_property
    def _ids_of_words(self) -> dict[str, int]:
        """Token ids of the language by word."""
        return {w: i for i, w in enumerate(self.language.vocabulary, token_ids.NUM_SPECIAL_TOKENS)}

    def heldout_dataset(self, num_clients: int, batch_size: int) -> Any:
        """The pooled rows of held-out clients as a `tf.data.Dataset`."""
        rows = self._of_the_model(np.concatenate(self._heldout_rows(num_clients)))
        return sentence_batches.dataset(rows, batch_size)

    def heldout_owners(self, num_clients: int) -> np.ndarray:
        """The held-out client of each row of `heldout_dataset`, int64 [rows]."""
        sizes = [len(rows) for rows in self._heldout_rows(num_clients)]
        return np.repeat(np.arange(len(sizes)), sizes)

    def _heldout_rows(self, num_clients: int) -> list[np.ndarray]:
        clients = self.language.heldout_clients(num_clients)
        return [self.packing.without_filters.of_rows(each) for each in clients]

    def test_batches(self, num_clients: int, batch_size: int) -> Iterator[collections.OrderedDict]:
        """The batches of test clients, which are made while they are used."""
        for client in range(num_clients):
            rows = self.packing.without_filters.of_rows(self.language.test_tokens(client))
            yield from sentence_batches.batches(self._of_the_model(rows), batch_size)

    def _of_the_model(self, rows: np.ndarray) -> np.ndarray:
        return rows if self.ids is None else self.ids[rows]


class SyntheticTextTask:
    """Synthetic text with a word model; a `TaskSource`."""

    def __init__(self, config: TaskConfig, seed: int):
        self._config = config
        self._seed = seed
        self._model = config.model or WORD_MODELS[0]

    def num_clients(self) -> None:
        """None: the population is endless."""

    def num_parameters(self) -> int:
        """Number of parameters of the model."""
        from dpfl.tasks.text.models import catalog

        num_tokens = vocabulary_size(self._config.text) + token_ids.NUM_SPECIAL_TOKENS
        with renaming(num_tokens='vocabulary_size'):
            return catalog.WORD_MODELS[self._model].num_parameters(num_tokens)

    def most_parameters(self) -> int:
        """As `num_parameters`, which draws nothing."""
        return self.num_parameters()

    def load(self) -> FederatedTask:
        """The task."""
        from dpfl.tasks.text.models import catalog

        download.refuse(self._config.data, self._config.task)
        language, known = self._language(), self._known_words()
        text = self._config.text
        with renaming(num_tokens='vocabulary_size'):
            num_tokens = language.num_tokens if known is None else known.num_tokens
            model = catalog.build(self._model, num_tokens, text.sentence_length, self._seed)
        ids = None if known is None else known.ids
        # They are those of a model that knows every word.
        ceilings = {} if known is not None else _ceilings(language)
        return _task(model, SyntheticClients(language, packing_of(text), ids), ceilings)

    def language_model(self) -> tuple[str, Sequence[str]]:
        """Name of the model and its vocabulary."""
        known = self._known_words()
        return self._model, tuple(self._language().vocabulary if known is None else known.words)

    def _known_words(self) -> 'known_words.KnownWords | None':
        from dpfl.tasks.text import known_words

        if self._config.text.language_size is None:
            return None
        return known_words.most_frequent(self._language(), vocabulary_size(self._config.text))

    def _language(self) -> 'synthetic_text.SyntheticText':
        from dpfl.tasks.text import synthetic_text

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


def _ceilings(language: 'synthetic_text.SyntheticText') -> dict[str, float]:
    return {
        'unigram_accuracy': language.unigram_accuracy,
        'bigram_accuracy': language.bigram_accuracy,
        'best_accuracy': language.best_accuracy,
    }
