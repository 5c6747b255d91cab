"""Central training with an optimizer of TFF. NOT private: for public data only."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff


def train(
    weights: Sequence[np.ndarray],
    loss: Callable[..., tf.Tensor],
    batches: Iterable[Sequence[np.ndarray]],
    optimizer: tff.learning.optimizers.Optimizer,
    report: Callable[[float], None] = lambda loss: None,
) -> tuple[tuple[np.ndarray, ...], list[float]]:
    """Takes a step of the optimizer for each batch.

    Args:
      weights: initial weights, float32.
      loss: maps the weights and the arrays of a batch to a scalar.
      batches: arrays of each step. Other shapes than those of the first batch cost a trace.
      optimizer: of the steps.
      report: called after each step with the loss before it.

    Returns:
      The trained weights, float32, and the loss of each step. On one machine both are a pure
      function of the arguments.
    """
    current = tuple(map(tf.constant, weights))
    state = optimizer.initialize(tuple(map(tf.TensorSpec.from_tensor, current)))

    @tf.function
    def step(state: Any, current: Any, batch: Any) -> tuple[Any, Any, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(current)
            value = loss(current, *batch)
        gradients = tuple(map(tf.convert_to_tensor, tape.gradient(value, current)))
        return *optimizer.next(state, current, gradients), value

    losses = []
    for batch in batches:
        state, current, value = step(state, current, tuple(map(tf.constant, batch)))
        losses.append(float(value))
        report(losses[-1])
    return tuple(weight.numpy() for weight in current), losses
