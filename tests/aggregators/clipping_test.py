"""Clipping per layer, and at the smallest clip norm."""

import numpy as np
import pytest
import tensorflow as tf

from dpfl import aggregators, mechanisms
from dpfl.aggregators import clipping
from tests.aggregators import rounds


def _update(scales, seed=0):
    rng = np.random.default_rng(seed)
    return [tf.constant(scale * rng.normal(size=(4, 2)), tf.float32) for scale in scales]


def test_equal_shares_of_the_norm():
    # [McMahan18]: S_j = S / sqrt(m).
    update = _update([5.0, 0.01, 100.0])
    clipped = aggregators.PerLayer()(update, tf.constant(0.9))
    bound = 0.9 / np.sqrt(3)
    for before, after in zip(update, clipped, strict=True):
        expected = before * min(1, bound / rounds.norm(before))
        np.testing.assert_allclose(after, expected, rtol=3e-5)
    assert rounds.norm(clipped) <= 0.9


@pytest.mark.parametrize('shares', [(3.0, 4.0), (1.0, 0.0), (1e-3, 7.0)])
def test_shares_of_the_norm_make_up_the_whole(shares):
    clipped = clipping.PerLayer(shares)(_update([50.0, 70.0]), tf.constant(2.0))
    expected = 2.0 * np.array(shares) / np.hypot(*shares)
    np.testing.assert_allclose([rounds.norm(leaf) for leaf in clipped], expected, rtol=3e-5)
    assert 2.0 * (1 - 3e-5) <= rounds.norm(clipped) <= 2.0


def test_the_structure_of_the_update_stays():
    update = {'a': tf.ones([3]), 'b': (tf.ones([]), tf.ones([2], tf.float64))}
    clipped = clipping.PerLayer()(update, tf.constant(1.0))
    tf.nest.assert_same_structure(clipped, update)
    assert clipped['b'][1].dtype == tf.float64


@pytest.mark.parametrize('bad', [np.nan, np.inf, 1e30])
def test_one_bad_tensor_zeroes_the_update(bad):
    update = [tf.constant([0.1]), tf.constant([bad, 1.0])]
    assert rounds.norm(clipping.PerLayer()(update, tf.constant(1.0))) == 0


def test_a_query_that_clips_per_layer_has_the_same_bound():
    plan = rounds.plan(mechanisms.Identity(2), 1, clip_norm=0.3, noise_multiplier=0.0)
    update = _update([5.0, 1e-4, 2.0])
    specs = tf.nest.map_structure(tf.TensorSpec.from_tensor, update)
    query = aggregators.build_query(plan, record_specs=specs, clip=aggregators.PerLayer())
    state = query.initial_global_state()
    record = query.preprocess_record(query.derive_sample_params(state), update)
    result, _, _ = query.get_noised_result(record, state)
    lengths = [rounds.norm(leaf) for leaf in result]
    share = 0.3 / np.sqrt(3)
    np.testing.assert_allclose(lengths, [share, rounds.norm(update[1]), share], rtol=3e-5)


def test_the_smallest_clip_norm_holds():
    norm = clipping.SMALLEST_NORM
    for scale in (1e-13, 1e-12, 1e-9, 1.0):
        update = tf.constant(scale * np.random.default_rng(0).normal(size=100_000), tf.float32)
        assert rounds.norm(clipping.clip_flat(update, tf.constant(norm))) <= norm
