"""Converts between structures of tensors and vectors: one vector of all, or one per type.

Work on a vector takes a few TensorFlow operations, however many tensors a model has.
"""

import math
from typing import Any

import tensorflow as tf

# A type's index here also numbers its noise key.
DTYPES = (tf.float32, tf.float64)


def leaf_sizes(record_specs: Any) -> list[int]:
    """Number of coordinates of each tensor of a structure of `tf.TensorSpec`."""
    return [math.prod(leaf.shape) for leaf in tf.nest.flatten(record_specs)]


def sizes(record_specs: Any) -> dict[tf.DType, int]:
    """Number of coordinates of each type present in a structure of `tf.TensorSpec`."""
    types = [leaf.dtype for leaf in tf.nest.flatten(record_specs)]
    counts = list(zip(types, leaf_sizes(record_specs), strict=True))
    return {
        dtype: sum(count for other, count in counts if other == dtype)
        for dtype in DTYPES
        if dtype in types
    }


def vector(structure: Any, dtype: tf.DType) -> tf.Tensor:
    """The coordinates of all tensors of a structure, cast to a type, [size]."""
    leaves = [tf.reshape(tf.cast(leaf, dtype), [-1]) for leaf in tf.nest.flatten(structure)]
    return tf.concat(leaves, 0)


def structured(vector: tf.Tensor, record_specs: Any) -> Any:
    """The coordinates of a vector as tensors of its type, in the structure of `record_specs`."""
    leaves = tf.nest.flatten(record_specs)
    parts = tf.split(vector, leaf_sizes(record_specs))
    shaped = [tf.reshape(part, leaf.shape) for part, leaf in zip(parts, leaves, strict=True)]
    return tf.nest.pack_sequence_as(record_specs, shaped)


def unflatten(vectors: dict[tf.DType, tf.Tensor], record_specs: Any) -> Any:
    """The coordinates of a vector for each type, as tensors in the structure of `record_specs`."""
    leaves = tf.nest.flatten(record_specs)
    tensors = {
        dtype: iter(structured(vector, [leaf for leaf in leaves if leaf.dtype == dtype]))
        for dtype, vector in vectors.items()
    }
    return tf.nest.pack_sequence_as(record_specs, [next(tensors[leaf.dtype]) for leaf in leaves])


def cast_to(structure: Any, record_specs: Any) -> Any:
    """A structure of tensors with the types of `record_specs`."""
    return tf.nest.map_structure(
        lambda leaf, spec: tf.cast(leaf, spec.dtype), structure, record_specs
    )
