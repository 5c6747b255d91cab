"""What noise is drawn from: keys, and normal variables at the full resolution of float64.

TensorFlow makes its normal variables from uniform numbers of 23 bits: squared radii of pairs lie on
a lattice that shows in a float32 release, and no variable exceeds 5.68. Here each pair is made from
two 64-bit words of Philox by the Box-Muller method ([Box58]), with

- a radius `sqrt(-2 log u)` whose u has full relative precision at both ends: the largest radius is
  9.49 (one pair in 2^64), and radii near 0 have no coarser steps than others;
- an angle within an octant from 62 bits, by a polynomial (error below 1e-14) and
  `cos = sqrt(1 - sin^2)`, which loses no digits there; two more bits choose octant and sign.

So a variable is a function of words with steps of 2^-63. Only variables below 2^-39, two in 10^12,
are so small that these steps could show in float32; `noise='hardened'` has no such steps.

Keys say which pseudo-random stream the coordinates of each round use. A key is an int64 tensor of
shape [2], 128 bits. A run has a root key for each of its streams. The key of a round is derived
from the root key, the round, and what the noise protects; see `of_round`. The keys of the round's
float32 and float64 coordinates are derived from that key. Each derivation is a block of Philox.
Keys are never consecutive integers, so streams of neighbouring seeds do not overlap.

A secret root key is read from the operating system when a run starts, by the computation itself,
in the process that executes it. Building a graph draws nothing random, and no random generator of
the process is used. So a graph that is built once and executed in several processes, forked ones
included, gives each its own key.
"""

import hashlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from dpfl import _validate

_ALGORITHM = 'philox'
_RANDOM_SOURCE = '/dev/urandom'
# Lines of random bytes to read for a key: 256 bytes each on average; at most 32 bytes are needed.
_LINES = 32
_PHILOX = 1  # Its number in TensorFlow's raw operations.
# Variables per block: first the first variables of all its pairs, then the second ones.
BLOCK = 2048
_PAIRS = BLOCK // 2
# Blocks per chunk, such that a chunk fits into the cache of a core; chunks in parallel. Neither
# affects the bits.
_CHUNK, _AT_A_TIME = 16, 4
# From this number of chunks on, 4 million variables, a second copy of all variables takes more time
# than it saves.
_MANY_CHUNKS = 128
# Counter at which the words of angles start, beyond those of any number of radii.
_ANGLES = 2**63
_BELOW_ONE = 1 - 2.0**-53


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


def _polynomial() -> tuple[float, ...]:
    """Coefficients of p with `sqrt(2) sin(pi/4 b / 2^63) = b p(b^2)`, lowest power first.

    By interpolation at Chebyshev nodes in b^2, of degree 11 in b.
    """
    nodes = 0.5 + 0.5 * np.cos(np.pi * (np.arange(6) + 0.5) / 6)
    t = np.sqrt(nodes)
    values = math.sqrt(2) * np.sin(math.pi / 4 * t) / t
    coefficients = np.linalg.solve(np.vander(nodes, increasing=True), values)
    return tuple(coefficients * 2.0 ** (-63 * (2 * np.arange(6) + 1)))


_COEFFICIENTS = _polynomial()


def position(key: Any) -> tuple[tf.Tensor, tf.Tensor]:
    """Where Philox starts for a key: the Philox key, uint64 [1], and counter, uint64 [2]."""
    return tuple(tf.raw_ops.StatelessRandomGetKeyCounter(seed=key))


def normal(key: Any, size: int) -> tf.Tensor:
    """Independent standard normal variables, float64 [size]; `key`: int64 [2]."""
    return normal_from(position(key), size)


