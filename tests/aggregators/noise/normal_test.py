"""Normal variables: distribution, tails, resolution, and positions."""

import math

import mpmath
import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from dpfl.aggregators.noise import draws

_KEY = draws.seeded_root_key(3)


def _reference(a: int, b: int) -> tuple[float, float]:
    """The variables of a pair of words, with 50 digits."""
    with mpmath.workdps(50):
        u = (abs(mpmath.mpf(a) + 0.5)) / 2**64
        radius = mpmath.sqrt(-2 * mpmath.log(u if a < 0 else 1 - u))
        angle = mpmath.pi / 4 * b / mpmath.mpf(2) ** 63
        short, long = radius * mpmath.sin(angle), radius * mpmath.cos(angle)
        long = long if b % 4 < 2 else -long
        return (float(long), float(short)) if b % 2 else (float(short), float(long))


def test_pairs_are_those_of_their_words():
    rng = np.random.default_rng(0)
    a = rng.integers(-(2**63), 2**63 - 1, size=3000)
    b = rng.integers(-(2**63), 2**63 - 1, size=3000)
    # Towards both ends of the radius, and of the angle.
    a[:500] >>= rng.integers(0, 63, size=500)
    a[500:1000] = 2**63 - 1 - np.abs(a[:500])
    b[:500] >>= rng.integers(0, 63, size=500)
    x, y = (part.numpy() for part in draws._pairs(tf.constant(a), tf.constant(b)))
    expected = np.array([_reference(int(i), int(j)) for i, j in zip(a, b, strict=True)])
    # Relative to each number, however small: a word of 64 bits loses 11 in float64.
    np.testing.assert_allclose(np.stack([x, y], axis=1), expected, rtol=1e-12)


def test_extreme_words_give_finite_numbers_and_the_ends():
    ends = np.array([-(2**63), -1, 0, 1, 2**63 - 1])
    a, b = (grid.ravel() for grid in np.meshgrid(ends, ends))
    x, y = (part.numpy() for part in draws._pairs(tf.constant(a), tf.constant(b)))
    radius = np.hypot(x, y)
    assert np.isfinite(radius).all()
    # The largest radius: u = 2^-65. Beyond 9 standard deviations, and no other word gives it.
    assert radius[a == -1] == pytest.approx(math.sqrt(2 * 65 * math.log(2)))
    assert radius.max() > 9.49 and (radius[a != -1] < 9).all()
    assert (radius[a == 0] > 0).all()


@pytest.mark.standard
def test_distribution():
    drawn = tf.function(lambda: draws.normal(_KEY, 2_000_000))().numpy()
    assert drawn.dtype == np.float64
    assert stats.kstest(drawn, 'norm').pvalue > 1e-3
    x, y = (drawn[: 976 * draws.BLOCK].reshape(-1, 2, draws.BLOCK // 2)[:, i] for i in (0, 1))
    directions = np.arctan2(y, x).ravel() / (2 * np.pi) + 0.5
    assert stats.kstest(directions, 'uniform').pvalue > 1e-3
    assert stats.kstest(np.square(np.hypot(x, y)).ravel(), 'chi2', args=(2,)).pvalue > 1e-3
    # All octants are equally likely, and the signs of a pair are independent.
    octants = np.bincount((directions * 8).astype(int), minlength=8)
    assert stats.chisquare(octants).pvalue > 1e-3


def test_tails_have_their_weight():
    # Words whose radius is large, drawn as they are: a uniform part of the far words.
    rng = np.random.default_rng(1)
    far = -rng.integers(1, 2**40, size=100_000)
    b = rng.integers(-(2**63), 2**63 - 1, size=100_000)
    x, y = (part.numpy() for part in draws._pairs(tf.constant(far), tf.constant(b)))
    excess = np.square(np.hypot(x, y)) / 2 - 24 * math.log(2)
    assert stats.kstest(excess, 'expon').pvalue > 1e-3


def test_resolution_is_that_of_float64():
    drawn = draws.normal(_KEY, 200_000).numpy()
    # In float32, or from 23 bits, all of these would be 0.
    assert (drawn != drawn.astype(np.float32)).mean() > 0.999
    u = np.exp(-np.square(np.hypot(*drawn[: 64 * 2048].reshape(-1, 2, 1024).swapaxes(0, 1))) / 2)
    distance = np.abs(u * 2**23 - np.rint(u * 2**23))
    assert stats.kstest(2 * distance.ravel(), 'uniform').pvalue > 1e-3


@pytest.mark.parametrize('size', [0, 1, 2047, 2049, 40_000, 100_001])
def test_parts_are_parts_of_the_whole_in_graphs_and_outside(size):
    key = draws.derive(_KEY, 1)
    whole = draws.normal(key, size).numpy()
    np.testing.assert_array_equal(tf.function(lambda: draws.normal(key, size))().numpy(), whole)
    for first in range(0, size, 30 * draws.BLOCK):
        part = draws.normal_from(draws.position(key), min(3000, size - first), first).numpy()
        np.testing.assert_array_equal(part, whole[first : first + 3000])


def test_words_of_radii_and_angles_never_meet():
    start = draws.position(_KEY)
    radii, angles = (draws._words(start, 0, 10_000, offset) for offset in (0, draws._ANGLES))
    assert not np.isin(radii, angles).any()


@pytest.mark.parametrize('size', [8 * draws.BLOCK, 9 * draws.BLOCK - 5])
def test_many_chunks_are_written_into_one_tensor_with_the_same_bits(size, monkeypatch):
    expected = draws.normal(_KEY, size)
    monkeypatch.setattr(draws, '_CHUNK', 2)
    monkeypatch.setattr(draws, '_MANY_CHUNKS', 4)
    drawn = tf.function(lambda: draws.normal(_KEY, size)).get_concrete_function()
    np.testing.assert_array_equal(drawn(), expected)
    loop = next(graph for name, graph in _functions(drawn) if 'body' in name)
    assert 'TensorStridedSliceUpdate' in [node.op for node in loop]


def _functions(function):
    library = function.graph.as_graph_def().library.function
    return [(each.signature.name, each.node_def) for each in library]
