"""Recurrent language models: projected CIFG-LSTMs in layers, and two kinds of LSTM."""

import abc
import collections
import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from dpfl.tasks.text.models import architectures

# Number of weights of a CIFG layer.
_PER_LAYER = 4
# Gates in the order of the fused operation.
_GATES = ('input', 'candidate', 'forget', 'output')
# Maps outputs of the layer, [N, H], to logits, [N, V].
Output = Callable[[tf.Tensor], tf.Tensor]
# Of the initial embedding of `DenseLstm`.
_EMBEDDING_BOUND = 0.05


def recurrence(inputs: tf.Tensor, recurrent_kernel: tf.Tensor, projection: tf.Tensor) -> tf.Tensor:
    """Projected outputs r_t of the cell of `StackedCifg`, with a hand-written gradient.

    TensorFlow has fused operations for the LSTM, but none for the CIFG and none with a recurrent
    projection. This one is as fast: the caller computes the input products of all positions as one
    matrix product, the gradients of the two kernels are one product each over all positions, and
    the elementwise part has as few operations as possible. Automatic differentiation would compute
    the gradients of the kernels position by position and add them up.

    Args:
      inputs: floating point [L, B, 3 H] with static L: the inputs times their kernel, plus bias,
        with forget gate, output gate and candidate side by side. The L steps are unrolled.
      recurrent_kernel: [R, 3 H].
      projection: [H, R].

    Returns:
      [L, B, R].
    """

    @tf.custom_gradient
    def differentiable(inputs: Any, recurrent_kernel: Any, projection: Any) -> Any:
        outputs, kept = _forwards(inputs, recurrent_kernel, projection)

        def gradient(output_gradients: Any) -> Any:
            return _backwards(output_gradients, outputs, kept, recurrent_kernel, projection)

        return tf.stack(outputs), gradient

    return differentiable(inputs, recurrent_kernel, projection)


def _forwards(inputs: Any, recurrent_kernel: Any, projection: Any) -> tuple[list, list]:
    """The outputs, and the values that the gradient needs, both as lists by position."""
    batch_size, dtype = tf.shape(inputs)[1], inputs.dtype
    hidden_size, projection_size = projection.shape
    output = tf.zeros([batch_size, projection_size], dtype)
    cell = tf.zeros([batch_size, hidden_size], dtype)
    outputs, kept = [], []
    for gates in tf.unstack(inputs):
        gates += tf.matmul(output, recurrent_kernel)
        forget, expose, candidate = tf.split(gates, 3, axis=1)
        forget, expose, candidate = tf.sigmoid(forget), tf.sigmoid(expose), tf.tanh(candidate)
        fall = cell - candidate
        cell = candidate + forget * fall
        squashed = tf.tanh(cell)
        hidden = expose * squashed
        output = tf.matmul(hidden, projection)
        outputs.append(output)
        kept.append((forget, expose, candidate, fall, squashed, hidden))
    return outputs, kept


def _backwards(
    output_gradients: Any, outputs: list, kept: list, recurrent_kernel: Any, projection: Any
) -> tuple[Any, Any, Any]:
    """Gradients with respect to the three arguments of `recurrence`."""
    # y * (1 - y) * dy and (1 - y * y) * dy for y = sigmoid and y = tanh, each in one pass.
    sigmoid_gradient, tanh_gradient = tf.raw_ops.SigmoidGrad, tf.raw_ops.TanhGrad
    d_gates, d_before = None, 0.0
    all_d_gates, all_d_outputs = [], []
    for d_output, (forget, expose, candidate, fall, squashed, _) in zip(
        reversed(tf.unstack(output_gradients)), reversed(kept), strict=True
    ):
        if d_gates is not None:  # This output enters the gates of the next position.
            d_output += tf.matmul(d_gates, recurrent_kernel, transpose_b=True)
        d_hidden = tf.matmul(d_output, projection, transpose_b=True)
        d_cell = tanh_gradient(y=squashed, dy=d_hidden * expose) + d_before
        d_before = d_cell * forget
        d_gates = tf.concat(
            [
                sigmoid_gradient(y=forget, dy=d_cell * fall),
                sigmoid_gradient(y=expose, dy=d_hidden * squashed),
                tanh_gradient(y=candidate, dy=d_cell - d_before),
            ],
            axis=1,
        )
        all_d_gates.append(d_gates)
        all_d_outputs.append(d_output)
    inputs_gradient = tf.stack(all_d_gates[::-1])
    d_outputs = tf.concat(all_d_outputs[::-1], axis=0)
    hidden = tf.concat([hidden for *_, hidden in kept], axis=0)
    earlier = tf.concat([tf.zeros_like(outputs[0]), *outputs[:-1]], axis=0)
    flat = tf.reshape(inputs_gradient, [-1, recurrent_kernel.shape[1]])
    return (
        inputs_gradient,
        tf.matmul(earlier, flat, transpose_a=True),
        tf.matmul(hidden, d_outputs, transpose_a=True),
    )


