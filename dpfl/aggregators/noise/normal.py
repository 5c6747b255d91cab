"""Standard normal variables at the full resolution of float64, as TensorFlow operations.

TensorFlow's own normal variables come from uniform numbers of 23 bits: squares of radii of their
pairs lie on a lattice that a float32 release shows, and none exceeds 5.68. Here each pair comes
from two words of 64 bits of Philox by the method of Box and Muller (1958), with

- a radius `sqrt(-2 log u)` whose u has its full relative precision at both ends: the largest
  radius is 9.49, which one pair in 2^64 has, and radii near 0 have no coarser steps than others;
- an angle within an octant from 62 bits, by a polynomial (its error is below 1e-14) and
  `cos = sqrt(1 - sin^2)`, which loses no digits there; two further bits choose octant and sign.

So a variable is a function of words with steps of 2^-63. Only variables below 2^-39, two in 10^12,
are so small that float32 could tell such steps from others; `noise='hardened'` has none.
"""

import math

import numpy as np
import tensorflow as tf

_PHILOX = 1  # Of TensorFlow's raw operations.
# Variables of a block: first those of one half of its pairs, then those of the other.
BLOCK = 2048
_PAIRS = BLOCK // 2
# Blocks that are computed together, so that what they need stays in the cache of a core; and how
# many such chunks at a time. Neither changes a bit.
_CHUNK, _AT_A_TIME = 16, 4
# The words of angles begin where no row of radii ends.
_ANGLES = 2**63
_BELOW_ONE = 1 - 2.0**-53


def _polynomial() -> tuple[float, ...]:
    """Coefficients of p with `sqrt(2) sin(pi/4 b / 2^63) = b p(b^2)`, lowest power first.

    Interpolation at the nodes of Chebyshev in b^2, of degree 11 in b.
    """
    nodes = 0.5 + 0.5 * np.cos(np.pi * (np.arange(6) + 0.5) / 6)
    t = np.sqrt(nodes)
    values = math.sqrt(2) * np.sin(math.pi / 4 * t) / t
    coefficients = np.linalg.solve(np.vander(nodes, increasing=True), values)
    return tuple(coefficients * 2.0 ** (-63 * (2 * np.arange(6) + 1)))


_COEFFICIENTS = _polynomial()


def position(key) -> tuple[tf.Tensor, tf.Tensor]:
    """Where Philox starts for a key: its own key, uint64 [1], and its counter, uint64 [2]."""
    return tuple(tf.raw_ops.StatelessRandomGetKeyCounter(seed=key))


def normal(key, size: int) -> tf.Tensor:
    """Independent standard normal variables, float64 [size]; `key`: int64 [2]."""
    return normal_from(position(key), size)


def normal_from(start, size: int, first=0) -> tf.Tensor:
    """Number `first` and those after it of the variables that `normal` draws, float64 [size].

    Args:
      start: what `position` gave for the key.
      size: how many.
      first: integer, a multiple of `BLOCK`.
    """
    blocks = -(-size // BLOCK)
    if blocks <= _CHUNK:
        return _blocks(start, first, blocks)[:size]
    chunks = tf.map_fn(
        lambda number: _blocks(start, first + number * (_CHUNK * BLOCK), _CHUNK),
        tf.range(-(-blocks // _CHUNK), dtype=tf.int64),
        fn_output_signature=tf.TensorSpec([_CHUNK * BLOCK], tf.float64),
        parallel_iterations=None if tf.executing_eagerly() else _AT_A_TIME,
    )
    return tf.reshape(chunks, [-1])[:size]


def _blocks(start, first, blocks: int) -> tf.Tensor:
    """Whole blocks of variables from number `first` on, float64 [blocks * BLOCK]."""
    radius_words, angle_words = (
        _words(start, first // 2, blocks * _PAIRS, offset) for offset in (0, _ANGLES)
    )
    pairs = [tf.reshape(half, [blocks, _PAIRS]) for half in _pairs(radius_words, angle_words)]
    return tf.reshape(tf.concat(pairs, axis=1), [blocks * BLOCK])


def _words(start, first, size, offset) -> tf.Tensor:
    """Uniform words, int64 [size], from number `first` on; a step of Philox gives two of them."""
    philox_key, counter = start
    # The counter of a key starts at 0 in its lower half: no carry.
    steps = tf.cast(first // 2, tf.uint64) + tf.constant(offset, tf.uint64)
    counter += tf.stack([steps, tf.zeros([], tf.uint64)])
    return tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=[size], key=philox_key, counter=counter, alg=_PHILOX, dtype=tf.int64
    )


def _pairs(a, b):
    """The two variables of each pair, float64, from its words, int64."""
    # u is uniform on (0, 1/2]; half of the pairs have the logarithm of u, half that of 1 - u.
    signed = (tf.cast(a, tf.float64) + 0.5) * 2.0**-64
    u, is_far = tf.abs(signed), a < 0
    near = tf.minimum(1.0 - u, _BELOW_ONE)
    # log(1 - u) = log(v) u / (1 - v) to the last digits, where v is 1 - u rounded (Kahan).
    ratio = u / tf.where(is_far, signed, near - 1.0)
    radius = tf.sqrt(tf.math.log(tf.where(is_far, u, near)) * ratio)
    # Times sqrt(2), like the cosine: the radius has none.
    angle = tf.cast(b, tf.float64)
    square = angle * angle
    *others, series = _COEFFICIENTS
    for coefficient in reversed(others):
        series = series * square + coefficient
    sine = angle * series
    cosine = tf.sqrt(2.0 - sine * sine)
    # The two lowest bits of b: float64 has rounded them off the angle.
    bits = tf.bitwise.bitwise_and(b, 3)
    short, long = radius * sine, radius * cosine
    long = tf.where(bits < 2, long, -long)
    is_swapped = tf.cast(tf.bitwise.bitwise_and(bits, 1), tf.bool)
    return tf.where(is_swapped, long, short), tf.where(is_swapped, short, long)