@tf.autograph.experimental.do_not_convert
def normal_from(start: Any, size: int, first: Any = 0) -> tf.Tensor:
    """The variables that `normal` draws, from number `first` on, float64 [size].

    Args:
      start: `position` of the key.
      size: number of variables.
      first: integer, a multiple of `BLOCK`.
    """
    blocks = -(-size // BLOCK)
    if blocks <= _CHUNK:
        return _blocks(start, first, blocks)[:size]
    width, chunks = _CHUNK * BLOCK, -(-blocks // _CHUNK)

    def chunk(number: Any) -> tf.Tensor:
        return _blocks(start, first + tf.cast(number, tf.int64) * width, _CHUNK)

    if chunks < _MANY_CHUNKS or tf.executing_eagerly():
        drawn = tf.map_fn(
            chunk,
            tf.range(chunks, dtype=tf.int64),
            fn_output_signature=tf.TensorSpec([width], tf.float64),
            parallel_iterations=None if tf.executing_eagerly() else _AT_A_TIME,
        )
    else:

        def add(number: Any, rows: Any) -> tuple[Any, tf.Tensor]:
            # Written in place within a loop of a graph.
            rows = tf.raw_ops.TensorStridedSliceUpdate(
                input=rows,
                begin=number[None],
                end=number[None] + 1,
                strides=[1],
                value=chunk(number)[None],
            )
            return number + 1, rows

        drawn = tf.while_loop(
            lambda number, _: number < chunks,
            add,
            (tf.constant(0), tf.raw_ops.Empty(shape=[chunks, width], dtype=tf.float64)),
            parallel_iterations=_AT_A_TIME,
        )[1]
    return tf.reshape(drawn, [-1])[:size]


def _blocks(start, first, blocks: int) -> tf.Tensor:
    """Whole blocks of variables from number `first` on, float64 [blocks * BLOCK]."""
    radius_words, angle_words = (
        _words(start, first // 2, blocks * _PAIRS, offset) for offset in (0, _ANGLES)
    )
    pairs = [tf.reshape(half, [blocks, _PAIRS]) for half in _pairs(radius_words, angle_words)]
    return tf.reshape(tf.concat(pairs, axis=1), [blocks * BLOCK])


def _words(start, first, size, offset) -> tf.Tensor:
    """Uniform words from number `first` on, int64 [size]; a step of Philox gives two of them."""
    philox_key, counter = start
    # The lower half of a key's counter starts at 0: no carry.
    steps = tf.cast(first // 2, tf.uint64) + tf.constant(offset, tf.uint64)
    counter += tf.stack([steps, tf.zeros([], tf.uint64)])
    return tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=[size], key=philox_key, counter=counter, alg=_PHILOX, dtype=tf.int64
    )


def _pairs(a, b):
    """The two variables of each pair, float64, from its two words, int64."""
    # u is uniform on (0, 1/2]. Half of the pairs use the logarithm of u, half that of 1 - u.
    signed = (tf.cast(a, tf.float64) + 0.5) * 2.0**-64
    u, is_far = tf.abs(signed), a < 0
    near = tf.minimum(1.0 - u, _BELOW_ONE)
    # log(1 - u) = log(v) u / (1 - v) to the last digits, where v is 1 - u rounded (Kahan).
    ratio = u / tf.where(is_far, signed, near - 1.0)
    radius = tf.sqrt(tf.math.log(tf.where(is_far, u, near)) * ratio)
    # Sine and cosine carry the factor sqrt(2) that the radius lacks.
    angle = tf.cast(b, tf.float64)
    square = angle * angle
    *others, series = _COEFFICIENTS
    for coefficient in reversed(others):
        series = series * square + coefficient
    sine = angle * series
    cosine = tf.sqrt(2.0 - sine * sine)
    # The two lowest bits of b, which rounding to float64 removed from the angle.
    bits = tf.bitwise.bitwise_and(b, 3)
    short, long = radius * sine, radius * cosine
    long = tf.where(bits < 2, long, -long)
    is_swapped = tf.cast(tf.bitwise.bitwise_and(bits, 1), tf.bool)
    return tf.where(is_swapped, long, short), tf.where(is_swapped, short, long)
