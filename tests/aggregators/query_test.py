"""The query without TFF: clipping, keys, and use in an eager loop."""

import dp_accounting
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_privacy as tfp
from scipy import stats

from dpfl import aggregators, mechanisms
from dpfl.aggregators import clipping
from dpfl.aggregators.noise import draws
from tests import redrawn
from tests.aggregators import rounds


@pytest.mark.parametrize('scale', [1e-20, 1e-3, 1.0, 1e6, 1e15])
@pytest.mark.parametrize('size', [1, 1000, 3_000_000])
def test_no_clipped_update_is_longer_than_the_bound(scale, size):
    rng = np.random.default_rng(size)
    for values in (rng.normal(size=size), np.ones(size), np.geomspace(1, 1e-6, size)):
        update = [tf.constant(values * scale, tf.float32), tf.constant([scale], tf.float32)]
        clipped = clipping.clip_flat(update, tf.constant(0.7))
        assert rounds.norm(clipped) <= 0.7
        if rounds.norm(update) > 0.7:
            assert rounds.norm(clipped) >= 0.7 * (1 - 3e-5)


def test_short_updates_stay_as_they_are():
    update = {'a': tf.constant([0.3, -0.4]), 'b': tf.constant(0.0)}
    clipped = clipping.clip_flat(update, tf.constant(0.6))
    np.testing.assert_array_equal(clipped['a'], update['a'])


@pytest.mark.parametrize('bad', [np.nan, np.inf, -np.inf, 1e30])
def test_an_update_without_a_norm_becomes_zero(bad):
    clipped = clipping.clip_flat([tf.constant([1.0, bad]), tf.constant(2.0)], tf.constant(0.6))
    assert rounds.norm(clipped) == 0


def test_query_is_a_dp_query_for_an_eager_loop():
    plan = rounds.plan()
    query = aggregators.build_query(plan, seed=4)
    assert isinstance(query, tfp.DPQuery)
    state = query.initial_global_state()
    records = [{'w': tf.ones([3]), 'b': tf.constant(-1.0)}] * 2
    results = []
    for _ in range(plan.participation.rounds):
        params = query.derive_sample_params(state)
        sample = query.initial_sample_state(records[0])
        for record in records:
            sample = query.accumulate_record(params, sample, record)
        result, state, event = query.get_noised_result(sample, state)
        assert isinstance(event, dp_accounting.UnsupportedDpEvent)
        results.append([np.ravel(result[name]) for name in ('b', 'w')])
    results = np.array([np.concatenate(result) for result in results])
    specs = {'w': tf.TensorSpec([3], tf.float64), 'b': tf.TensorSpec([], tf.float64)}
    z = redrawn.vectors(state, specs)
    solution = np.linalg.solve(plan.mechanism.strategy_matrix(), z) * plan.stddev
    clipped = 0.25 * np.array([-1, 1, 1, 1])
    np.testing.assert_allclose(results, (2 * clipped + solution) / 2, atol=1e-5)


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


def test_coordinates_of_both_types_have_noise_of_their_own():
    specs = [tf.TensorSpec([50], dtype) for dtype in (tf.float32, tf.float64)]
    one, other = redrawn.of_key(np.array([3, 4]), specs)
    assert not np.isin(one, other).any()


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


def test_keys_from_content_are_those_of_its_bits():
    key = draws.seeded_root_key(1)
    vectors = [[1.0, 2.0], [1.0, 2.0], [2.0, 1.0], [1.0, np.nextafter(2.0, 3.0)]]
    drawn = [
        tuple(draws.derive_from_content(key, tf.constant(v, tf.float64)).numpy()) for v in vectors
    ]
    assert drawn[0] == drawn[1]
    assert len(set(drawn)) == 3


def test_streams_of_neighbouring_seeds_do_not_overlap():
    specs = tf.TensorSpec([200])
    streams = [
        np.concatenate(
            [
                redrawn.of_key(draws.of_round(draws.seeded_root_key(seed), t, tf.zeros([1])), specs)
                for t in range(5)
            ]
        )
        for seed in (42, 43)
    ]
    assert not np.isin(streams[0], streams[1]).any()


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


@pytest.mark.parametrize('factor, accepted', [(1.0, True), (2 / 3, False), (3 / 2, False)])
def test_noise_has_the_planned_standard_deviation(factor, accepted):
    # One draw of 20,000 coordinates with a fixed seed: no flakiness.
    plan = rounds.plan(mechanisms.Identity(6))
    query = aggregators.build_query(plan, seed=11)
    result, _, _ = query.get_noised_result(tf.zeros([20_000]), query.initial_global_state())
    expected = plan.stddev / plan.clients_per_round
    p_value = stats.kstest(result.numpy() / (factor * expected), 'norm').pvalue
    assert (p_value > 1e-3) == accepted
