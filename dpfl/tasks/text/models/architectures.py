"""The interface of recurrent language models: weights, logits of sequences, and single steps.

An architecture is a record of sizes, without a vocabulary. Its weights are a tuple of arrays whose
shapes follow from the number of tokens. Training processes whole sequences (`logits`), generation
one token at a time (`start`, `step`). Both compute the same numbers up to rounding.

Central training on public text is a start for private training ([McMahan18], appendix B).
"""

import abc
import collections
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import _random, _validate, errors
from dpfl.tasks import central_training
from dpfl.tasks.text.models import metrics

# Shapes of weights by name.
Shapes = collections.OrderedDict[str, tuple[int, ...]]


class Architecture(abc.ABC):
    """Sizes of a recurrent language model. Subclasses are frozen dataclasses of integers."""

    @abc.abstractmethod
    def weight_shapes(self, num_tokens: int) -> Shapes:
        """Shapes of the trainable weights by name, in the order of the weights."""

    @abc.abstractmethod
    def initial_weight(
        self, rng: np.random.Generator, name: str, shape: tuple[int, ...]
    ) -> np.ndarray:
        """Draws the initial value of a weight of `weight_shapes`."""

    def initial_weights(self, num_tokens: int, seed: int) -> tuple[np.ndarray, ...]:
        """Initial weights, float32. A pure function of the arguments.

        Raises:
          ValueError: if `num_tokens` is not an integer >= 2, or `seed` not one in [0, 2**64).
        """
        _validate.integer('num_tokens', num_tokens, minimum=2)
        rng = _random.generator('model.weights', _random.check_seed('seed', seed))
        return tuple(
            self.initial_weight(rng, name, shape).astype(np.float32)
            for name, shape in self.weight_shapes(num_tokens).items()
        )

    @abc.abstractmethod
    def logits(self, weights: Sequence[Any], tokens: tf.Tensor) -> tf.Tensor:
        """Logits [B, L, V] of the token after each of `tokens`, integers [B, L] with static L."""

    @abc.abstractmethod
    def start(self, weights: Sequence[Any], batch_size: int | tf.Tensor) -> Any:
        """State before the first token: a structure of tensors with first axis `batch_size`."""

    @abc.abstractmethod
    def step(self, weights: Sequence[Any], state: Any, tokens: tf.Tensor) -> tuple[Any, tf.Tensor]:
        """Reads one more token, integers [B]: new state, and logits [B, V] of the next token."""

    def num_parameters(self, num_tokens: int) -> int:
        """Number of trainable parameters of a model with `num_tokens` tokens."""
        return sum(math.prod(shape) for shape in self.weight_shapes(num_tokens).values())


def build(
    architecture: Architecture, num_tokens: int, sequence_length: int, seed: int
) -> tff.learning.models.FunctionalModel:
    """Builds a model for training.

    Args:
      architecture: cell and sizes of the model.
      num_tokens: V, the number of token ids, including special tokens.
      sequence_length: L, the number of positions.
      seed: integer in [0, 2**64); decides the initial weights.

    Returns:
      A model of batches OrderedDict(x, y), both int32 [batch, L], with logits [batch, L, V], the
      loss `metrics.mean_loss` and the metrics of module `metrics`. Its initial weights are float32
      NumPy arrays in the order of `weight_shapes`, all trainable.

    Raises:
      ValueError: if an argument is outside its range; the message names it.
    """
    _validate.integer('sequence_length', sequence_length, minimum=1)

    @tf.function(autograph=False)
    def predict_on_batch(model_weights: Any, x: tf.Tensor, training: bool) -> tf.Tensor:
        del training  # There is no dropout and no batch normalisation.
        trainable, _ = model_weights
        return architecture.logits(trainable, x)

    def loss(output: tf.Tensor, label: tf.Tensor, sample_weight: Any = None) -> tf.Tensor:
        del sample_weight
        return metrics.mean_loss(output, label)

    spec = tf.TensorSpec([None, sequence_length], tf.int32)
    return tff.learning.models.FunctionalModel(
        initial_weights=(architecture.initial_weights(num_tokens, seed), ()),
        predict_on_batch_fn=predict_on_batch,
        loss_fn=loss,
        metrics_fns=(metrics.initialize, metrics.update, metrics.finalize),
        input_spec=collections.OrderedDict(x=spec, y=spec),
    )


