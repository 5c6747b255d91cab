"""Noise keys: which pseudo-random stream the coordinates of each round use.

A key is an int64 tensor of shape [2], 128 bits. A run has one root key for each of its streams; the
key of a round is derived from the root key, and that of its float32 coordinates (or float64) from
the round's, each by a block of Philox. Keys are never consecutive integers: streams of neighbouring
seeds do not overlap.

A root key that nobody may know is read from the operating system where and when a run starts: by
the computation itself, in whichever process executes it. Nothing random is drawn when a graph is
built, and no generator of a process is used: a graph that is built once and executed in several
processes, forked ones too, gives each of them a key of its own.
"""

import hashlib
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from dpfl import _validate

_ALGORITHM = 'philox'
_RANDOM_SOURCE = '/dev/urandom'
# Lines of random bytes that are read for a key: 256 bytes each on average; 32 at most are needed.
_LINES = 32


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
        return fresh_root_key
    key = seeded_root_key(seed, stream)
    return lambda: tf.constant(key)


def seeded_root_key(seed: int, stream: str = 'noise') -> np.ndarray:
    """Root key of a simulation, int64 [2]: a hash of the stream and the seed, an integer >= 0."""
    _validate.integer('seed', seed, minimum=0)
    digest = hashlib.sha256(f'dpfl {stream} seed {seed}'.encode()).digest()
    return np.frombuffer(digest[:16], dtype='<i8').astype(np.int64)


def fresh_root_key(words: int = 2) -> tf.Tensor:
    """A key from the operating system, int64 [words], which differs at every execution.

    Inside a graph, too: the bytes are read when it is executed. TensorFlow reads endless files by
    lines only, and those have neither line feeds nor carriage returns: a byte is one of 254, so a
    word has 63.9 random bits.

    Raises (when executed):
      tf.errors.NotFoundError: if the operating system has no such source.
    """
    lines = tf.data.TextLineDataset(_RANDOM_SOURCE, buffer_size=1 << 14).take(_LINES)
    text = tf.strings.reduce_join(lines.batch(_LINES, drop_remainder=True).get_single_element())
    return tf.reshape(tf.io.decode_raw(tf.strings.substr(text, 0, 8 * words), tf.int64), [words])


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


def uniform_bits(key, size: int) -> tf.Tensor:
    """Independent uniform bits, int32 [size]."""
    return tf.random.stateless_uniform(
        [size], seed=key, minval=None, maxval=None, dtype=tf.int32, alg=_ALGORITHM
    )


def uniform(key, size: int, dtype=tf.float32) -> tf.Tensor:
    """Independent variables uniform on [0, 1), float32 or float64 [size]."""
    return tf.random.stateless_uniform([size], seed=key, dtype=dtype, alg=_ALGORITHM)


def derive_from_content(key, vector) -> tf.Tensor:
    """A key below `key` for a vector of any numbers, int64 [2]: the same for the same bits.

    Clients with a common key draw different numbers, and a repeated round draws the same ones.
    """
    fingerprint = tf.raw_ops.Fingerprint(data=vector[None], method='farmhash64')
    return derive(key, tf.bitcast(fingerprint[0], tf.int64))
