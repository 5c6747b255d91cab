"""Evaluation of a model on held-out data."""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import errors
from dpfl.learning import client_work

# Percent of the clients whose accuracy a quantile is not below.
QUANTILES = (10, 25, 50, 75, 90)
# Bytes of predictions that are computed at a time: with a large vocabulary the logits of a batch
# and the metrics' copies of them would need more memory than all of training.
_PREDICTIONS = 1 << 24


def build_evaluation(
    model: tff.learning.models.FunctionalModel,
    dataset: tf.data.Dataset,
    *,
    owners: np.ndarray | None = None,
    hits: Callable[[Any, Any], tuple[Any, Any]] | None = None,
) -> Callable[[tff.learning.models.ModelWeights], dict[str, float]]:
    """A function from model weights to the model's metrics over a data set.

    Args:
      model: the model; says which metrics there are.
      dataset: batches as the model takes them; read once and kept in memory. No client of the run
        may hold them: the metrics have no noise.
      owners: client of each example of the data set, integers from 0, [examples].
      hits: maps labels and predictions of a batch to the right predictions and the targets of each
        example. With both, the metrics have quantiles of the accuracies of the clients that have a
        target: a tenth of the clients has an accuracy below `accuracy_q10`, and so on.

    Returns:
      The function; its result maps a metric's name to its value.

    Raises:
      ArgumentError: if `owners` has another number of examples than the data set.

    Example:
      >>> network = keras.Sequential([keras.layers.Input([2]), keras.layers.Dense(1)])
      >>> spec = tf.TensorSpec([None, 2]), tf.TensorSpec([None, 1])
      >>> model = from_keras(network, loss='mse', input_spec=spec)
      >>> batch = np.ones([3, 2], np.float32), np.ones([3, 1], np.float32)
      >>> evaluate = build_evaluation(model, tf.data.Dataset.from_tensors(batch))
      >>> evaluate(tff.learning.models.ModelWeights(*model.initial_weights))['num_examples']
      3.0
    """
    batches = [tf.nest.map_structure(np.asarray, batch) for batch in dataset]
    measure = _measure(model, owners, hits)
    return lambda given: measure(given, batches)


def evaluate_once(
    model: tff.learning.models.FunctionalModel,
    weights: tff.learning.models.ModelWeights,
    batches: Iterable[Any],
) -> dict[str, float]:
    """The metrics of a model over batches that are read one by one, and not kept.

    Args:
      model: the model; says which metrics there are.
      weights: its weights.
      batches: as the model takes them, NumPy arrays or tensors. No client of the run may hold them:
        the metrics have no noise.

    Example:
      >>> network = keras.Sequential([keras.layers.Input([2]), keras.layers.Dense(1)])
      >>> spec = tf.TensorSpec([None, 2]), tf.TensorSpec([None, 1])
      >>> model = from_keras(network, loss='mse', input_spec=spec)
      >>> batch = np.ones([3, 2], np.float32), np.ones([3, 1], np.float32)
      >>> weights = tff.learning.models.ModelWeights(*model.initial_weights)
      >>> evaluate_once(model, weights, [batch, batch])['num_examples']
      6.0
    """
    numbers = (tf.nest.map_structure(np.asarray, batch) for batch in batches)
    return _measure(model)(weights, numbers)


