"""LSTM language models, with a dense output and with one that is tied to the embedding.

An LSTM layer: a whole sequence by TensorFlow's fused operation, or one step.

With W of shape [E + H, 4 H] and b of shape [4 H], and the gates side by side in the order `GATES`,

    i, g, f, o = sigmoid, tanh, sigmoid, sigmoid of the four quarters of [x_t, h_{t-1}] W + b
    c_t = f * c_{t-1} + i * g,    h_t = o * tanh(c_t)

The LSTM of the StackOverflow benchmark: input embedding, LSTM, two dense layers.

With E_in a matrix of one row per token, and h_t the outputs of an LSTM of H cells
(above) over the rows of the tokens,

    logits_t = (h_t P + p) W + w

where P has the shape [H, R] and W the shape [R, V]. Neither dense layer has an activation. These
are 8 tensors with V E + 4 ((E + H) H + H) + H R + R + R V + V parameters: 4,050,748 for the
benchmark's E = R = 96, H = 670 and V = 10,004 (10,000 words and four special tokens).

[McMahan24], section 4.1, uses the benchmark; it names no model, and follows Choquette-Choo et al.,
who train this one. Initial weights are drawn as Keras does by default, with which the benchmark
defines the model: embeddings uniform in [-0.05, 0.05], the recurrent kernel orthogonal, other
kernels uniform within the Glorot bound, forget gates with bias 1 and other biases with 0.

The LSTM of [McMahan18], appendix B: input and output share an embedding with rows of norm 1.

With E a matrix of one row per token, e_s = E_s / |E_s| its rows scaled to norm 1, and a state
(c, h) of H cells,

    i, g, f, o = sigmoid, tanh, sigmoid, sigmoid of [e_{s_t}, h_{t-1}] W_* + b_*
    c_t = f * c_{t-1} + i * g,    h_t = o * tanh(c_t)
    logits_t[s] = e_s . (h_t P + p)

These are 11 tensors (the embedding, kernel and bias of each of the four gates, P and p) with
V E + 4 ((E + H) H + H) + H E + E parameters: 1,346,144 for the paper's E = 96, H = 256 and
V = 10,000. The paper states 11 parameter vectors and 1.35M. (A recurrent projection would give
1.18M, an output bias 1.36M; the paper does not mention either, and the counts rule them out.)

Rows are scaled in the forward pass, so their norm is 1 whatever the noise does to E.
"""

import abc
import collections
import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from dpfl import _validate
from dpfl.tasks.text.models import architectures

# Gates in the order of the fused operation.
GATES = ('input', 'candidate', 'forget', 'output')
# Maps outputs of the layer, [N, H], to logits, [N, V].
Output = Callable[[tf.Tensor], tf.Tensor]


def sequence(inputs: Any, kernel: Any, bias: Any, hidden_size: int) -> tf.Tensor:
    """Outputs h [L, B, H] over inputs [L, B, E], float32, from a state of zeros.

    `BlockLSTMV2` has another order of gates, but TensorFlow 2.14 registers the gradient of
    `BlockLSTM` for it: its gradients are wrong. So the first version is used.
    """
    zeros = tf.zeros([tf.shape(inputs)[1], hidden_size])
    no_peephole = tf.zeros([hidden_size])
    return tf.raw_ops.BlockLSTM(
        seq_len_max=tf.shape(inputs, tf.int64)[0],
        x=inputs,
        cs_prev=zeros,
        h_prev=zeros,
        w=kernel,
        wci=no_peephole,
        wcf=no_peephole,
        wco=no_peephole,
        b=bias,
        forget_bias=0.0,
        cell_clip=0.0,
        use_peephole=False,
    ).h


class Lstm(architectures.Architecture):
    """An LSTM layer between an embedding and an output layer, which subclasses define."""

    hidden_size: int

    @abc.abstractmethod
    def _parts(self, weights: Sequence[Any]) -> tuple[Any, Any, Any, Output]:
        """The embedding, kernel and bias of the layer, and the output layer."""

    def logits(self, weights: Sequence[Any], tokens: tf.Tensor) -> tf.Tensor:
        embedding, kernel, bias, output = self._parts(weights)
        batch_size, length = tf.shape(tokens)[0], tokens.shape[1]
        inputs = tf.gather(embedding, tf.transpose(tokens))
        hidden = sequence(inputs, kernel, bias, self.hidden_size)
        hidden = tf.reshape(tf.transpose(hidden, [1, 0, 2]), [-1, self.hidden_size])
        return tf.reshape(output(hidden), [batch_size, length, embedding.shape[0]])

    def start(self, weights: Sequence[Any], batch_size: int | tf.Tensor) -> Any:
        """The state: (cells c, outputs h), both [B, H], zeros."""
        zeros = tf.zeros([batch_size, self.hidden_size], tf.convert_to_tensor(weights[0]).dtype)
        return zeros, zeros

    def step(self, weights: Sequence[Any], state: Any, tokens: tf.Tensor) -> tuple[Any, tf.Tensor]:
        embedding, kernel, bias, output = self._parts(weights)
        cell, hidden = state
        gates = tf.matmul(tf.concat([tf.gather(embedding, tokens), hidden], axis=1), kernel) + bias
        allow, candidate, forget, expose = tf.split(gates, len(GATES), axis=1)
        cell = tf.sigmoid(forget) * cell + tf.sigmoid(allow) * tf.tanh(candidate)
        hidden = tf.sigmoid(expose) * tf.tanh(cell)
        return (cell, hidden), output(hidden)


