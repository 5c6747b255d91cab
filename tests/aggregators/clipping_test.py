"""Clipping: updates as a whole and per layer, at every scale."""

import numpy as np
import pytest
import tensorflow as tf

from dpfl.aggregators import clipping
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


def _update(scales, seed=0):
    rng = np.random.default_rng(seed)
    return [tf.constant(scale * rng.normal(size=(4, 2)), tf.float32) for scale in scales]


@pytest.mark.parametrize('shares', [(3.0, 4.0), (1.0, 0.0), (1e-3, 7.0)])
def test_shares_of_the_norm_make_up_the_whole(shares):
    clipped = clipping.PerLayer(shares)(_update([50.0, 70.0]), tf.constant(2.0))
    expected = 2.0 * np.array(shares) / np.hypot(*shares)
    np.testing.assert_allclose([rounds.norm(leaf) for leaf in clipped], expected, rtol=3e-5)
    assert 2.0 * (1 - 3e-5) <= rounds.norm(clipped) <= 2.0


def test_the_smallest_clip_norm_holds():
    norm = clipping.SMALLEST_NORM
    for scale in (1e-13, 1e-12, 1e-9, 1.0):
        update = tf.constant(scale * np.random.default_rng(0).normal(size=100_000), tf.float32)
        assert rounds.norm(clipping.clip_flat(update, tf.constant(norm))) <= norm
