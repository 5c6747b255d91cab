"""An LSTM layer: a whole sequence by TensorFlow's fused operation, or one step.

With W of shape [E + H, 4 H] and b of shape [4 H], and the gates side by side in the order `GATES`,

    i, g, f, o = sigmoid, tanh, sigmoid, sigmoid of the four quarters of [x_t, h_{t-1}] W + b
    c_t = f * c_{t-1} + i * g,    h_t = o * tanh(c_t)
"""

from typing import Any

import tensorflow as tf

# Gates in the order of the fused operation.
GATES = ('input', 'candidate', 'forget', 'output')


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


def start(batch_size: int | tf.Tensor, hidden_size: int, dtype: Any) -> tuple[tf.Tensor, tf.Tensor]:
    """The state before the first step: (cells c, outputs h), both [B, H], zeros."""
    zeros = tf.zeros([batch_size, hidden_size], dtype)
    return zeros, zeros


def step(
    state: tuple[tf.Tensor, tf.Tensor], inputs: Any, kernel: Any, bias: Any
) -> tuple[tf.Tensor, tf.Tensor]:
    """The state (c, h), both [B, H], after one more input [B, E]."""
    cell, hidden = state
    gates = tf.matmul(tf.concat([inputs, hidden], axis=1), kernel) + bias
    allow, candidate, forget, expose = tf.split(gates, len(GATES), axis=1)
    cell = tf.sigmoid(forget) * cell + tf.sigmoid(allow) * tf.tanh(candidate)
    return cell, tf.sigmoid(expose) * tf.tanh(cell)
