"""The clients of the study and their text, synthetic or real. TensorFlow is loaded on demand."""

import functools
from typing import TYPE_CHECKING, Any

from dpfl.simulation.training import execution
from dpfl.tasks import download, source
from dpfl.tasks.config import TextTaskConfig
from dpfl.tasks.text import synthetic_task

if TYPE_CHECKING:
    from dpfl.debugging.text import settings
    from dpfl.tasks.text import real_task, word_clients

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

    @functools.cached_property
    def _real(self) -> 'real_task.TextData':
        from dpfl.tasks.text import real_task

        config = self.config
        return real_task.load(config.task, config.data, config.text, execution.teller(True))

    def population(self, given: int | None) -> int:
        """Number of clients to train on.

        Args:
          given: Number in the configuration; None for all clients.

        Raises:
          ArgumentError: If the data have fewer clients.
        """
        is_synthetic = self.config.task == 'synthetic_text'
        return source.population(
            given, lambda: None if is_synthetic else self._real.task.training.count
        )

    def text(self) -> 'settings.Text':
        """Clients as they are, and the vocabulary of the word model."""
        from dpfl.debugging.text import settings
        from dpfl.tasks.text import synthetic_text, vocabulary, word_clients

        if self.config.task != 'synthetic_text':
            task = self._real.task
            return settings.Text(
                task.training,
                task.heldout,
                task.vocabulary,
                task.packing.max_tokens,
                self._real.not_covered,
            )
        download.refuse(self.config.data, self.config.task)
        language = synthetic_text.SyntheticText(
            vocabulary_size=synthetic_task.vocabulary_size(self.config.text),
            sentence_length=self.config.text.sentence_length,
            seed=self._seed,
            **_SYNTHETIC,
        )

        def clients(first: int) -> 'word_clients.WordClients':
            return word_clients.WordClients(
                _ENDLESS,
                lambda client: [sentence.split() for sentence in language.text(client + first)],
            )

        words = vocabulary.Vocabulary(tuple(language.vocabulary))
        most = self.config.text.client_max_tokens or None
        return settings.Text(clients(0), clients(_FIRST_HELDOUT), words, most)
