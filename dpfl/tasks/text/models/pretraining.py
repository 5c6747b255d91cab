"""Central training on public text, as a start for private training ([McMahan18], appendix B)."""

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from dpfl import _random, _validate
from dpfl.tasks.text.models import architectures, metrics


def train(
    architecture: architectures.Architecture,
    weights: Sequence[np.ndarray],
    tokens: np.ndarray,
    *,
    epochs: int,
    batch_size: int,
    learning_rate: float,
    seed: int,
    report: Callable[[int, float], None] = lambda step, loss: None,
) -> tuple[np.ndarray, ...]:
    """Trains with Adam on shuffled batches. NOT private: for public text only.

    Args:
      architecture: architecture of the model.
      weights: initial weights.
      tokens: int32 [sentences, L + 1], as from `word_clients.encode`.
      epochs: passes over the sentences.
      batch_size: sentences per step; an incomplete last batch of an epoch is dropped.
      learning_rate: learning rate of Adam.
      seed: seed of the order of the sentences.
      report: called after each step with the number of steps so far and the loss of the step.

    Returns:
      The trained weights, float32.

    Raises:
      ValueError: if an argument is outside its range, or there are fewer sentences than
        `batch_size`.
    """
    _validate.integer('epochs', epochs, minimum=1)
    _validate.integer('batch_size', batch_size, minimum=1, maximum=len(tokens))
    _validate.number('learning_rate', learning_rate, above=0)
    rng = _random.generator('pretraining', _random.check_seed('seed', seed))
    architectures.check_weights(architecture, weights)
    variables = [tf.Variable(weight) for weight in weights]
    optimizer = tf.keras.optimizers.Adam(learning_rate)
    optimizer.build(variables)

    @tf.function(input_signature=[tf.TensorSpec([batch_size, tokens.shape[1]], tf.int32)])
    def step(batch: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = metrics.mean_loss(
                architecture.logits(tuple(variables), batch[:, :-1]), batch[:, 1:]
            )
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    done = 0
    for _ in range(epochs):
        order = rng.permutation(len(tokens))
        for first in range(0, len(tokens) - batch_size + 1, batch_size):
            loss = step(tokens[order[first : first + batch_size]])
            done += 1
            report(done, float(loss))
    return tuple(variable.numpy() for variable in variables)
