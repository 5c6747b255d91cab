"""The LSTM of the StackOverflow benchmark: input embedding, LSTM, two dense layers.

With E_in a matrix of one row per token, and h_t the outputs of an LSTM of H cells
(`fused_lstm`) over the rows of the tokens,

    logits_t = (h_t P + p) W + w

where P has the shape [H, R] and W the shape [R, V]. Neither dense layer has an activation. These
are 8 tensors with V E + 4 ((E + H) H + H) + H R + R + R V + V parameters: 4,050,748 for the
benchmark's E = R = 96, H = 670 and V = 10,004 (10,000 words and four special tokens).

[McMahan24], section 4.1, uses the benchmark; it names no model, and follows Choquette-Choo et al.,
who train this one. Initial weights are drawn as Keras does by default, with which the benchmark
defines the model: embeddings uniform in [-0.05, 0.05], the recurrent kernel orthogonal, other
kernels uniform within the Glorot bound, forget gates with bias 1 and other biases with 0.
"""

import collections
import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from dpfl import _random, _validate
from dpfl.tasks.text.models import architectures, fused_lstm

_EMBEDDING_BOUND = 0.05


@dataclasses.dataclass(frozen=True)
class DenseLstm(architectures.Architecture):
    """Sizes of the model.

    Attributes:
      embedding_size: E, the size of the input embedding.
      hidden_size: H, the number of LSTM cells.
      projection_size: R, the size of the dense layer between LSTM and logits.

    Raises:
      ValueError: if a size is not a positive integer.
    """

    embedding_size: int
    hidden_size: int
    projection_size: int

    def __post_init__(self):
        for field in dataclasses.fields(self):
            _validate.integer(field.name, getattr(self, field.name), minimum=1)

    def weight_shapes(self, num_tokens: int) -> architectures.Shapes:
        """As in the base class. Kernels and bias of the gates are in the order `GATES`."""
        gates = len(fused_lstm.GATES) * self.hidden_size
        return collections.OrderedDict(
            embedding=(num_tokens, self.embedding_size),
            input_kernel=(self.embedding_size, gates),
            recurrent_kernel=(self.hidden_size, gates),
            gate_bias=(gates,),
            projection=(self.hidden_size, self.projection_size),
            projection_bias=(self.projection_size,),
            output_kernel=(self.projection_size, num_tokens),
            output_bias=(num_tokens,),
        )

    def initial_weights(self, num_tokens: int, seed: int) -> tuple[np.ndarray, ...]:
        """As in the base class; distributed as the docstring of the module says."""
        _validate.integer('num_tokens', num_tokens, minimum=2)
        rng = _random.generator('model.weights', _random.check_seed('seed', seed))
        weights = []
        for name, shape in self.weight_shapes(num_tokens).items():
            if name == 'embedding':
                value = rng.uniform(-_EMBEDDING_BOUND, _EMBEDDING_BOUND, shape)
            elif name == 'recurrent_kernel':
                value = _orthonormal_rows(rng, shape)
            elif name.endswith('bias'):
                value = np.zeros(shape)
            else:
                value = rng.uniform(-1, 1, shape) * math.sqrt(6 / sum(shape))
            if name == 'gate_bias':
                value.reshape(len(fused_lstm.GATES), -1)[fused_lstm.GATES.index('forget')] = 1
            weights.append(value.astype(np.float32))
        return tuple(weights)

    def logits(self, weights: Sequence[Any], tokens: tf.Tensor) -> tf.Tensor:
        embedding, input_kernel, recurrent_kernel, bias, *dense = weights
        batch_size, length = tf.shape(tokens)[0], tokens.shape[1]
        inputs = tf.gather(embedding, tf.transpose(tokens))
        kernel = tf.concat([input_kernel, recurrent_kernel], axis=0)
        hidden = fused_lstm.sequence(inputs, kernel, bias, self.hidden_size)
        hidden = tf.reshape(tf.transpose(hidden, [1, 0, 2]), [-1, self.hidden_size])
        result = _dense(hidden, dense)
        return tf.reshape(result, [batch_size, length, dense[-1].shape[0]])

    def start(self, weights: Sequence[Any], batch_size: int | tf.Tensor) -> Any:
        """The state: (cells c, outputs h), both [B, H]."""
        return fused_lstm.start(
            batch_size, self.hidden_size, tf.convert_to_tensor(weights[0]).dtype
        )

    def step(self, weights: Sequence[Any], state: Any, tokens: tf.Tensor) -> tuple[Any, tf.Tensor]:
        embedding, input_kernel, recurrent_kernel, bias, *dense = weights
        kernel = tf.concat([input_kernel, recurrent_kernel], axis=0)
        state = fused_lstm.step(state, tf.gather(embedding, tokens), kernel, bias)
        return state, _dense(state[1], dense)


def _dense(hidden: Any, weights: Sequence[Any]) -> tf.Tensor:
    """Logits [N, V] of LSTM outputs [N, H]."""
    projection, projection_bias, output_kernel, output_bias = weights
    # `bias_add` is faster than `+`, which broadcasts.
    outputs = tf.nn.bias_add(tf.matmul(hidden, projection), projection_bias)
    return tf.nn.bias_add(tf.matmul(outputs, output_kernel), output_bias)


def _orthonormal_rows(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """A matrix whose rows, not more than its columns, are a uniformly drawn orthonormal set."""
    q, r = np.linalg.qr(rng.normal(size=shape[::-1]))
    return (q * np.sign(np.diag(r))).T
