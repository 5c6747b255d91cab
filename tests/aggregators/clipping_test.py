"""Clipping per layer, and at the smallest clip norm."""

import numpy as np
import pytest
import tensorflow as tf

from dpfl.aggregators import clipping
from tests.aggregators import rounds


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