def _measure(
    model: tff.learning.models.FunctionalModel,
    owners: np.ndarray | None = None,
    hits: Callable[[Any, Any], tuple[Any, Any]] | None = None,
) -> Callable[[tff.learning.models.ModelWeights, Iterable[Any]], dict[str, float]]:
    """A function from weights and batches of NumPy arrays to the metrics of the model."""
    # A graph of its own: TFF's models made of Keras refuse to work where TensorFlow is eager.
    graph = tf.Graph()
    with graph.as_default():
        first = model.initialize_metrics_state()
        weights = tf.nest.map_structure(_placeholder, _structure(model.initial_weights))
        state = tf.nest.map_structure(_placeholder, first)
        x, y = tf.nest.map_structure(_placeholder, client_work.pair(model.input_spec))
        output = model.predict_on_batch(weights, x, training=False)
        outcome = tff.learning.models.BatchOutput(
            loss=model.loss(output, y), predictions=output, num_examples=None
        )
        following = model.update_metrics_state(state, labels=y, batch_output=outcome)
        metrics = model.finalize_metrics(state)
        counted = () if hits is None or owners is None else hits(y, output)
    most_rows = _rows_within(_PREDICTIONS, output)
    session = tf.compat.v1.Session(graph=graph)

    def feed(structure: Any, values: Any) -> dict[Any, Any]:
        return dict(zip(tf.nest.flatten(structure), tf.nest.flatten(values), strict=True))

    def evaluate(
        given: tff.learning.models.ModelWeights, batches: Iterable[Any]
    ) -> dict[str, float]:
        fixed = feed(weights, tf.nest.map_structure(np.asarray, _structure(given)))
        values, counts = session.run(first), []
        for part in _parts(batches, most_rows):
            fed = {**fixed, **feed(state, values), **feed((x, y), client_work.pair(part))}
            values, *of_examples = session.run((following, *counted), fed)
            counts.append(of_examples)
        finalized = session.run(metrics, feed(state, values))
        named = {name: value.item() for name, value in finalized.items()}
        if owners is not None and counted:
            right, targets = (np.concatenate(column) for column in zip(*counts, strict=True))
            named |= accuracy_quantiles(owners, right, targets)
        return named

    return evaluate


def _rows_within(most_bytes: int, predictions: Any) -> int | None:
    """The most examples whose predictions fit into `most_bytes`, at least 1; None if unknown."""
    sizes = [
        None if leaf.shape.rank is None else leaf.shape[1:].num_elements()
        for leaf in tf.nest.flatten(predictions)
    ]
    if None in sizes:
        return None
    of_row = sum(
        size * leaf.dtype.size
        for size, leaf in zip(sizes, tf.nest.flatten(predictions), strict=True)
    )
    return max(most_bytes // max(of_row, 1), 1)


def _parts(batches: Iterable[Any], most_rows: int | None) -> Iterator[Any]:
    """The batches, those with more rows in parts of about equally many."""
    for batch in batches:
        rows = len(tf.nest.flatten(batch)[0])
        count = 1 if most_rows is None else max(math.ceil(rows / most_rows), 1)
        ends = [part * rows // count for part in range(count + 1)]
        for first, last in zip(ends, ends[1:], strict=False):
            yield tf.nest.map_structure(lambda leaf, i=first, j=last: leaf[i:j], batch)


def accuracy_quantiles(
    owners: np.ndarray, right: np.ndarray, targets: np.ndarray
) -> dict[str, float]:
    """Quantiles of the accuracies of clients, by name; none if no client has a target.

    Between two clients they are interpolated linearly.

    Args:
      owners: client of each example, integers from 0, [examples].
      right: right predictions in each example, [examples].
      targets: targets of each example, [examples].

    Raises:
      ArgumentError: if the numbers of examples differ.
    """
    if not owners.shape == right.shape == targets.shape:
        raise errors.ArgumentError(
            'owners', errors.NOT_SHOWN, f'must have one client for each of {right.size} examples'
        )
    hit, all_targets = (np.bincount(owners, weights=column) for column in (right, targets))
    present = all_targets > 0
    if not present.any():
        return {}
    accuracies = hit[present] / all_targets[present]
    values = np.quantile(accuracies, np.array(QUANTILES) / 100)
    return {f'accuracy_q{q}': float(v) for q, v in zip(QUANTILES, values, strict=True)}


def _structure(weights: Any) -> tuple[tuple, tuple]:
    """Trainable and other weights of a model, as tuples."""
    trainable, others = (
        weights if isinstance(weights, tuple) else (weights.trainable, weights.non_trainable)
    )
    return tuple(trainable), tuple(others)


def _placeholder(like: Any) -> tf.Tensor:
    return tf.compat.v1.placeholder(like.dtype, like.shape)
