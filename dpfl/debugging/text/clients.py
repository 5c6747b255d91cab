"""The text of the study: its clients, synthetic or real, and the training data of generators.

TensorFlow is loaded on demand.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from dpfl.debugging.text import faults
from dpfl.debugging.text.config import WORD, Case, StudyConfig
from dpfl.simulation.training import execution
from dpfl.tasks import data_sets, federated_task
from dpfl.tasks.config import TaskConfig, TextTaskConfig
from dpfl.tasks.text import text_task, tokenization, vocabulary, word_clients

if TYPE_CHECKING:
    from dpfl.tasks.text.models import architectures, generation

_ENDLESS = 2**62
# Number of the first synthetic client that is held out, beyond any population.
_FIRST_HELDOUT = 2**63
# A synthetic language in which most sentences begin in a few common ways, as in natural language.
_SYNTHETIC: dict[str, Any] = dict(num_themes=6, function_share=0.02)


class OpenedText:
    """The text of a configuration. It is opened once, when it is first needed.

    Args:
      config: Configuration of the task.
      seed: Seed of synthetic text.
    """

    def __init__(self, config: TextTaskConfig, seed: int):
        self.config = config
        self._seed = seed

    def population(self, given: int | None) -> int:
        """Number of clients to train on.

        Args:
          given: Number in the configuration; None for all clients.

        Raises:
          ArgumentError: If the data have fewer clients.
        """
        is_synthetic = self.config.task == 'synthetic_text'
        available = None if is_synthetic else self.text.data.training.count
        return federated_task.population(given, available)

    @functools.cached_property
    def text(self) -> text_task.WordTask:
        """Clients as they are, and the vocabulary of the word model."""
        from dpfl.tasks.text import synthetic_text

        if self.config.task != 'synthetic_text':
            config = TaskConfig(task=self.config.task, data=self.config.data, text=self.config.text)
            return text_task.TextTask(config, self._seed, execution.teller(True)).word_task
        data_sets.refuse(self.config.data, self.config.task)
        language = synthetic_text.SyntheticText(
            vocabulary_size=text_task.vocabulary_size(self.config.text),
            sentence_length=self.config.text.sentence_length,
            seed=self._seed,
            **_SYNTHETIC,
        )

        def clients(first: int) -> word_clients.WordClients:
            return word_clients.WordClients(
                _ENDLESS,
                lambda client: [sentence.split() for sentence in language.text(client + first)],
            )

        words = vocabulary.Vocabulary(tuple(language.vocabulary))
        data = word_clients.TextData(clients(0), clients(_FIRST_HELDOUT))
        return text_task.WordTask(data, words, self.config.text)


@dataclasses.dataclass(frozen=True)
class Task:
    """The training data of one model.

    Attributes:
      model: Name of the model.
      words: Vocabulary of the model; None for a character model.
      num_tokens: Number of token ids of the model.
      length: Number of tokens that the model predicts in a row.
      special: Special tokens of the model.
      rows: Function from a client to its training examples, int32 [rows, length + 1].
      heldout: Examples of held-out clients, in the same form.
    """

    model: str
    words: tuple[str, ...] | None
    num_tokens: int
    length: int
    special: 'generation.SpecialTokens'
    rows: Callable[[int], np.ndarray]
    heldout: np.ndarray

    @property
    def architecture(self) -> 'architectures.Architecture':
        """Architecture of the model."""
        from dpfl.tasks.text.models import saved_models

        return saved_models.ALL[self.model]


def task(
    kind: str,
    text: text_task.WordTask,
    case: Case,
    config: StudyConfig,
    sentence_length: int,
    eval_clients: int,
    seed: int,
) -> Task:
    """The task of one kind of generators in a case.

    Args:
      kind: 'word' for all sentences; 'char' for the words outside the vocabulary, one by one.
      text: The text as it is.
      case: The fault that is injected, if there is one.
      config: The models, and the length of a word.
      sentence_length: Number of words of a sentence that the word model predicts.
      eval_clients: Number of held-out clients that are read.
      seed: Determines which sentences or clients are damaged.
    """
    from dpfl.tasks.text.models import generation

    ids = text.vocabulary.ids

    def sentences(clients):
        limited = _limited(clients, text.text.client_max_tokens or None)
        if case.fault is None:
            return limited.sentences
        return faults.inject(limited, case.fault, case.share, seed).sentences

    def word_rows(read, client: int) -> np.ndarray:
        return word_clients.encode(read(client), ids, sentence_length)

    def char_rows(read, client: int) -> np.ndarray:
        words = [word for sentence in read(client) for word in sentence[:sentence_length]]
        unknown = [word for word in words if word not in ids]
        return tokenization.encode_words(unknown, config.word_length)

    rows = word_rows if kind == WORD else char_rows
    training, heldout = sentences(text.data.training), sentences(text.data.heldout)
    clients = range(min(eval_clients, text.data.heldout.count))
    return Task(
        model=config.model(kind),
        words=text.vocabulary.words if kind == WORD else None,
        num_tokens=text.vocabulary.num_tokens if kind == WORD else tokenization.NUM_BYTE_TOKENS,
        length=sentence_length if kind == WORD else config.word_length,
        special=generation.WORDS if kind == WORD else generation.BYTES,
        rows=lambda client: rows(training, client),
        heldout=np.concatenate([rows(heldout, client) for client in clients]),
    )


def _limited(clients: word_clients.WordClients, max_tokens: int | None) -> word_clients.WordClients:
    """Clients with their first `max_tokens` words. The sentence that exceeds them is cut."""
    if max_tokens is None:
        return clients

    def sentences(client: int) -> Iterator[list[str]]:
        left: int = max_tokens
        for words in clients.sentences(client):
            yield words[:left]
            left -= len(words)
            if left <= 0:
                return

    return word_clients.WordClients(clients.count, sentences)
