"""The recurrence of a projected CIFG-LSTM over whole sequences, with a hand-written gradient.

TensorFlow has fused operations for the LSTM, but none for the CIFG and none with a recurrent
projection. This one is as fast: the caller computes the input products of all positions as one
matrix product, the gradients of the two kernels are one product each over all positions, and the
elementwise part has as few operations as possible. Automatic differentiation would compute the
gradients of the kernels position by position and add them up.

Language models with projected CIFG-LSTM layers.

CIFG means coupled input and forget gates. With x_t the embedding of the token, or the output r_t of
the layer below, a layer computes

    f, o, g = sigmoid, sigmoid, tanh of the three thirds of x_t W_x + r_{t-1} W_r + b
    c_t = f * c_{t-1} + (1 - f) * g
    r_t = (o * tanh(c_t)) P

and the logits are r_t E_out^T + b_out, with r_t of the last layer. With embedding size E, hidden
size H, projection size R, D layers and V tokens (special tokens included), the model has
3 (E + R + 1) H + (D - 1) 3 (2 R + 1) H + D H R + V E + V R + V parameters.

The model of [Xu23] has D = 1, H = 670, E = R = 96: 2.38M, 4.31M and 6.24M parameters at V = 10k,
20k and 30k. The paper states 2.4M, 4.4M and 6.4M for vocabularies of 10K, 20K and 30K; V = 10.1k,
20.5k and 30.8k give these numbers.

The character model of [Augenstein20], appendix B.2, has D = 3, H = 256, E = R = 128, V = 258:
756,738 parameters.
"""

import collections
import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from dpfl import _validate
from dpfl.tasks.text.models import architectures


def recurrence(inputs: tf.Tensor, recurrent_kernel: tf.Tensor, projection: tf.Tensor) -> tf.Tensor:
    """Projected outputs r_t of the cell that this file defines.

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


_PER_LAYER = 4  # Number of weights of a layer.


@dataclasses.dataclass(frozen=True)
class StackedCifg(architectures.Architecture):
    """Sizes of the model.

    Attributes:
      embedding_size: E, the size of the input embedding.
      hidden_size: H, the number of cells of a layer.
      projection_size: R, the size of the recurrent projections and of the output embedding.
      num_layers: D, the number of layers.

    Raises:
      ValueError: if a size is not a positive integer.
    """

    embedding_size: int
    hidden_size: int
    projection_size: int
    num_layers: int = 1

    def __post_init__(self):
        for field in dataclasses.fields(self):
            _validate.integer(field.name, getattr(self, field.name), minimum=1)

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
