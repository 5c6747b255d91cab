"""Central training on public text, from which private training can start (document 001, B)."""

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
      architecture: the model's.
      weights: to begin with.
      tokens: int32 [sentences, L + 1], as `word_clients.encode` gives them.
      epochs: passes over the sentences.
      batch_size: sentences of a step; a last, smaller batch of an epoch is left out.
      learning_rate: of Adam.
      seed: of the order of the sentences.
      report: is called with the number of steps done and the loss of the last one.

    Returns:
      The weights, float32.

    Raises:
      ValueError: if an argument is outside its range, or there are fewer sentences than a batch.
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
    def step(batch):
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
