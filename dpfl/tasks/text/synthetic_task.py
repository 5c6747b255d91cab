"""The task with synthetic text, as its configuration describes it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dpfl.errors import NOT_SHOWN, ArgumentError, renaming
from dpfl.tasks import data_path
from dpfl.tasks.config import WORD_MODELS, TaskConfig, TextConfig
from dpfl.tasks.federated_task import FederatedTask
from dpfl.tasks.text import token_ids

if TYPE_CHECKING:
    from dpfl.tasks.text import synthetic_text

DEFAULT_VOCABULARY_SIZE = 9_996
_SOURCES = ('vocabulary_file', 'vocabulary_text', 'vocabulary_from_private_data')


def vocabulary_size(config: TextConfig) -> int:
    """Number of words of a language that makes its own.

    Raises:
      ArgumentError: if a setting says where words come from.
    """
    for name in _SOURCES:
        if getattr(config, name):
            raise ArgumentError(name, NOT_SHOWN, 'task=synthetic_text makes its own vocabulary')
    return config.vocabulary_size or DEFAULT_VOCABULARY_SIZE


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

    def load(self) -> FederatedTask:
        """The task."""
        from dpfl.tasks.text.models import catalog, metrics

        data_path.refuse(self._config.data, self._config.task)
        language = self._language()
        with renaming(num_tokens='vocabulary_size'):
            model = catalog.build(
                self._model, language.num_tokens, language.sentence_length, self._seed
            )
        return FederatedTask(
            model=model,
            population=None,
            client_batches=language.client_batches,
            heldout=language.heldout_dataset,
            heldout_owners=language.heldout_owners,
            hits=metrics.hits,
            reference_accuracies={
                'unigram_accuracy': language.unigram_accuracy,
                'bigram_accuracy': language.bigram_accuracy,
                'best_accuracy': language.best_accuracy,
            },
        )

    def language_model(self) -> tuple[str, Sequence[str]]:
        """Name of the model and its vocabulary."""
        return self._model, tuple(self._language().vocabulary)

    def _language(self) -> 'synthetic_text.SyntheticText':
        from dpfl.tasks.text import synthetic_text

        return synthetic_text.SyntheticText(
            vocabulary_size=vocabulary_size(self._config.text),
            sentence_length=self._config.text.sentence_length,
            seed=self._seed,
        )
