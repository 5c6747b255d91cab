"""The recurrence of a projected CIFG-LSTM over whole sequences, with a hand-written gradient.

TensorFlow has fused operations for the LSTM, but none for the CIFG and none with a recurrent
projection. This one is as fast: the caller computes the input products of all positions as one
matrix product, the gradients of the two kernels are one product each over all positions, and the
elementwise part has as few operations as possible. Automatic differentiation would compute the
gradients of the kernels position by position and add them up.
"""

from typing import Any

import tensorflow as tf


def recurrence(inputs: tf.Tensor, recurrent_kernel: tf.Tensor, projection: tf.Tensor) -> tf.Tensor:
    """Projected outputs r_t of the cell that `stacked_cifg` defines.

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
