"""Randomised Hadamard transform: spreads a vector's norm evenly over its coordinates.

[Xu23], section 2.4; [Kairouz21-discrete], lemma 29. The transform is `H D x / sqrt(d)`, with random
signs on the diagonal of D and the Hadamard matrix H of order d, a power of two. It is orthogonal.
"""

import math
from typing import Any

import numpy as np
import tensorflow as tf
from scipy import linalg

from dpfl.aggregators.noise import keys

# Each matrix product covers 2^5 coordinates. Fewer would mean more passes over the vector, more
# would mean more operations.
_BITS_PER_PASS = 5


def hadamard(vector: tf.Tensor) -> tf.Tensor:
    """The product `H vector / sqrt(d)` with the Hadamard matrix, which is its own inverse.

    Args:
      vector: float tensor [d] of static shape, d a power of two.

    Returns:
      A tensor of the shape and type of `vector`, in O(d log d) operations and with at most two
      vectors in memory.
    """
    size = vector.shape[0]
    bits = size.bit_length() - 1
    # H is the Kronecker product of small Hadamard matrices. Each pass applies one to the last axis
    # and makes it the first. After all passes every axis is back in its place.
    rotated = vector
    for done in range(0, bits, _BITS_PER_PASS):
        order = 2 ** min(_BITS_PER_PASS, bits - done)
        small = linalg.hadamard(order).astype(vector.dtype.as_numpy_dtype) / math.sqrt(order)
        rows = tf.reshape(rotated, [size // order, order])
        rotated = tf.matmul(small.astype(vector.dtype.as_numpy_dtype), rows, transpose_b=True)
    return tf.reshape(rotated, [size])


def signs(key: Any, size: int) -> tf.Tensor:
    """Independent uniform signs -1 or 1, float32 [size], a function of the key."""
    words = -(-size // 32)
    bits = keys.uniform_bits(key, words)
    unpacked = tf.bitwise.right_shift(bits[:, None], np.arange(32, dtype=np.int32))
    positive = tf.reshape(tf.bitwise.bitwise_and(unpacked, 1), [-1])[:size]
    return 2.0 * tf.cast(positive, tf.float32) - 1.0


def rotate(vector: tf.Tensor, sign: tf.Tensor, padded_size: int) -> tf.Tensor:
    """`H D x / sqrt(d)` of a vector that is padded with zeros to d coordinates.

    Args:
      vector: float32 [size].
      sign: diagonal of D for the coordinates of the vector, float32 [size].
      padded_size: d, a power of two, at least the size.

    Returns:
      float32 [padded_size].
    """
    padding = [[0, padded_size - vector.shape[0]]]
    return hadamard(tf.pad(vector * sign, padding))


def rotate_back(rotated: tf.Tensor, sign: tf.Tensor) -> tf.Tensor:
    """The inverse of `rotate`, [size] in the type of `rotated`."""
    return hadamard(rotated)[: sign.shape[0]] * tf.cast(sign, rotated.dtype)
