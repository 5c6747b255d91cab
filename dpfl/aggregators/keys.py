"""Noise keys: which pseudo-random stream each tensor of each round uses.

A key is an int64 tensor of shape [2], 128 bits. A run has one root key; the key of a round is
derived from the root key, and that of a tensor from the round's, each by a block of Philox. Keys
are never consecutive integers: streams of neighbouring seeds do not overlap.
"""

import hashlib
import secrets

import numpy as np
import tensorflow as tf

from dpfl import _validate

_ALGORITHM = 'philox'


def seeded_root_key(seed: int) -> np.ndarray:
    """Root key of a simulation, int64 [2]: a hash of the seed, an integer >= 0."""
    _validate.integer('seed', seed, minimum=0)
    digest = hashlib.sha256(b'dpfl noise seed %d' % seed).digest()
    return np.frombuffer(digest[:16], dtype='<i8').astype(np.int64)


def entropy() -> np.ndarray:
    """Fresh bits from the operating system, int64 [2]."""
    return np.frombuffer(secrets.token_bytes(16), dtype=np.int64)


def fresh_root_key(entropy_bits: np.ndarray) -> tf.Tensor:
    """A root key that differs at every execution, int64 [2].

    TensorFlow's own source inside a graph is seeded with 32 bits only, hence `entropy_bits`, drawn
    when the graph is built; and one graph may start several runs, hence the source inside.

    Args:
      entropy_bits: what `entropy` gave, int64 [2].
    """
    inside = tf.raw_ops.NonDeterministicInts(shape=[2], dtype=tf.int64)
    return derive(tf.bitwise.bitwise_xor(inside, entropy_bits), 0)


def derive(key, index) -> tf.Tensor:
    """Key number `index` (an integer tensor or number >= 0) below `key`, int64 [2]."""
    index = tf.cast(index, tf.int64)
    seed = tf.stack([key[0], tf.bitwise.bitwise_xor(key[1], index)])
    return tf.random.stateless_uniform(
        [2], seed=seed, minval=None, maxval=None, dtype=tf.int64, alg=_ALGORITHM
    )


def normal(key, spec: tf.TensorSpec) -> tf.Tensor:
    """Independent standard normal variables of the shape and floating-point type of `spec`."""
    return tf.random.stateless_normal(spec.shape, seed=key, dtype=spec.dtype, alg=_ALGORITHM)