def with_weights(
    model: tff.learning.models.FunctionalModel, weights: Sequence[np.ndarray]
) -> tff.learning.models.FunctionalModel:
    """The same model with other initial weights.

    Raises:
      ValueError: if their number or shapes differ from the model's.
    """
    expected = [tuple(np.shape(weight)) for weight in model.initial_weights[0]]
    given = [tuple(np.shape(weight)) for weight in weights]
    if given != expected:
        raise errors.ArgumentError(
            'weights',
            errors.NOT_SHOWN,
            f'must have the shapes {expected} of the model, have {given}',
        )
    return tff.learning.models.FunctionalModel(
        initial_weights=(tuple(weights), model.initial_weights[1]),
        predict_on_batch_fn=model.predict_on_batch,
        loss_fn=model.loss,
        metrics_fns=(
            model.initialize_metrics_state,
            model.update_metrics_state,
            model.finalize_metrics,
        ),
        input_spec=model.input_spec,
    )


def check_weights(architecture: Architecture, weights: Sequence[Any]) -> int:
    """Checks the shapes of weights, and returns the number of tokens that they imply.

    Raises:
      ValueError: if the number of weights or a shape does not fit the architecture; the message
        names the first weight that differs.
    """
    shapes = [tuple(np.shape(weight)) for weight in weights]
    num_tokens = shapes[0][0] if shapes and shapes[0] else 0
    expected = architecture.weight_shapes(num_tokens)
    if len(shapes) != len(expected):
        raise errors.ArgumentError(
            'weights', errors.NOT_SHOWN, f'must be {len(expected)} arrays, but are {len(shapes)}'
        )
    for (name, shape), given in zip(expected.items(), shapes, strict=True):
        if given != shape:
            raise errors.ArgumentError(
                'weights', errors.NOT_SHOWN, f'{name} must have shape {shape}, but has {given}'
            )
    return num_tokens


def pretrain(
    architecture: Architecture,
    weights: Sequence[np.ndarray],
    chunks: Callable[[], Iterable[np.ndarray]],
    *,
    epochs: int,
    batch_size: int,
    learning_rate: float,
    seed: int,
    report: Callable[[float], None] = lambda loss: None,
) -> tuple[tuple[np.ndarray, ...], list[float]]:
    """Trains with Adam on shuffled batches. NOT private: for public text only.

    Args:
      architecture: architecture of the model.
      weights: initial weights.
      chunks: begins a pass over the sentences, as token ids of many sentences at a time, int32
        [sentences, L + 1], as from `word_clients.encode`. Each chunk is shuffled by itself, so that
        no more than one is in memory.
      epochs: passes over the sentences, at least 1.
      batch_size: sentences per step; an incomplete last batch of an epoch is dropped.
      learning_rate: learning rate of Adam.
      seed: seed of the order of the sentences.
      report: called after each step with its loss.

    Returns:
      The trained weights, float32, and the loss of each step.

    Raises:
      ValueError: if there are fewer sentences than `batch_size`.
    """
    rng = _random.generator('pretraining', _random.check_seed('seed', seed))
    check_weights(architecture, weights)

    def loss(current: Any, rows: tf.Tensor) -> tf.Tensor:
        return metrics.mean_loss(architecture.logits(current, rows[:, :-1]), rows[:, 1:])

    batches = (
        [rows] for _ in range(epochs) for rows in _shuffled_batches(chunks(), batch_size, rng)
    )
    trained, losses = central_training.train(
        weights, loss, batches, tff.learning.optimizers.build_adam(learning_rate), report
    )
    if not losses:
        raise errors.ArgumentError(
            'batch_size', batch_size, 'must be at most the number of sentences'
        )
    return trained, losses


def _shuffled_batches(
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
