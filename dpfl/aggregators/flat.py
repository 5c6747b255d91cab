"""Structures of tensors as one vector for each floating-point type, and back.

A vector takes a few TensorFlow operations however many tensors a model has.
"""

import math

import tensorflow as tf

# Their order is also that of the keys of their noise.
DTYPES = (tf.float32, tf.float64)


def sizes(record_specs) -> dict[tf.DType, int]:
    """Number of coordinates of each type in a structure of `tf.TensorSpec`, in float32, float64."""
    leaves = tf.nest.flatten(record_specs)
    return {
        dtype: sum(_size(leaf) for leaf in leaves if leaf.dtype == dtype)
        for dtype in DTYPES
        if any(leaf.dtype == dtype for leaf in leaves)
    }


def unflatten(vectors: dict[tf.DType, tf.Tensor], record_specs):
    """The structure of `record_specs` whose coordinates are those of the vectors, in order."""
    leaves = tf.nest.flatten(record_specs)
    parts = {
        dtype: iter(tf.split(vector, [_size(leaf) for leaf in leaves if leaf.dtype == dtype]))
        for dtype, vector in vectors.items()
    }
    shaped = [tf.reshape(next(parts[leaf.dtype]), leaf.shape) for leaf in leaves]
    return tf.nest.pack_sequence_as(record_specs, shaped)


def _size(spec: tf.TensorSpec) -> int:
    return math.prod(spec.shape)
