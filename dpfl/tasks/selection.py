"""Clients and examples of which only a selection is trained on ([Augenstein20], section 2.1).

Each client decides by its own data alone, and the decision stays with it. So its update is a
function of its own data, as without a selection, and the guarantee is the same.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dpfl import _progress, _random, errors
from dpfl.tasks import federated_task, not_covered
from dpfl.tasks.federated_task import FederatedTask
from dpfl.tasks.selection_config import Criterion, ImageSelectionConfig, SelectionConfig
from dpfl.tasks.text.tokenization import EOS_ID, OOV_ID, PAD_ID

# Examples of a client that are read at a time.
_ROWS = 256
# Maps (client, batch size, epochs, limit on batches) to batches, as in `FederatedTask`.
ClientBatches = Callable[[int, int, int, int | None], Sequence[Any]]
# Maps inputs and targets, int32 [N, L] both, to the sum of the cross entropies of the targets that
# are not padding, in nats, and to the number of right predictions of words of the vocabulary,
# float64 [N] both.
Scores = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
# Maps pixels float32 [N, 28, 28] to class probabilities [N, 62].
Classify = Callable[[np.ndarray], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Measured:
    """The measures of the examples of a client: quotients, which are not a number for 0 / 0.

    Attributes:
      parts: numerators and denominators by measure, arrays [examples].
      num_examples: number of the examples.
    """

    parts: Mapping[str, tuple[np.ndarray, np.ndarray]]
    num_examples: int

    def of_examples(self, name: str) -> np.ndarray:
        """A measure of each example, float64 [examples]."""
        return _quotient(*self.parts[name])

    def of_client(self, name: str) -> Any:
        """A measure of all examples together: the quotient of the sums, or their number."""
        if name in ('sentences', 'examples'):
            return self.num_examples
        above, below = self.parts[name]
        return _quotient(above.sum(), below.sum())

    def chosen(
        self, of_examples: Sequence[Criterion], of_clients: Sequence[Criterion], fewest: int
    ) -> np.ndarray:
        """Which examples meet the criteria, bool [examples]; none if the client does not.

        Args:
          of_examples, of_clients: the criteria.
          fewest: of fewer examples none is selected.
        """
        is_met = np.ones(self.num_examples, bool)
        for criterion in of_examples:
            is_met &= criterion.holds(self.of_examples(criterion.measure))
        for criterion in of_clients:
            is_met &= criterion.holds(self.of_client(criterion.measure))
        return is_met & (is_met.sum() >= fewest)


def _quotient(above: Any, below: Any) -> np.ndarray:
    above, below = np.asarray(above, np.float64), np.asarray(below, np.float64)
    return np.divide(above, below, out=np.full(above.shape, np.nan), where=below > 0)


def of_sentences(x: np.ndarray, y: np.ndarray, scores: Scores | None) -> Measured:
    """Measures sentences.

    Args:
      x, y: inputs and targets, int32 [N, L].
      scores: the model; without one there is neither `loss` nor `accuracy`.
    """
    targets = y != PAD_ID
    words, unknown = (targets & (y != EOS_ID)).sum(axis=1), (y == OOV_ID).sum(axis=1)
    parts = {'length': (words, np.ones(len(y))), 'oov_rate': (unknown, words)}
    if scores is not None:
        loss, right = scores(x, y)
        parts |= {'loss': (loss, targets.sum(axis=1)), 'accuracy': (right, words - unknown)}
    return Measured(parts, len(y))


def of_images(x: np.ndarray, y: np.ndarray, classify: Classify | None) -> Measured:
    """Measures images.

    Args:
      x: values within [0, 1], paper is 1, float32 [N, 28, 28, 1].
      y: labels, int [N].
      classify: the model; without one there are only `label` and `ink`.
    """
    pixels = x[..., 0]
    values = {'label': y, 'ink': 1 - pixels.mean(axis=(1, 2), dtype=np.float64)}
    if classify is not None:
        probabilities = np.asarray(classify(pixels), np.float64)
        predicted = probabilities.argmax(axis=1)
        least = np.finfo(np.float32).tiny  # A loss stays finite.
        values |= {
            'predicted': predicted,
            'accuracy': predicted == y,
            'confidence': probabilities.max(axis=1),
            'loss': -np.log(np.maximum(probabilities[np.arange(len(y)), y], least)),
        }
    ones = np.ones(len(y))
    return Measured({name: (value, ones) for name, value in values.items()}, len(y))


def client_batches(
    config: SelectionConfig,
    batches: ClientBatches,
    model: Any = None,
    thresholds: Mapping[str, float] | None = None,
) -> ClientBatches:
    """Batches of the selected examples.

    Args:
      config: the criteria, of sentences or of images.
      batches: those of all examples.
      model: that of the criteria, as `of_sentences` or `of_images` takes it.
      thresholds: the numbers of `config.quantiles`.

    Raises:
      ArgumentError: if criteria need a model or a threshold and there is none.
    """
    if config.selection_model is not None and model is None:
        raise errors.ArgumentError('model', errors.NOT_SHOWN, 'must be given: criteria need it')
    if config.quantiles.keys() - (thresholds or {}).keys():
        raise errors.ArgumentError('thresholds', errors.NOT_SHOWN, 'must be given for quantiles')
    of_examples, of_clients = (
        [criterion.at(thresholds or {}) for criterion in criteria]
        for criteria in (config.of_examples, config.of_clients)
    )

    def selected(
        client: int, batch_size: int, epochs: int = 1, max_batches: int | None = None
    ) -> Sequence[Any]:
        examples, measured = _measured(config, batches, client, model)
        if measured is None:
            return []
        chosen = measured.chosen(of_examples, of_clients, config.select_min_examples)
        kept = {name: array[chosen] for name, array in examples.items()}
        return federated_task.batches(kept, batch_size, epochs, max_batches)

    return selected


def select(
    config: SelectionConfig,
    task: FederatedTask,
    model: Any = None,
    thresholds: Mapping[str, float] | None = None,
) -> FederatedTask:
    """A task that trains on the selected clients and examples; other clients stay as they are.

    The other arguments, and the errors, are those of `client_batches`.
    """
    if not config.is_given:
        return task
    return dataclasses.replace(
        task,
        client_batches=client_batches(config, task.client_batches, model, thresholds),
        not_covered=(*task.not_covered, *not_covered.of_selection(config, config.examples)),
    )


def values_of_clients(
    config: SelectionConfig, batches: ClientBatches, model: Any, count: int, seed: int
) -> dict[str, np.ndarray]:
    """One value of each client for every quantile that the criteria name, float64 [clients].

    For a quantile of clients it is the client's measure, for one of sentences that of a random
    sentence with such a measure. It is not a number for a client that has none.

    Args:
      config, batches, model: as in `client_batches`.
      count: number of clients.
      seed: of the random sentences. Which one it is depends on the client's own text alone.
    """
    wanted = config.quantiles
    values = {name: np.full(count, np.nan) for name in wanted}
    clients = _progress.bar(range(count), desc='quantiles', unit='client', delay=2, leave=False)
    for client in clients:
        _, measured = _measured(config, batches, client, model)
        if measured is None:
            continue
        for place, (name, criterion) in enumerate(wanted.items()):
            if criterion.setting == 'select_clients':
                values[name][client] = measured.of_client(criterion.measure)
                continue
            known = measured.of_examples(criterion.measure)
            known = known[~np.isnan(known)]
            if known.size:
                random = _random.generator('select.quantile', seed, client, place)
                values[name][client] = known[random.integers(known.size)]
    return values


def _measured(
    config: SelectionConfig, batches: ClientBatches, client: int, model: Any
) -> tuple[dict[str, np.ndarray], Measured | None]:
    """The examples of a client, and their measures; None for a client without any."""
    parts = batches(client, _ROWS, 1, None)
    if not parts:
        return {}, None
    examples = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    measure = of_images if isinstance(config, ImageSelectionConfig) else of_sentences
    return examples, measure(examples['x'], examples['y'], model)
