"""Evaluation of a model on held-out data."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff


def build_evaluation(
    model: tff.learning.models.FunctionalModel, dataset: tf.data.Dataset
) -> Callable[[tff.learning.models.ModelWeights], dict[str, float]]:
    """A function from model weights to the model's metrics over a data set.

    Args:
      model: the model; says which metrics there are.
      dataset: batches as the model takes them; read once and kept in memory. No client of the run
        may hold them: the metrics have no noise.

    Returns:
      The function; its result maps a metric's name to its value.
    """
    batches = [tf.nest.map_structure(np.asarray, batch) for batch in dataset]
    measure = _measure(model)
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
    """
    numbers = (tf.nest.map_structure(np.asarray, batch) for batch in batches)
    return _measure(model)(weights, numbers)


def _measure(
    model: tff.learning.models.FunctionalModel,
) -> Callable[[tff.learning.models.ModelWeights, Iterable[Any]], dict[str, float]]:
    """A function from weights and batches of NumPy arrays to the metrics of the model."""
    # A graph of its own: TFF's models made of Keras refuse to work where TensorFlow is eager.
    graph = tf.Graph()
    with graph.as_default():
        first = model.initialize_metrics_state()
        weights = tf.nest.map_structure(_placeholder, _structure(model.initial_weights))
        state = tf.nest.map_structure(_placeholder, first)
        batch = tf.nest.map_structure(_placeholder, dict(model.input_spec))
        output = model.predict_on_batch(weights, batch['x'], training=False)
        outcome = tff.learning.models.BatchOutput(
            loss=model.loss(output, batch['y']), predictions=output, num_examples=None
        )
        following = model.update_metrics_state(state, labels=batch['y'], batch_output=outcome)
        metrics = model.finalize_metrics(state)
    session = tf.compat.v1.Session(graph=graph)

    def feed(structure: Any, values: Any) -> dict[Any, Any]:
        return dict(zip(tf.nest.flatten(structure), tf.nest.flatten(values), strict=True))

    def evaluate(
        given: tff.learning.models.ModelWeights, batches: Iterable[Any]
    ) -> dict[str, float]:
        fixed = feed(weights, tf.nest.map_structure(np.asarray, _structure(given)))
        values = session.run(first)
        for each in batches:
            fed = {**fixed, **feed(state, values), **feed(batch, {n: each[n] for n in batch})}
            values = session.run(following, fed)
        found = session.run(metrics, feed(state, values))
        return {name: value.item() for name, value in found.items()}

    return evaluate


def _structure(weights: Any) -> tuple[tuple, tuple]:
    """Trainable and other weights of a model, as tuples."""
    trainable, others = (
        weights if isinstance(weights, tuple) else (weights.trainable, weights.non_trainable)
    )
    return tuple(trainable), tuple(others)


def _placeholder(like: Any) -> tf.Tensor:
    return tf.compat.v1.placeholder(like.dtype, like.shape)
