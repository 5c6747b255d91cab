"""Text of clients of which only a selection is trained on ([Augenstein20], section 2.1).

Each client decides by its own data alone, and the decision stays with it. What a client sends is
therefore a function of its own data, as without a selection, and the guarantee is the same.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dpfl import _progress, _random, errors
from dpfl.tasks import not_covered
from dpfl.tasks.federated_task import FederatedTask
from dpfl.tasks.selection_config import Criterion, SelectionConfig
from dpfl.tasks.text import word_clients
from dpfl.tasks.text.tokenization import EOS_ID, OOV_ID, PAD_ID

# Sentences of a client that are read at a time.
_ROWS = 256

# Maps inputs and targets, int32 [N, L] both, to the sum of the cross entropies of the targets that
# are not padding, in nats, and to the number of right predictions of words of the vocabulary,
# float64 [N] both.
Scores = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


@dataclasses.dataclass(frozen=True)
class Sums:
    """What the measures are computed from: sums over sentences, or arrays with one for each.

    Attributes:
      sentences: number of sentences.
      words: number of words.
      unknown: number of words outside the vocabulary.
      targets: number of words and ends of sentences.
      loss: sum of the cross entropies of the targets, in nats; 0 without a model.
      right: number of right predictions of words of the vocabulary; 0 without a model.
    """

    sentences: Any
    words: Any
    unknown: Any
    targets: Any
    loss: Any
    right: Any

    def total(self) -> 'Sums':
        """The sums over all sentences."""
        return Sums(*(np.sum(getattr(self, each.name)) for each in dataclasses.fields(self)))

    def measure(self, name: str) -> Any:
        """A measure of `selection_config.CLIENT_MEASURES`; not a number where there is nothing."""
        if name == 'sentences':
            return self.sentences
        above, below = {
            'length': (self.words, self.sentences),
            'oov_rate': (self.unknown, self.words),
            'loss': (self.loss, self.targets),
            'accuracy': (self.right, self.words - self.unknown),
        }[name]
        above, below = np.asarray(above, np.float64), np.asarray(below, np.float64)
        return np.divide(above, below, out=np.full(above.shape, np.nan), where=below > 0)

    def meet(self, criteria: Sequence[Criterion]) -> Any:
        """Whether all criteria hold, elementwise."""
        is_met = np.ones(np.shape(self.sentences), bool)
        for criterion in criteria:
            is_met = is_met & criterion.holds(self.measure(criterion.measure))
        return is_met


def sums(x: np.ndarray, y: np.ndarray, scores: Scores | None) -> Sums:
    """The sums of each sentence.

    Args:
      x, y: inputs and targets, int32 [N, L].
      scores: the model; None for none.
    """
    present = y != PAD_ID
    words = present & (y != EOS_ID)
    loss, right = np.zeros(len(y)), np.zeros(len(y))
    if scores is not None and len(y):
        loss, right = scores(x, y)
    return Sums(
        np.ones(len(y), np.int64),
        words.sum(axis=1),
        (y == OOV_ID).sum(axis=1),
        present.sum(axis=1),
        loss,
        right,
    )


def values_of_clients(
    config: SelectionConfig, task: FederatedTask, scores: Scores | None, count: int, seed: int
) -> dict[str, np.ndarray]:
    """One value of each client for every quantile that the criteria name, float64 [clients].

    For a quantile of clients it is the client's measure, for one of sentences that of a random
    sentence with such a measure. It is not a number for a client that has none.

    Args:
      config: the criteria.
      task: a task of text.
      scores: the model of criteria of loss and accuracy.
      count: number of clients.
      seed: of the random sentences. Which one it is depends on the client's own text alone.
    """
    wanted = config.quantiles
    values = {name: np.full(count, np.nan) for name in wanted}
    for client in _progress.bar(
        range(count), desc='quantiles', unit='client', delay=2, leave=False
    ):
        x, y = _rows(task.client_batches(client, _ROWS, 1, None))
        if not len(y):
            continue
        of_sentences = sums(x, y, scores)
        total = of_sentences.total()
        for place, (name, criterion) in enumerate(wanted.items()):
            if name.startswith('select_clients'):
                values[name][client] = total.measure(criterion.measure)
                continue
            measured = of_sentences.measure(criterion.measure)
            measured = measured[~np.isnan(measured)]
            if measured.size:
                random = _random.generator('select.quantile', seed, client, place)
                values[name][client] = measured[random.integers(measured.size)]
    return values


def select(
    config: SelectionConfig,
    task: FederatedTask,
    scores: Scores | None = None,
    thresholds: Mapping[str, float] | None = None,
) -> FederatedTask:
    """A task that trains on the selected text. Held-out clients and test clients stay as they are.

    Args:
      config: the criteria.
      task: a task of text.
      scores: the model of criteria of loss and accuracy.
      thresholds: the numbers of `config.quantiles`.

    Raises:
      ArgumentError: if criteria need a model or a threshold and there is none.
    """
    if not config.is_given:
        return task
    if config.selection_model is not None and scores is None:
        raise errors.ArgumentError('scores', errors.NOT_SHOWN, 'must be given: criteria need it')
    if config.quantiles.keys() - (thresholds or {}).keys():
        raise errors.ArgumentError('thresholds', errors.NOT_SHOWN, 'must be given for quantiles')
    of_examples, of_clients = config.resolved(thresholds or {})

    def client_batches(
        client: int, batch_size: int, epochs: int, max_batches: int | None
    ) -> Sequence[Any]:
        batches = task.client_batches(client, batch_size, 1, None)
        if not batches:
            return []
        x, y = _rows(batches)
        of_sentences = sums(x, y, scores)
        chosen = of_sentences.meet(of_examples)
        if not of_sentences.total().meet(of_clients) or chosen.sum() < config.select_min_examples:
            return []
        # Targets are the inputs one position later.
        tokens = np.concatenate([x, y[:, -1:]], axis=1)[chosen]
        return word_clients.batches(tokens, batch_size, epochs, max_batches)

    limits = (*task.not_covered, *not_covered.of_selection(config, 'sentences'))
    return dataclasses.replace(task, client_batches=client_batches, not_covered=limits)


def _rows(batches: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and targets of all sentences of a client, int32 [sentences, L] both."""
    if not batches:
        return np.zeros((0, 1), np.int32), np.zeros((0, 1), np.int32)
    x, y = (np.concatenate([batch[name] for batch in batches]) for name in ('x', 'y'))
    return x, y
