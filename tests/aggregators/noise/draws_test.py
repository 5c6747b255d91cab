"""Keys of rounds, and normal variables: distribution, resolution, and positions."""

import mpmath
import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from dpfl.aggregators.noise import draws
from tests import redrawn

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
    ends = [-(2**63), -1, 0, 1, 2**63 - 1]
    a[1000:1025], b[1000:1025] = np.repeat(ends, 5), ends * 5
    x, y = (part.numpy() for part in draws._pairs(tf.constant(a), tf.constant(b)))
    expected = np.array([_reference(int(i), int(j)) for i, j in zip(a, b, strict=True)])
    # Relative to each number, however small: a word of 64 bits loses 11 in float64.
    np.testing.assert_allclose(np.stack([x, y], axis=1), expected, rtol=1e-12)


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


def _flipped(root, word: int, bit: int):
    """A root key with another value of one bit."""
    flipped = root.copy()
    flipped[word] ^= np.uint64(1 << bit).astype(np.int64)
    return flipped


def test_keys_of_other_roots_rounds_and_contexts_differ():
    root = draws.seeded_root_key(42)
    # Rounds 0 to 4096 occupy bits 0 to 12 of the second word: roots that differ there have the same
    # keys in another order.
    flips = ((0, 0), (0, 63), (1, 13), (1, 63))
    roots = [root, *(_flipped(root, *flip) for flip in flips)]
    contexts = [tf.constant(values) for values in ([], [0.0], [1.0], [1.0, 0.0])]
    of_roots = tf.function(
        lambda t: tf.stack([draws.of_round(key, t, each) for key in roots for each in contexts])
    )
    drawn = np.stack([of_roots(tf.constant(t)) for t in [*range(100), *range(4060, 4097)]])
    assert len(np.unique(drawn.reshape(-1, 2), axis=0)) == 137 * 5 * 4
    # Every bit of the root counts.
    every = [_flipped(root, word, bit) for word in (0, 1) for bit in range(64)]
    of_root = tf.function(lambda key: draws.of_round(key, 7, tf.constant([1.0])))
    assert len({tuple(of_root(tf.constant(key)).numpy()) for key in (root, *every)}) == 129
    # And every bit of every tensor, and which tensor has it.
    values = np.zeros(6, np.int64)
    flips = [_flipped(values, word, bit) for word in range(6) for bit in range(0, 64, 7)]
    of_context = tf.function(lambda one, other: draws.of_round(root, 7, (one, other)))
    flipped = [(tf.constant(flip[:2]), tf.constant(flip[2:])) for flip in (values, *flips)]
    assert len({tuple(of_context(*each).numpy()) for each in flipped}) == 61


@pytest.mark.parametrize(
    'round_index, context, key',
    [
        (0, [0.0], (955805964784686037, 581029785728690087)),
        (0, [1.0, 2.0], (5408029683882287882, 1220361802410044607)),
        (1, [0.0], (-896668836452782799, -8075025086177857487)),
        (4096, [0.0], (-4750703530095107569, -8945699695426521331)),
    ],
)
def test_keys_stay_those_of_earlier_versions(round_index, context, key):
    # A run that began with an earlier version continues with the same noise.
    context = tf.constant(context, tf.float64)
    drawn = draws.of_round(draws.seeded_root_key(42), round_index, (context, context[:1]))
    assert tuple(drawn.numpy()) == key


def test_the_streams_of_a_run_have_unrelated_keys():
    streams = ('noise', 'clipped count', 'rotation')
    roots = {tuple(draws.seeded_root_key(seed, name)) for seed in range(300) for name in streams}
    assert len(roots) == 900
    source = draws.root_key_source(None, 'noise')
    assert len({tuple(source().numpy()) for _ in range(20)}) == 20
    source = draws.root_key_source(7, 'rotation')
    assert {tuple(source().numpy()) for _ in range(3)} == {
        tuple(draws.seeded_root_key(7, 'rotation'))
    }


def test_streams_of_neighbouring_seeds_do_not_overlap():
    """Nor those of rounds, and of coordinates of both types."""
    specs = [tf.TensorSpec([100], dtype) for dtype in (tf.float32, tf.float64)]
    roots = [draws.seeded_root_key(seed) for seed in (42, 43)]
    keys = [draws.of_round(root, t, tf.zeros([1])) for root in roots for t in range(5)]
    assert len(np.unique([redrawn.of_key(key, specs) for key in keys])) == 2 * 5 * 2 * 100


def test_keys_come_from_the_operating_system_at_every_execution():
    # TensorFlow's own generators are those of the process: a seed, or a fork, repeats them.
    in_graph = tf.function(draws.fresh_root_key)
    drawn = []
    for _ in range(8):
        tf.random.set_seed(1)
        drawn += [tuple(draws.fresh_root_key().numpy()), tuple(in_graph().numpy())]
    assert len(set(drawn)) == 16
    bits = np.unpackbits(np.array(drawn).view(np.uint8))
    # 2,048 bits, nearly fair coins: 5 standard deviations, one failure in 10^6 runs.
    assert abs(bits.mean() - 0.5) < 5 * 0.5 / np.sqrt(bits.size)