@dataclasses.dataclass(frozen=True)
class StackedCifg(architectures.Architecture):
    """A language model with projected CIFG-LSTM layers.

    CIFG means coupled input and forget gates. With x_t the embedding of the token, or the output
    r_t of the layer below, a layer computes

        f, o, g = sigmoid, sigmoid, tanh of the three thirds of x_t W_x + r_{t-1} W_r + b
        c_t = f * c_{t-1} + (1 - f) * g
        r_t = (o * tanh(c_t)) P

    and the logits are r_t E_out^T + b_out, with r_t of the last layer. With embedding size E,
    hidden size H, projection size R, D layers and V tokens (special tokens included), the model has
    3 (E + R + 1) H + (D - 1) 3 (2 R + 1) H + D H R + V E + V R + V parameters.

    The model of [Xu23] has D = 1, H = 670, E = R = 96: 2.38M, 4.31M and 6.24M parameters at V =
    10k, 20k and 30k. The paper states 2.4M, 4.4M and 6.4M for vocabularies of 10K, 20K and 30K; V =
    10.1k, 20.5k and 30.8k give these numbers.

    The character model of [Augenstein20], appendix B.2, has D = 3, H = 256, E = R = 128, V = 258:
    756,738 parameters.

    Attributes:
      embedding_size: E, the size of the input embedding.
      hidden_size: H, the number of cells of a layer.
      projection_size: R, the size of the recurrent projections and of the output embedding.
      num_layers: D, the number of layers.
    """

    embedding_size: int
    hidden_size: int
    projection_size: int
    num_layers: int = 1

    def weight_shapes(self, num_tokens: int) -> architectures.Shapes:
        """As in the base class. Kernels hold forget gate, output gate, candidate side by side."""
        shapes: architectures.Shapes = collections.OrderedDict()
        shapes['input_embedding'] = (num_tokens, self.embedding_size)
        hidden, projection = self.hidden_size, self.projection_size
        for layer in range(self.num_layers):
            prefix = '' if self.num_layers == 1 else f'layer_{layer}_'
            input_size = projection if layer else self.embedding_size
            shapes[f'{prefix}input_kernel'] = (input_size, 3 * hidden)
            shapes[f'{prefix}recurrent_kernel'] = (projection, 3 * hidden)
            shapes[f'{prefix}gate_bias'] = (3 * hidden,)
            shapes[f'{prefix}projection'] = (hidden, projection)
        shapes['output_embedding'] = (num_tokens, projection)
        shapes['output_bias'] = (num_tokens,)
        return shapes

    def initial_weight(
        self, rng: np.random.Generator, name: str, shape: tuple[int, ...]
    ) -> np.ndarray:
        """As in the base class.

        Kernels are uniform within the Glorot bound. Embeddings are uniform in [-1, 1], larger than
        usual on purpose: clipped updates and noise have a fixed norm, and with larger embeddings
        the same change of the weights next to them changes the logits more. Forget gates start
        with bias 1 (remember), all other biases with 0.
        """
        if name.endswith('bias'):
            value = np.zeros(shape)
            if name.endswith('gate_bias'):
                value[: self.hidden_size] = 1
            return value
        value = rng.uniform(-1, 1, shape)
        if name.endswith('embedding'):
            return value
        gates = 3 if name.endswith('kernel') else 1  # Gates are side by side in one matrix.
        return value * math.sqrt(6 / (shape[0] + shape[1] / gates))

    def logits(self, weights: Sequence[Any], tokens: tf.Tensor) -> tf.Tensor:
        embedding, *layers, output_embedding, output_bias = weights
        batch_size, length = tf.shape(tokens)[0], tokens.shape[1]
        # Position is the first axis, so all input products of a layer are one matrix product.
        outputs = tf.gather(embedding, tf.reshape(tf.transpose(tokens), [-1]))
        for kernel, recurrent_kernel, bias, projection in _layers(layers):
            # `bias_add` is faster than `+`, which broadcasts.
            inputs = tf.nn.bias_add(tf.matmul(outputs, kernel), bias)
            inputs = tf.reshape(inputs, [length, batch_size, kernel.shape[1]])
            states = recurrence(inputs, recurrent_kernel, projection)
            outputs = tf.reshape(states, [-1, projection.shape[1]])
        states = tf.reshape(outputs, [length, batch_size, self.projection_size])
        outputs = tf.reshape(tf.transpose(states, [1, 0, 2]), [-1, self.projection_size])
        product = tf.matmul(outputs, output_embedding, transpose_b=True)
        result = tf.nn.bias_add(product, output_bias)
        return tf.reshape(result, [batch_size, length, output_bias.shape[0]])

    def start(self, weights: Sequence[Any], batch_size: int | tf.Tensor) -> Any:
        """The state: (cells [B, H], projected outputs [B, R]) for each layer."""
        dtype = tf.convert_to_tensor(weights[0]).dtype
        return tuple(
            (
                tf.zeros([batch_size, self.hidden_size], dtype),
                tf.zeros([batch_size, self.projection_size], dtype),
            )
            for _ in range(self.num_layers)
        )

    def step(self, weights: Sequence[Any], state: Any, tokens: tf.Tensor) -> tuple[Any, tf.Tensor]:
        embedding, *layers, output_embedding, output_bias = weights
        output = tf.gather(embedding, tokens)
        new_state = []
        for (cell, recurrent), (kernel, recurrent_kernel, bias, projection) in zip(
            state, _layers(layers), strict=True
        ):
            gates = tf.matmul(output, kernel) + tf.matmul(recurrent, recurrent_kernel) + bias
            forget, expose, candidate = tf.split(gates, 3, axis=1)
            candidate = tf.tanh(candidate)
            cell = candidate + tf.sigmoid(forget) * (cell - candidate)
            output = tf.matmul(tf.sigmoid(expose) * tf.tanh(cell), projection)
            new_state.append((cell, output))
        return tuple(new_state), tf.matmul(output, output_embedding, transpose_b=True) + output_bias


