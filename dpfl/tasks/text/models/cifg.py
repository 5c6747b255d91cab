"""The recurrence of a projected CIFG-LSTM over whole sequences, with a gradient written by hand.

TensorFlow has fused operations for the LSTM, none for the CIFG and none with a recurrent
projection. What makes this as fast: the input products of all positions are one product outside
of it, the gradients of the two kernels are one product each over all positions, and the elementwise
part of a position has the fewest operations, forwards and backwards. Automatic differentiation
makes the kernels' gradients position by position, and adds them up.
"""

import tensorflow as tf


def recurrence(inputs: tf.Tensor, recurrent_kernel: tf.Tensor, projection: tf.Tensor) -> tf.Tensor:
    """Projected outputs r_t of the cell defined in `stacked_cifg`.

    Args:
      inputs: floating point [L, B, 3 H] with a static L: products of the inputs with their kernel,
        plus bias; forget gate, output gate and candidate side by side. The L steps are unrolled.
      recurrent_kernel: [R, 3 H].
      projection: [H, R].

    Returns:
      [L, B, R].
    """

    @tf.custom_gradient
    def differentiable(inputs, recurrent_kernel, projection):
        outputs, kept = _forwards(inputs, recurrent_kernel, projection)

        def gradient(output_gradients):
            return _backwards(output_gradients, outputs, kept, recurrent_kernel, projection)

        return tf.stack(outputs), gradient

    return differentiable(inputs, recurrent_kernel, projection)


def _forwards(inputs, recurrent_kernel, projection):
    """Lists by position: the outputs, and what the gradient needs."""
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


def _backwards(output_gradients, outputs, kept, recurrent_kernel, projection):
    """Gradients of the three arguments of `recurrence`."""
    # y * (1 - y) * dy and (1 - y * y) * dy for the values y of sigmoid and tanh, each in one pass.
    sigmoid_gradient, tanh_gradient = tf.raw_ops.SigmoidGrad, tf.raw_ops.TanhGrad
    d_gates, d_before = None, 0.0
    all_d_gates, all_d_outputs = [], []
    for d_output, (forget, expose, candidate, fall, squashed, _) in zip(
        reversed(tf.unstack(output_gradients)), reversed(kept), strict=True
    ):
        if d_gates is not None:  # The next position has this output in its gates.
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
