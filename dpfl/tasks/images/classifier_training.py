"""Central training of a classifier on images that need no protection.

The primary model of [Augenstein20], section 6, is trained before it is deployed to the devices. If
its data are public there is no privacy loss to account for. To train a classifier on clients' data
use `learning.build_dp_fedavg`.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import _random, _validate
from dpfl.tasks.images import image_batches


def train_centrally(
    model: tff.learning.models.FunctionalModel,
    pixels: np.ndarray,
    labels: np.ndarray,
    *,
    steps: int,
    batch_size: int = 64,
    learning_rate: float = 2e-3,
    seed: int = 0,
    progress: Callable[[Iterable[int]], Iterable[int]] = iter,
) -> tuple[np.ndarray, ...]:
    """Trains a classifier with Adam and a cosine decay of the learning rate to 0.

    Args:
      model: a model from `classifiers`.
      pixels: float32 [n, 28, 28].
      labels: int32 [n].
      steps: number of batches.
      batch_size: examples per batch, drawn with replacement.
      learning_rate: learning rate of the first step.
      seed: integer in [0, 2**64); decides the batches.
      progress: wraps the iterable of steps, for example `dpfl._progress.bar`.

    Returns:
      The trained weights, float32. On one machine they are a pure function of the arguments.

    Raises:
      ValueError: if there are no examples, or a number is outside its range.
    """
    _validate.integer('steps', steps, minimum=1)
    _validate.integer('batch_size', batch_size, minimum=1)
    _validate.integer('number of examples', len(labels), minimum=1)
    _validate.number('learning_rate', learning_rate, above=0)
    rng = _random.generator('image.training', _random.check_seed('seed', seed))

    def decay(step: Any) -> tf.Tensor:
        return learning_rate / 2 * (1 + tf.cos(math.pi / steps * tf.cast(step, tf.float32)))

    optimizer = tff.learning.optimizers.schedule_learning_rate(
        tff.learning.optimizers.build_adam(learning_rate), decay
    )

    @tf.function
    def step(weights: Any, state: Any, x: tf.Tensor, y: tf.Tensor) -> tuple[Any, Any]:
        with tf.GradientTape() as tape:
            tape.watch(weights)
            loss = model.loss(model.predict_on_batch((weights, ()), x, training=True), y)
        state, weights = optimizer.next(state, weights, tape.gradient(loss, weights))
        return weights, state

    weights = tuple(map(tf.constant, model.initial_weights[0]))
    state = optimizer.initialize(tuple(map(tf.TensorSpec.from_tensor, weights)))
    for _ in progress(range(steps)):
        chosen = rng.integers(len(labels), size=batch_size)
        images = pixels[chosen].reshape(-1, *image_batches.IMAGE_SHAPE)
        weights, state = step(weights, state, tf.constant(images), tf.constant(labels[chosen]))
    return tuple(weight.numpy() for weight in weights)
