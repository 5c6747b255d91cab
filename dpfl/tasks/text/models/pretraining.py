"""Central training on public text, as a start for private training ([McMahan18], appendix B)."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import _random, _validate, errors
from dpfl.tasks.text.models import architectures, metrics


def train(
    architecture: architectures.Architecture,
    weights: Sequence[np.ndarray],
    chunks: Callable[[], Iterable[np.ndarray]],
    *,
    epochs: int,
    batch_size: int,
    learning_rate: float,
    seed: int,
    report: Callable[[int, float, Sequence[tf.Tensor]], None] = lambda step, loss, now: None,
) -> tuple[np.ndarray, ...]:
    """Trains with Adam on shuffled batches. NOT private: for public text only.

    Args:
      architecture: architecture of the model.
      weights: initial weights.
      chunks: begins a pass over the sentences, as token ids of many sentences at a time, int32
        [sentences, L + 1], as from `word_clients.encode`. Each chunk is shuffled by itself, so that
        no more than one is in memory.
      epochs: passes over the sentences.
      batch_size: sentences per step; an incomplete last batch of an epoch is dropped.
      learning_rate: learning rate of Adam.
      seed: seed of the order of the sentences.
      report: called after each step with the number of steps so far, the loss of the step, and the
        weights.

    Returns:
      The trained weights, float32.

    Raises:
      ValueError: if an argument is outside its range, or there are fewer sentences than
        `batch_size`.
    """
    _validate.integer('epochs', epochs, minimum=1)
    _validate.integer('batch_size', batch_size, minimum=1)
    _validate.number('learning_rate', learning_rate, above=0)
    rng = _random.generator('pretraining', _random.check_seed('seed', seed))
    architectures.check_weights(architecture, weights)
    current = tuple(map(tf.constant, weights))
    optimizer = tff.learning.optimizers.build_adam(learning_rate)
    state = optimizer.initialize(tuple(map(tf.TensorSpec.from_tensor, current)))

    # The length of a sentence is part of the trace; all batches of a run have the same.
    @tf.function
    def step(state: Any, current: Any, batch: tf.Tensor) -> tuple[Any, Any, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(current)
            loss = metrics.mean_loss(architecture.logits(current, batch[:, :-1]), batch[:, 1:])
        gradients = tuple(map(tf.convert_to_tensor, tape.gradient(loss, current)))
        return *optimizer.next(state, current, gradients), loss

    done = 0
    for _ in range(epochs):
        for batch in _batches(chunks(), batch_size, rng):
            state, current, loss = step(state, current, tf.constant(batch))
            done += 1
            report(done, float(loss), current)
        if not done:
            raise errors.ArgumentError(
                'batch_size', batch_size, 'must be at most the number of sentences'
            )
    return tuple(weight.numpy() for weight in current)


def _batches(
    chunks: Iterable[np.ndarray], batch_size: int, rng: np.random.Generator
) -> Iterator[np.ndarray]:
    """Batches of shuffled chunks; rows left over from a chunk come first in the next one."""
    left: np.ndarray | None = None
    for chunk in chunks:
        shuffled = chunk[rng.permutation(len(chunk))]
        rows = shuffled if left is None else np.concatenate([left, shuffled])
        end = len(rows) - len(rows) % batch_size
        for first in range(0, end, batch_size):
            yield rows[first : first + batch_size]
        left = rows[end:]