_EMBEDDING_BOUND = 0.05


@dataclasses.dataclass(frozen=True)
class DenseLstm(Lstm):
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
        gates = len(GATES) * self.hidden_size
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

    def initial_weight(
        self, rng: np.random.Generator, name: str, shape: tuple[int, ...]
    ) -> np.ndarray:
        """As in the base class; distributed as the docstring of the module says."""
        if name == 'embedding':
            return rng.uniform(-_EMBEDDING_BOUND, _EMBEDDING_BOUND, shape)
        if name == 'recurrent_kernel':
            return _orthonormal_rows(rng, shape)
        if not name.endswith('bias'):
            return rng.uniform(-1, 1, shape) * math.sqrt(6 / sum(shape))
        value = np.zeros(shape)
        if name == 'gate_bias':
            value.reshape(len(GATES), -1)[GATES.index('forget')] = 1
        return value

    def _parts(self, weights: Sequence[Any]) -> tuple[Any, Any, Any, Output]:
        embedding, input_kernel, recurrent_kernel, bias, *dense = weights
        projection, projection_bias, output_kernel, output_bias = dense

        def output(hidden: tf.Tensor) -> tf.Tensor:
            # `bias_add` is faster than `+`, which broadcasts.
            outputs = tf.nn.bias_add(tf.matmul(hidden, projection), projection_bias)
            return tf.nn.bias_add(tf.matmul(outputs, output_kernel), output_bias)

        return embedding, tf.concat([input_kernel, recurrent_kernel], axis=0), bias, output


def _orthonormal_rows(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """A matrix whose rows, not more than its columns, are a uniformly drawn orthonormal set."""
    q, r = np.linalg.qr(rng.normal(size=shape[::-1]))
    return (q * np.sign(np.diag(r))).T


@dataclasses.dataclass(frozen=True)
class TiedLstm(Lstm):
    """Sizes of the model.

    Attributes:
      embedding_size: E, the size of the embedding that input and output share.
      hidden_size: H, the number of LSTM cells.

    Raises:
      ValueError: if a size is not a positive integer.
    """

    embedding_size: int
    hidden_size: int

    def __post_init__(self):
        for field in dataclasses.fields(self):
            _validate.integer(field.name, getattr(self, field.name), minimum=1)

    def weight_shapes(self, num_tokens: int) -> architectures.Shapes:
        embedding, hidden = self.embedding_size, self.hidden_size
        shapes: architectures.Shapes = collections.OrderedDict()
        shapes['embedding'] = (num_tokens, embedding)
        for gate in GATES:
            shapes[f'{gate}_kernel'] = (embedding + hidden, hidden)
            shapes[f'{gate}_bias'] = (hidden,)
        shapes['projection'] = (hidden, embedding)
        shapes['projection_bias'] = (embedding,)
        return shapes

    def initial_weight(
        self, rng: np.random.Generator, name: str, shape: tuple[int, ...]
    ) -> np.ndarray:
        """As in the base class.

        Embeddings are uniform on the sphere, matrices uniform within the Glorot bound. Forget gates
        start with bias 1 (remember), all other biases with 0.
        """
        if name == 'embedding':
            value = rng.normal(size=shape)
            return value / np.linalg.norm(value, axis=1, keepdims=True)
        if name.endswith('bias'):
            return np.full(shape, float(name == 'forget_bias'))
        return rng.uniform(-1, 1, shape) * math.sqrt(6 / sum(shape))

    def _parts(self, weights: Sequence[Any]) -> tuple[Any, Any, Any, Output]:
        rows, *gates, projection, projection_bias = weights
        # Rows of norm 1; kernels side by side, biases end to end.
        embedding = tf.math.l2_normalize(rows, axis=1)
        kernel, bias = tf.concat(gates[0::2], axis=1), tf.concat(gates[1::2], axis=0)

        def output(hidden: tf.Tensor) -> tf.Tensor:
            outputs = tf.matmul(hidden, projection) + projection_bias
            return tf.matmul(outputs, embedding, transpose_b=True)

        return embedding, kernel, bias, output
