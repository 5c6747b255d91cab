"""Noise keys: which pseudo-random stream the coordinates of each round use.

A key is an int64 tensor of shape [2], 128 bits. A run has one root key for each of its streams; the
key of a round is derived from the root key, and that of its float32 coordinates (or float64) from
the round's, each by a block of Philox. Keys are never consecutive integers: streams of neighbouring
seeds do not overlap.
"""

import hashlib
import secrets
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from dpfl import _validate

_ALGORITHM = 'philox'
_PHILOX = 1  # Of TensorFlow's raw operations.


def root_key_source(seed: int | None, stream: str = 'noise') -> Callable[[], tf.Tensor]:
    """A function that gives the root key of a stream whenever a run starts, int64 [2].

    Args:
      seed: None for a key that nobody knows and that differs at every call; an integer >= 0 for
        that of a simulation.
      stream: what the key is for. Streams have unrelated keys, so that those of one (the rotation
        of updates) can be public while those of another (the noise) are not.

    Raises:
      ValueError: if the seed is not an integer >= 0.
    """
    if seed is None:
        bits = entropy()
        return lambda: fresh_root_key(bits)
    key = seeded_root_key(seed, stream)
    return lambda: tf.constant(key)


def seeded_root_key(seed: int, stream: str = 'noise') -> np.ndarray:
    """Root key of a simulation, int64 [2]: a hash of the stream and the seed, an integer >= 0."""
    _validate.integer('seed', seed, minimum=0)
    digest = hashlib.sha256(f'dpfl {stream} seed {seed}'.encode()).digest()
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


def of_round(key, round_index, part: int) -> tf.Tensor:
    """Key of the noise of a round, int64 [2]; its parts are the types of `flat.DTYPES`."""
    return derive(derive(key, round_index), part)


def normal(key, size: int, dtype=tf.float32) -> tf.Tensor:
    """Independent standard normal variables, [size], in float32 or float64."""
    return normal_from(position(key), size, dtype)


def position(key) -> tuple[tf.Tensor, tf.Tensor]:
    """Where Philox starts for a key: its own key, uint64 [1], and its counter, uint64 [2]."""
    return tuple(tf.raw_ops.StatelessRandomGetKeyCounter(seed=key))


def normal_from(start, size: int, dtype, first=0) -> tf.Tensor:
    """Number `first` and those after it of the variables that `normal` draws, [size].

    Args:
      start: what `position` gave for the key.
      size: how many.
      dtype: float32 or float64.
      first: integer, a multiple of 4. (Each step of the counter gives four variables, or two in
        float64.)
    """
    philox_key, counter = start
    steps = tf.cast(first // (4 if dtype == tf.float32 else 2), tf.uint64)
    # The counter of a key starts at 0 in its lower half: no carry.
    counter += tf.stack([steps, tf.zeros([], tf.uint64)])
    return tf.raw_ops.StatelessRandomNormalV2(
        shape=[size], key=philox_key, counter=counter, alg=_PHILOX, dtype=dtype
    )


def uniform_bits(key, size: int) -> tf.Tensor:
    """Independent uniform bits, int32 [size]."""
    return tf.random.stateless_uniform(
        [size], seed=key, minval=None, maxval=None, dtype=tf.int32, alg=_ALGORITHM
    )


def uniform(key, size: int) -> tf.Tensor:
    """Independent variables uniform on [0, 1), float32 [size]."""
    return tf.random.stateless_uniform([size], seed=key, dtype=tf.float32, alg=_ALGORITHM)


def derive_from_content(key, vector) -> tf.Tensor:
    """A key below `key` for a vector of any numbers, int64 [2]: the same for the same bits.

    Clients with a common key draw different numbers, and a repeated round draws the same ones.
    """
    fingerprint = tf.raw_ops.Fingerprint(data=vector[None], method='farmhash64')
    return derive(key, tf.bitcast(fingerprint[0], tf.int64))
