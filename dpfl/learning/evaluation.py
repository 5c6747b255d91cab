"""Evaluation of a model on held-out data."""

from collections.abc import Callable

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
    batches = list(dataset)

    @tf.function
    def update(weights, state, batch):
        output = model.predict_on_batch(weights, batch['x'], training=False)
        outcome = tff.learning.models.BatchOutput(
            loss=model.loss(output, batch['y']), predictions=output, num_examples=None
        )
        return model.update_metrics_state(state, labels=batch['y'], batch_output=outcome)

    def evaluate(weights: tff.learning.models.ModelWeights) -> dict[str, float]:
        tensors = tf.nest.map_structure(
            tf.convert_to_tensor, (tuple(weights.trainable), tuple(weights.non_trainable))
        )
        state = model.initialize_metrics_state()
        for batch in batches:
            state = update(tensors, state, batch)
        return {name: value.numpy().item() for name, value in model.finalize_metrics(state).items()}

    return evaluate