def _layers(weights: Sequence[Any]) -> list[Sequence[Any]]:
    """The weights of each layer."""
    return [weights[i : i + _PER_LAYER] for i in range(0, len(weights), _PER_LAYER)]


class Lstm(architectures.Architecture):
    """An LSTM layer between an embedding and an output layer, which subclasses define.

    With W of shape [E + H, 4 H] and b of shape [4 H], and the gates side by side in the order
    `_GATES`,

        i, g, f, o = sigmoid, tanh, sigmoid, sigmoid of the four quarters of [x_t, h_{t-1}] W + b
        c_t = f * c_{t-1} + i * g,    h_t = o * tanh(c_t)
    """

    hidden_size: int

    @abc.abstractmethod
    def _parts(self, weights: Sequence[Any]) -> tuple[Any, Any, Any, Output]:
        """The embedding, kernel and bias of the layer, and the output layer."""

    def logits(self, weights: Sequence[Any], tokens: tf.Tensor) -> tf.Tensor:
        embedding, kernel, bias, output = self._parts(weights)
        batch_size, length = tf.shape(tokens)[0], tokens.shape[1]
        inputs = tf.gather(embedding, tf.transpose(tokens))
        zeros = tf.zeros([batch_size, self.hidden_size])
        no_peephole = tf.zeros([self.hidden_size])
        # `BlockLSTMV2` has another order of gates, but TensorFlow 2.14 registers the gradient of
        # `BlockLSTM` for it: its gradients are wrong. So the first version is used.
        hidden = tf.raw_ops.BlockLSTM(
            seq_len_max=length,
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
        allow, candidate, forget, expose = tf.split(gates, len(_GATES), axis=1)
        cell = tf.sigmoid(forget) * cell + tf.sigmoid(allow) * tf.tanh(candidate)
        hidden = tf.sigmoid(expose) * tf.tanh(cell)
        return (cell, hidden), output(hidden)


@dataclasses.dataclass(frozen=True)
class DenseLstm(Lstm):
    """The LSTM of the StackOverflow benchmark: input embedding, LSTM, two dense layers.

    With E_in a matrix of one row per token, and h_t the outputs of an LSTM of H cells
    over the rows of the tokens,

        logits_t = (h_t P + p) W + w

    where P has the shape [H, R] and W the shape [R, V]. Neither dense layer has an activation.
    These are 8 tensors with V E + 4 ((E + H) H + H) + H R + R + R V + V parameters: 4,050,748 for
    the benchmark's E = R = 96, H = 670 and V = 10,004 (10,000 words and four special tokens).

    [McMahan24], section 4.1, uses the benchmark; it names no model, and follows Choquette-Choo et
    al., who train this one. Initial weights are drawn as Keras does by default, with which the
    benchmark defines the model: embeddings uniform in [-0.05, 0.05], the recurrent kernel
    orthogonal, other kernels uniform within the Glorot bound, forget gates with bias 1 and other
    biases with 0.

    Attributes:
      embedding_size: E, the size of the input embedding.
      hidden_size: H, the number of LSTM cells.
      projection_size: R, the size of the dense layer between LSTM and logits.
    """

    embedding_size: int
    hidden_size: int
    projection_size: int

    def weight_shapes(self, num_tokens: int) -> architectures.Shapes:
        """As in the base class. Kernels and bias of the gates are in the order `_GATES`."""
        gates = len(_GATES) * self.hidden_size
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
        """As in the base class; distributed as the docstring of the class says."""
        if name == 'embedding':
            return rng.uniform(-_EMBEDDING_BOUND, _EMBEDDING_BOUND, shape)
        if name == 'recurrent_kernel':
            # Its rows, not more than its columns, are a uniformly drawn orthonormal set.
            q, r = np.linalg.qr(rng.normal(size=shape[::-1]))
            return (q * np.sign(np.diag(r))).T
        if not name.endswith('bias'):
            return rng.uniform(-1, 1, shape) * math.sqrt(6 / sum(shape))
        value = np.zeros(shape)
        if name == 'gate_bias':
            value.reshape(len(_GATES), -1)[_GATES.index('forget')] = 1
        return value

    def _parts(self, weights: Sequence[Any]) -> tuple[Any, Any, Any, Output]:
        embedding, input_kernel, recurrent_kernel, bias, *dense = weights
        projection, projection_bias, output_kernel, output_bias = dense

        def output(hidden: tf.Tensor) -> tf.Tensor:
            # `bias_add` is faster than `+`, which broadcasts.
            outputs = tf.nn.bias_add(tf.matmul(hidden, projection), projection_bias)
            return tf.nn.bias_add(tf.matmul(outputs, output_kernel), output_bias)

        return embedding, tf.concat([input_kernel, recurrent_kernel], axis=0), bias, output


@dataclasses.dataclass(frozen=True)
class TiedLstm(Lstm):
    """The LSTM of [McMahan18], appendix B: input and output share an embedding of unit rows.

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

    Attributes:
      embedding_size: E, the size of the embedding that input and output share.
      hidden_size: H, the number of LSTM cells.
    """

    embedding_size: int
    hidden_size: int

    def weight_shapes(self, num_tokens: int) -> architectures.Shapes:
        embedding, hidden = self.embedding_size, self.hidden_size
        shapes: architectures.Shapes = collections.OrderedDict()
        shapes['embedding'] = (num_tokens, embedding)
        for gate in _GATES:
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
