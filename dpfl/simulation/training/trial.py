"""A short trial of local training: which learning rate suits the clients, and how far they move.

It trains without clipping and without noise, and nothing protects the clients that it reads.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

# A trial has so many rounds of so many clients, and the momentum of the server's SGD.
_ROUNDS, _CLIENTS, _MOMENTUM = 6, 10, 0.9


@dataclasses.dataclass(frozen=True)
class Trial:
    """What a trial with one learning rate showed.

    Attributes:
      learning_rate: of the clients.
      loss: mean loss on held-out batches at the end; infinite if it was not finite.
      norms: L2 norms of the clients' updates in the last round, float64 [clients].
    """

    learning_rate: float
    loss: float
    norms: np.ndarray


def compare(
    model: Any,
    batches: Callable[[int], Sequence[Any]],
    heldout: Sequence[Any],
    learning_rates: Sequence[float],
    population: int,
) -> list[Trial]:
    """Tries learning rates, each from the initial model and with the same clients.

    Args:
      model: a `tff.learning.models.FunctionalModel` without non-trainable weights.
      batches: maps a client to its batches, with `x` and `y`.
      heldout: batches of held-out clients.
      learning_rates: of the clients' SGD.
      population: number of clients.
    """
    cohorts = [
        [batches((t * _CLIENTS + i) % population) for i in range(min(_CLIENTS, population))]
        for t in range(_ROUNDS)
    ]
    steps = _Steps(model)
    return [steps.trial(cohorts, heldout, rate) for rate in learning_rates]


class _Steps:
    """Local training with compiled steps."""

    def __init__(self, model: Any):
        self._model = model
        self._initial = [np.asarray(weight, np.float32) for weight in model.initial_weights[0]]
        self._variables = [tf.Variable(weight) for weight in self._initial]
        self._step = tf.function(self._train, reduce_retracing=True)
        self._loss = tf.function(self._evaluate, reduce_retracing=True)

    def trial(
        self, cohorts: Sequence[Sequence[Any]], heldout: Sequence[Any], learning_rate: float
    ) -> Trial:
        """FedAvg from the initial model, one client after the other."""
        weights = self._initial
        velocity = [np.zeros_like(weight) for weight in weights]
        norms = np.zeros(0)
        for cohort in cohorts:
            updates = [self._update(weights, batches, learning_rate) for batches in cohort]
            norms = np.array([_norm(update) for update in updates])
            for i, parts in enumerate(zip(*updates, strict=True)):
                velocity[i] = _MOMENTUM * velocity[i] + np.mean(parts, axis=0)
            weights = [weight + change for weight, change in zip(weights, velocity, strict=True)]
        self._assign(weights)
        losses = [float(self._loss(batch['x'], batch['y'])) for batch in heldout]
        sizes = [len(batch['x']) for batch in heldout]
        loss = float(np.average(losses, weights=sizes))
        return Trial(learning_rate, loss if np.isfinite(loss) else np.inf, norms)

    def _update(
        self, weights: Sequence[np.ndarray], batches: Sequence[Any], learning_rate: float
    ) -> list[np.ndarray]:
        """How a client changes the model by its batches."""
        self._assign(weights)
        for batch in batches:
            self._step(batch['x'], batch['y'], tf.constant(learning_rate))
        return [
            variable.numpy() - weight
            for variable, weight in zip(self._variables, weights, strict=True)
        ]

    def _assign(self, weights: Sequence[np.ndarray]) -> None:
        for variable, weight in zip(self._variables, weights, strict=True):
            variable.assign(weight)

    def _train(self, x: tf.Tensor, y: tf.Tensor, learning_rate: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = self._evaluate(x, y)
        gradients = tape.gradient(
            loss, self._variables, unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        for variable, gradient in zip(self._variables, gradients, strict=True):
            variable.assign_sub(learning_rate * tf.convert_to_tensor(gradient))

    def _evaluate(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        weights = (tuple(self._variables), ())
        predictions = self._model.predict_on_batch(weights, x, training=True)
        return self._model.loss(output=predictions, label=y)


def _norm(update: Sequence[np.ndarray]) -> float:
    return float(np.sqrt(sum(np.sum(np.square(part, dtype=np.float64)) for part in update)))
