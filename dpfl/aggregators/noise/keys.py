"""Noise keys: which pseudo-random stream the coordinates of each round use.

A key is an int64 tensor of shape [2], 128 bits. A run has a root key for each of its streams. The
key of a round is derived from the root key, the round, and what the noise protects; see `of_round`.
The keys of the round's float32 and float64 coordinates are derived from that key. Each derivation
is a block of Philox. Keys are never consecutive integers, so streams of neighbouring seeds do not
overlap.

A secret root key is read from the operating system when a run starts, by the computation itself,
in the process that executes it. Building a graph draws nothing random, and no random generator of
the process is used. So a graph that is built once and executed in several processes, forked ones
included, gives each its own key.
"""

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from dpfl import _validate

_ALGORITHM = 'philox'
_RANDOM_SOURCE = '/dev/urandom'
# Lines of random bytes to read for a key: 256 bytes each on average; at most 32 bytes are needed.
_LINES = 32


def root_key_source(seed: int | None, stream: str = 'noise') -> Callable[[], tf.Tensor]:
    """A function that returns the root key of a stream when a run starts, int64 [2].

    Args:
      seed: None for a secret key, a new one at every call; an integer >= 0 for a simulation.
      stream: purpose of the key. Streams have unrelated keys, so that the key of one (rotation of
        updates) can be public while that of another (noise) is secret.

    Raises:
      ValueError: if the seed is not an integer >= 0.
    """
    if seed is None:
        return fresh_root_key
    key = seeded_root_key(seed, stream)
    return lambda: tf.constant(key)


def seeded_root_key(seed: int, stream: str = 'noise') -> np.ndarray:
    """Root key of a simulation: a hash of the stream and the seed (an integer >= 0), int64 [2]."""
    _validate.integer('seed', seed, minimum=0)
    digest = hashlib.sha256(f'dpfl {stream} seed {seed}'.encode()).digest()
    return np.frombuffer(digest[:16], dtype='<i8').astype(np.int64)


def fresh_root_key(words: int = 2) -> tf.Tensor:
    """A key from the operating system, int64 [words], a new one at every execution.

    A graph, too, reads the bytes when it is executed. TensorFlow can read endless files only by
    lines, which contain neither line feeds nor carriage returns: a byte has 254 values, so a word
    has 63.9 random bits.

    Raises (when executed):
      tf.errors.NotFoundError: if the operating system has no `/dev/urandom`.
    """
    lines = tf.data.TextLineDataset(_RANDOM_SOURCE, buffer_size=1 << 14).take(_LINES)
    text = tf.strings.reduce_join(lines.batch(_LINES, drop_remainder=True).get_single_element())
    return tf.reshape(tf.io.decode_raw(tf.strings.substr(text, 0, 8 * words), tf.int64), [words])


def derive(key: Any, index: Any) -> tf.Tensor:
    """Key number `index` (an integer or integer tensor, >= 0) derived from `key`, int64 [2]."""
    index = tf.cast(index, tf.int64)
    seed = tf.stack([key[0], tf.bitwise.bitwise_xor(key[1], index)])
    return tf.random.stateless_uniform(
        [2], seed=seed, minval=None, maxval=None, dtype=tf.int64, alg=_ALGORITHM
    )


def of_round(root: Any, round_index: Any, context: Any) -> tf.Tensor:
    """Key of the noise of a round, int64 [2]: a function of the root key and the context.

    The same context gives the same key, so a round can be repeated. Another context gives a key
    that is independent of it (docs/reference/threat_model.md).

    Args:
      root: root key, int64 [2].
      round_index: integer scalar, >= 0.
      context: structure of tensors: all that the release of the round is made of besides the noise
        of this round, such as the sum, its scale, and the key of the round before. Two contexts
        have one key by chance with probability 2^-64. Somebody who chooses both can make them
        collide, because the digest (farmhash64) has no key.
    """
    leaves = [tf.reshape(leaf, [1, -1]) for leaf in tf.nest.flatten(context)]
    digests = [tf.raw_ops.Fingerprint(data=leaf, method='farmhash64')[0] for leaf in leaves]
    return derive_from_content(derive(root, round_index), tf.concat(digests, 0))


def uniform_bits(key: Any, size: int) -> tf.Tensor:
    """Independent uniform bits, int32 [size]."""
    return tf.random.stateless_uniform(
        [size], seed=key, minval=None, maxval=None, dtype=tf.int32, alg=_ALGORITHM
    )


def uniform(key: Any, size: int) -> tf.Tensor:
    """Independent variables uniform on [0, 1), float32 [size]."""
    return tf.random.stateless_uniform([size], seed=key, alg=_ALGORITHM)


def derive_from_content(key: Any, vector: tf.Tensor) -> tf.Tensor:
    """A key derived from `key` and the bits of a vector of any numbers, int64 [2].

    Clients with a common key draw different numbers, and a repeated round draws the same ones.
    """
    fingerprint = tf.raw_ops.Fingerprint(data=vector[None], method='farmhash64')
    return derive(key, tf.bitcast(fingerprint[0], tf.int64))
