"""Short trials of training, with the noise of a plan and without, on clients that nothing protects.

A trial trains every round of a plan, with its clipping and with noise of the same mechanism and
size in the mean, but with a few clients per round: how well a model learns under noise depends
little on how many clients the rest of the mean comes from.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from dpfl import _random, accounting
from dpfl.mechanisms import kernels
from dpfl.tasks.text.models import metrics
from dpfl.tasks.text.tokenization import OOV_ID

# Clients per round of a trial, and the momentum of the server's SGD.
_CLIENTS, _MOMENTUM = 6, 0.9
# Rounds of a trial without clipping.
_FREE_ROUNDS = 6


@dataclasses.dataclass(frozen=True)
class Trial:
    """Result of a trial.

    Attributes:
      loss: mean loss on held-out batches at the end; infinite if it was not finite.
      accuracy: share of the held-out words of the vocabulary that the model predicts.
      accuracy_with_oov: share of all held-out words.
      norms: L2 norms of the clients' updates in the last round, float64 [clients].
    """

    loss: float
    accuracy: float
    accuracy_with_oov: float
    norms: np.ndarray


class Trials:
    """Trials of one model with the same clients.

    Args:
      model: a `tff.learning.models.FunctionalModel` of words without non-trainable weights.
      batches: maps a client to its batches, with `x` and `y`.
      heldout: batches of held-out clients.
      population: number of clients.
    """

    def __init__(
        self,
        model: Any,
        batches: Callable[[int], Sequence[Any]],
        heldout: Sequence[Any],
        population: int,
    ):
        self._model = model
        self._batches = batches
        self._heldout = heldout
        self._population = population
        self._initial = [np.asarray(weight, np.float32) for weight in model.initial_weights[0]]
        self._variables = [tf.Variable(weight) for weight in self._initial]
        rows = [model.input_spec[name] for name in ('x', 'y')]
        rate = tf.TensorSpec([], tf.float32)
        self._step = tf.function(self._train, input_signature=[*rows, rate])
        self._measure = tf.function(self._evaluate, input_signature=rows)

    def free(self, client_learning_rate: float) -> Trial:
        """A trial of a few rounds without clipping and noise."""
        return self._run(_FREE_ROUNDS, client_learning_rate, 1.0, lambda update: update, None)

    def planned(
        self,
        plan: accounting.PrivacyPlan,
        client_learning_rate: float,
        server_learning_rate: float,
        seed: int = 0,
    ) -> Trial:
        """A trial of all rounds of a plan, with its clipping and the noise of its mean."""

        def clipped(update: list[np.ndarray]) -> list[np.ndarray]:
            factor = min(1.0, plan.clip_norm / max(_norm(update), 1e-30))
            return [factor * part for part in update]

        noise = _Noise(plan, sum(weight.size for weight in self._initial), seed)
        rounds = plan.participation.rounds
        return self._run(rounds, client_learning_rate, server_learning_rate, clipped, noise)

    def _run(
        self,
        rounds: int,
        client_learning_rate: float,
        server_learning_rate: float,
        clip: Callable[[list[np.ndarray]], list[np.ndarray]],
        noise: '_Noise | None',
    ) -> Trial:
        weights = self._initial
        velocity = [np.zeros_like(weight) for weight in weights]
        norms = np.zeros(0)
        for t in range(rounds):
            cohort = range(t * _CLIENTS, t * _CLIENTS + min(_CLIENTS, self._population))
            clients = [self._batches(client % self._population) for client in cohort]
            updates = [self._update(weights, client, client_learning_rate) for client in clients]
            norms = np.array([_norm(update) for update in updates])
            kept = [clip(update) for update in updates]
            mean = [np.mean(parts, axis=0) for parts in zip(*kept, strict=True)]
            if noise is not None:
                mean = noise.added(t, mean)
            velocity = [_MOMENTUM * v + m for v, m in zip(velocity, mean, strict=True)]
            weights = [
                weight + server_learning_rate * change
                for weight, change in zip(weights, velocity, strict=True)
            ]
        self._assign(weights)
        sums = np.zeros(4)
        for batch in self._heldout:
            sums += [float(value) for value in self._measure(batch['x'], batch['y'])]
        loss, hits, words, unknown = sums
        loss /= sum(len(batch['x']) for batch in self._heldout)
        return Trial(
            loss if np.isfinite(loss) else np.inf,
            hits / max(words, 1.0),
            hits / max(words + unknown, 1.0),
            norms,
        )

    def _update(
        self, weights: Sequence[np.ndarray], batches: Sequence[Any], learning_rate: float
    ) -> list[np.ndarray]:
        """How a client changes the model by its batches; not at all if it is not finite."""
        self._assign(weights)
        for batch in batches:
            self._step(batch['x'], batch['y'], learning_rate)
        update = [
            variable.numpy() - weight
            for variable, weight in zip(self._variables, weights, strict=True)
        ]
        if np.isfinite(_norm(update)):
            return update
        return [np.zeros_like(weight) for weight in weights]

    def _assign(self, weights: Sequence[np.ndarray]) -> None:
        for variable, weight in zip(self._variables, weights, strict=True):
            variable.assign(weight)

    def _train(self, x: tf.Tensor, y: tf.Tensor, learning_rate: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = self._model.loss(output=self._predicted(x), label=y)
        gradients = tape.gradient(
            loss, self._variables, unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        for variable, gradient in zip(self._variables, gradients, strict=True):
            variable.assign_sub(learning_rate * tf.convert_to_tensor(gradient))

    def _predicted(self, x: tf.Tensor) -> Any:
        return self._model.predict_on_batch((tuple(self._variables), ()), x, training=True)

    def _evaluate(self, x: tf.Tensor, y: tf.Tensor) -> tuple[Any, Any, Any, Any]:
        """Loss times rows, right words, words, and unknown words of a batch."""
        logits = self._predicted(x)
        loss = self._model.loss(output=logits, label=y) * tf.cast(tf.shape(x)[0], logits.dtype)
        hits, words = (tf.reduce_sum(count) for count in metrics.hits(y, logits))
        unknown = tf.reduce_sum(tf.cast(tf.equal(y, OOV_ID), tf.int64))
        return loss, hits, words, unknown


class _Noise:
    """The noise of a plan in the mean of each round, streamed by the kernel of its mechanism."""

    def __init__(self, plan: accounting.PrivacyPlan, size: int, seed: int):
        self._kernel = plan.mechanism.kernel()
        self._buffers = np.zeros([self._kernel.buffers, size], np.float32)
        self._scale = plan.stddev / plan.denominator
        self._rng = _random.generator('suggest.noise', seed)
        self._size = size

    def added(self, t: int, mean: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The mean of round t with its noise; rounds in order."""
        if not self._scale:
            return list(mean)
        row, noise = np.empty(self._size), self._rng.standard_normal(self._size)
        kernels.step(self._kernel, t, np.float32).apply(noise, self._buffers, row)
        ends = np.cumsum([part.size for part in mean])[:-1]
        parts = np.split((self._scale * row).astype(np.float32), ends)
        return [part + n.reshape(part.shape) for part, n in zip(mean, parts, strict=True)]


def _norm(update: Sequence[np.ndarray]) -> float:
    return float(np.sqrt(sum(np.sum(np.square(part, dtype=np.float64)) for part in update)))
