"""What a recurrent language model is, whichever cell it has: weights, logits, and single steps.

An architecture is a record of sizes without a vocabulary. Its weights are a tuple of arrays, whose
shapes follow from the number of tokens; training takes whole sequences (`logits`), generation one
token after the other (`start`, `step`). Both compute the same numbers up to rounding.
"""

import abc
import collections
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import _validate, errors
from dpfl.tasks.text.models import metrics


class Architecture(abc.ABC):
    """Sizes of a recurrent language model. Subclasses are frozen dataclasses of integers."""

    @abc.abstractmethod
    def weight_shapes(self, num_tokens: int) -> collections.OrderedDict[str, tuple[int, ...]]:
        """Shapes of the trainable weights by name, in the order in which a model holds them."""

    @abc.abstractmethod
    def initial_weights(self, num_tokens: int, seed: int) -> tuple[np.ndarray, ...]:
        """Initial weights, float32, a pure function of the arguments.

        Raises:
          ValueError: if num_tokens is not an integer >= 2, or seed not one in [0, 2**64).
        """

    @abc.abstractmethod
    def logits(self, weights: Sequence[Any], tokens: tf.Tensor) -> tf.Tensor:
        """Logits [B, L, V] of the token after each of `tokens`, integers [B, L], L static."""

    @abc.abstractmethod
    def start(self, weights: Sequence[Any], batch_size) -> Any:
        """State before the first token: a structure of tensors with first axis `batch_size`."""

    @abc.abstractmethod
    def step(self, weights: Sequence[Any], state: Any, tokens: tf.Tensor) -> tuple[Any, tf.Tensor]:
        """State after one more token, integers [B], and the logits [B, V] of the one after it."""

    def num_parameters(self, num_tokens: int) -> int:
        """Number of trainable parameters of a model of `num_tokens` tokens."""
        return sum(math.prod(shape) for shape in self.weight_shapes(num_tokens).values())


def build(
    architecture: Architecture, num_tokens: int, sequence_length: int, seed: int
) -> tff.learning.models.FunctionalModel:
    """Builds a model for training.

    Args:
      architecture: its sizes and its cell.
      num_tokens: V, the number of token ids (special tokens included).
      sequence_length: L, the number of positions.
      seed: integer in [0, 2**64); decides the initial weights.

    Returns:
      A model of batches OrderedDict(x, y), both int32 [batch, L], with logits [batch, L, V], the
      loss `metrics.mean_loss` and the metrics of `metrics`. Its trainable weights are float32 NumPy
      arrays in the order of `weight_shapes`; it has no others.

    Raises:
      ValueError: if an argument is outside its range; the message names it.
    """
    _validate.integer('sequence_length', sequence_length, minimum=1)

    @tf.function
    def predict_on_batch(model_weights, x, training):
        del training  # Neither dropout nor normalisation by batch.
        trainable, _ = model_weights
        return architecture.logits(trainable, x)

    def loss(output, label, sample_weight=None):
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
      ValueError: if they are not of the number and shapes of the model's.
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
    """Returns the number of tokens that a model with these weights has.

    Raises:
      ValueError: if the number of weights or their shapes are not those of the architecture; the
        message names the first that differs.
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
