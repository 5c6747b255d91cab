"""Clipping per layer, and clip norms that float32 cannot measure."""

import numpy as np
import pytest
import tensorflow as tf

from dpfl import Participation, accounting, aggregators, mechanisms
from dpfl.aggregators import clipping


def _norm(tensors) -> float:
    leaves = [np.asarray(leaf, np.float64) for leaf in tf.nest.flatten(tensors)]
    return float(np.sqrt(sum((leaf**2).sum() for leaf in leaves)))


def _update(scales, seed=0):
    rng = np.random.default_rng(seed)
    return [tf.constant(scale * rng.normal(size=(4, 2)), tf.float32) for scale in scales]


def test_equal_shares_of_the_norm():
    # [McMahan18]: S_j = S / sqrt(m).
    update = _update([5.0, 0.01, 100.0])
    clipped = aggregators.PerLayer()(update, tf.constant(0.9))
    bound = 0.9 / np.sqrt(3)
    for before, after in zip(update, clipped, strict=True):
        expected = before * min(1, bound / _norm(before))
        np.testing.assert_allclose(after, expected, rtol=3e-5)
    assert _norm(clipped) <= 0.9


@pytest.mark.parametrize('shares', [(3.0, 4.0), (1.0, 0.0), (1e-3, 7.0)])
def test_shares_of_the_norm_make_up_the_whole(shares):
    clipped = clipping.PerLayer(shares)(_update([50.0, 70.0]), tf.constant(2.0))
    expected = 2.0 * np.array(shares) / np.hypot(*shares)
    np.testing.assert_allclose([_norm(leaf) for leaf in clipped], expected, rtol=3e-5)
    assert 2.0 * (1 - 3e-5) <= _norm(clipped) <= 2.0


def test_the_structure_of_the_update_stays():
    update = {'a': tf.ones([3]), 'b': (tf.ones([]), tf.ones([2], tf.float64))}
    clipped = clipping.PerLayer()(update, tf.constant(1.0))
    tf.nest.assert_same_structure(clipped, update)
    assert clipped['b'][1].dtype == tf.float64


@pytest.mark.parametrize('bad', [np.nan, np.inf, 1e30])
def test_one_bad_tensor_zeroes_the_update(bad):
    update = [tf.constant([0.1]), tf.constant([bad, 1.0])]
    assert _norm(clipping.PerLayer()(update, tf.constant(1.0))) == 0


def test_a_query_that_clips_per_layer_has_the_same_bound():
    plan = accounting.PrivacyPlan(
        mechanism=mechanisms.Identity(2),
        participation=Participation(2),
        clip_norm=0.3,
        noise_multiplier=0.0,
        clients_per_round=1,
    )
    update = _update([5.0, 1e-4, 2.0])
    specs = tf.nest.map_structure(tf.TensorSpec.from_tensor, update)
    query = aggregators.build_query(plan, record_specs=specs, clip=aggregators.PerLayer())
    state = query.initial_global_state()
    record = query.preprocess_record(query.derive_sample_params(state), update)
    result, _, _ = query.get_noised_result(record, state)
    lengths = [_norm(leaf) for leaf in result]
    share = 0.3 / np.sqrt(3)
    np.testing.assert_allclose(lengths, [share, _norm(update[1]), share], rtol=3e-5)


@pytest.mark.parametrize(
    'shares, message',
    [
        ((1.0, -1.0), 'must be numbers >= 0, and not all 0'),
        ((0.0, 0.0), 'must be numbers >= 0, and not all 0'),
        ((np.nan, 1.0), 'must be a list of finite numbers'),
    ],
)
def test_bad_shares_are_named(shares, message):
    with pytest.raises(ValueError, match=message):
        clipping.PerLayer(shares)


def test_another_number_of_tensors_is_refused():
    with pytest.raises(ValueError, match='must be 3 numbers, one per tensor'):
        clipping.PerLayer((1.0, 1.0))(_update([1, 1, 1]), tf.constant(1.0))


@pytest.mark.parametrize('clip_norm', [1e-25, 1e-11, 1e16])
def test_clip_norms_that_float32_cannot_measure_are_refused(clip_norm):
    # Squares of entries near 1e-25 underflow: the update would pass unclipped, far above the bound.
    plan = accounting.PrivacyPlan(
        mechanism=mechanisms.Identity(2),
        participation=Participation(2),
        clip_norm=clip_norm,
        noise_multiplier=1.0,
        clients_per_round=1,
    )
    with pytest.raises(ValueError, match='clip_norm=.*: must be a finite number >= 1e-10 and <='):
        aggregators.build_query(plan)


def test_the_smallest_clip_norm_holds():
    norm = clipping.SMALLEST_NORM
    for scale in (1e-13, 1e-12, 1e-9, 1.0):
        update = tf.constant(scale * np.random.default_rng(0).normal(size=100_000), tf.float32)
        assert _norm(clipping.clip_flat(update, tf.constant(norm))) <= norm
