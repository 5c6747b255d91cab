"""Converts between structures of tensors and one vector per floating-point type.

Work on a vector takes a few TensorFlow operations, however many tensors a model has.
"""

import math
from typing import Any

import tensorflow as tf

# A type's index here also numbers its noise key.
DTYPES = (tf.float32, tf.float64)


def sizes(record_specs: Any) -> dict[tf.DType, int]:
    """Number of coordinates of each type present in a structure of `tf.TensorSpec`."""
    leaves = tf.nest.flatten(record_specs)
    return {
        dtype: sum(_size(leaf) for leaf in leaves if leaf.dtype == dtype)
        for dtype in DTYPES
        if any(leaf.dtype == dtype for leaf in leaves)
    }


def unflatten(vectors: dict[tf.DType, tf.Tensor], record_specs: Any) -> Any:
    """The coordinates of the vectors, in order, as tensors in the structure of `record_specs`."""
    leaves = tf.nest.flatten(record_specs)
    parts = {
        dtype: iter(tf.split(vector, [_size(leaf) for leaf in leaves if leaf.dtype == dtype]))
        for dtype, vector in vectors.items()
    }
    shaped = [tf.reshape(next(parts[leaf.dtype]), leaf.shape) for leaf in leaves]
    return tf.nest.pack_sequence_as(record_specs, shaped)


def _size(spec: tf.TensorSpec) -> int:
    return math.prod(spec.shape)
