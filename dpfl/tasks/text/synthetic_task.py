"""The task with synthetic text, as its configuration describes it.

[McMahan18], appendix D, trains models with dictionaries of 10,000, 20,000 and 30,000 words on the
same text. Here a language has more words than the model knows; the others are outside its
vocabulary. The metric `accuracy_with_oov` compares such models fairly.
"""

import functools
from collections.abc import Callable, Sequence

import numpy as np

from dpfl import _validate
from dpfl.errors import NOT_SHOWN, ArgumentError, renaming
from dpfl.tasks import download
from dpfl.tasks.config import VOCABULARY_SOURCES, WORD_MODELS, TaskConfig, TextConfig
from dpfl.tasks.federated_task import FederatedTask, TaskSource
from dpfl.tasks.text import sentence_process, synthetic_text, tokenization
from dpfl.tasks.text.vocabulary import Vocabulary
from dpfl.tasks.text.word_clients import ENDLESS, Packing, WordClients, WordTask

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


def packing_of(config: TextConfig) -> Packing:
    """How the sentences of a client become rows."""
    return Packing(
        config.packing,
        config.sentence_length,
        config.client_max_tokens or None,
        config.client_min_tokens,
        config.client_min_sentences,
    )


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
        language, words, text = self._language, self._vocabulary, self._config.text
        with renaming(num_tokens='vocabulary_size'):
            model = saved_models.build(
                self._model, words.num_tokens, text.sentence_length, self._seed
            )

        def clients(tokens: Callable[[int], np.ndarray]) -> WordClients:
            return WordClients(ENDLESS, lambda client: language.sentences(tokens(client)))

        task = WordTask(
            clients(language.tokens),
            clients(language.heldout_tokens),
            words,
            packing_of(text),
            clients(language.test_tokens),
        )
        ceilings = {}
        if text.language_size is None:  # They are those of a model that knows every word.
            ceilings = {
                'unigram_accuracy': language.ceilings.unigram,
                'bigram_accuracy': language.ceilings.bigram,
                'best_accuracy': language.ceilings.best,
            }
        return task.with_model(model, reference_accuracies=ceilings)

    def language_model(self) -> tuple[str, Sequence[str]]:
        """Name of the model and its vocabulary."""
        return self._model, self._vocabulary.words

    @functools.cached_property
    def _vocabulary(self) -> Vocabulary:
        if self._config.text.language_size is None:
            return Vocabulary(tuple(self._language.vocabulary))
        return most_frequent(self._language, vocabulary_size(self._config.text))

    @functools.cached_property
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


def most_frequent(language: synthetic_text.SyntheticText, count: int) -> Vocabulary:
    """The `count` words that a sentence has most often, by their expected numbers.

    Raises:
      ArgumentError: if the language has fewer words; it names `vocabulary_size`.
    """
    _validate.integer('vocabulary_size', count, minimum=1, maximum=language.vocabulary_size)
    counts = sentence_process.word_counts(language.process)
    known = np.argsort(-counts, kind='stable')[:count]
    return Vocabulary(tuple(language.vocabulary[word] for word in known))
