"""Discretized updates ([Xu23], algorithm 2) without TFF: bounds, bias, sums, and the rotation."""

import math

import numpy as np
import pytest
import tensorflow as tf
from scipy import linalg

from dpfl import aggregators
from dpfl.aggregators import discretized
from dpfl.aggregators.noise import draws
from dpfl.mechanisms.discretization import Discretization
from tests.aggregators import rounds

_SIZE = 5


def _plan(settings=None, clients=4, **changes):
    settings = settings or Discretization(scale=20.0, dimension=_SIZE, clip_norm=0.5)
    fields = dict(clip_norm=settings.clip_norm, noise_multiplier=0.0, discretization=settings)
    return rounds.plan(clients=clients, **{**fields, **changes})


def _query(plan, seed=3):
    specs = tf.TensorSpec([plan.discretization.dimension])
    return aggregators.build_query(plan, seed, record_specs=specs)


def _sample(query, state, updates):
    return rounds.total(query, state, np.float32(updates), None)


def _updates(count, size, length, seed=0):
    rng = np.random.default_rng(seed)
    updates = rng.normal(size=(count, size))
    return updates * length / np.linalg.norm(updates, axis=1, keepdims=True)


@pytest.mark.parametrize(
    'settings',
    [
        Discretization(3.0, 5, 0.5),
        Discretization(0.7, 33, 2.0, alpha=0.999),
        Discretization(0.1, 12, 1.0, alpha=1e-9),
    ],
    ids=repr,
)
def test_no_client_of_2000_exceeds_the_norm_that_the_plan_counts(settings):
    updates = _updates(2000, settings.dimension, 3 * settings.clip_norm)
    query = _query(_plan(settings, clients=2000))
    params = query.derive_sample_params(query.initial_global_state())
    dtype = discretized.integer_type(settings, 2000)
    sent = tf.function(
        lambda updates: tf.map_fn(
            lambda update: query.preprocess_record(params, update).update,
            updates,
            fn_output_signature=dtype,
        )
    )(tf.constant(updates, tf.float32)).numpy()
    assert sent.min() >= 0 and sent.max() <= 2 * settings.linf_bound
    norms = np.linalg.norm(sent - settings.linf_bound, axis=1) / settings.scale
    assert norms.max() <= settings.inflated_norm
    assert norms.max() > settings.clip_norm  # The rounding did inflate some.


def test_rounding_to_float32_moves_no_client_beyond_the_guarantee():
    rng = np.random.default_rng(1)
    worst = 0.0
    for scale, clip_norm, noise_multiplier in np.exp(rng.uniform(-2, 2, (40, 3))):
        settings = Discretization(scale, 33, clip_norm)
        query = _query(_plan(settings, noise_multiplier=noise_multiplier))
        state = query.initial_global_state()
        integers = math.sqrt(discretized.squared_limit(settings))
        stddev = float(query.derive_metrics(state)['noise_stddev'])
        moved = integers / float(query.derive_sample_params(state).scale) / stddev
        worst = max(worst, moved / (settings.inflated_norm / clip_norm / noise_multiplier))
    assert 1 - 1e-6 < worst < 1 - discretized._MARGIN / 2


def test_rounding_is_unbiased():
    # 4 standard errors for each of 16 coordinates: 1 seed in 1,000 fails; this one is fixed.
    settings = Discretization(4.0, 16, 1.0)
    vector = tf.constant(_updates(1, 16, 4.0 * 0.9)[0], tf.float32)
    trials, root = 8000, draws.seeded_root_key(2)
    rounded = tf.function(
        lambda: tf.map_fn(
            lambda t: discretized.round_conditionally(vector, draws.derive(root, t), settings),
            tf.range(trials),
            fn_output_signature=tf.float32,
        )
    )().numpy()
    errors = rounded.mean(axis=0) - vector.numpy()
    assert (np.abs(errors) <= 4 * rounded.std(axis=0) / math.sqrt(trials)).all()
    assert set(np.unique(np.abs(rounded - vector.numpy()) < 1)) == {True}


def _tight(limit):
    """Settings in units of integers under which few roundings are accepted."""
    return type('Tight', (Discretization,), {'inflated_norm': limit})(1.0, 64, 9.0)


def test_when_no_rounding_is_accepted_the_norm_does_not_grow():
    vector = tf.constant([0.9, -1.8, 2.7, 0.2])
    rounded = discretized.round_conditionally(vector, draws.seeded_root_key(0), _tight(1e-3))
    np.testing.assert_array_equal(rounded, [0, -1, 2, 0])


def test_rejected_roundings_are_drawn_again():
    # 0.5 in 64 coordinates: the squared norm is binomial around 32, the limit in its lower tail.
    vector, settings = tf.fill([64], 0.5), _tight(math.sqrt(28.5))
    keys = [draws.derive(draws.seeded_root_key(0), t) for t in range(16)]
    lengths = [np.sum(discretized.round_conditionally(vector, key, settings)) for key in keys]
    assert max(lengths) == 28 and min(lengths) > 10


@pytest.mark.parametrize('sign', [1, -1])
@pytest.mark.parametrize('bits', [12, 31])
def test_the_modulus_holds_the_most_extreme_cohort(bits, sign):
    # Two coordinates, and updates that the rotation sends to one of them with the whole norm.
    settings = Discretization.for_bits(bits, 50, 2, 0.5)
    plan = _plan(settings, clients=50)
    query = _query(plan)
    state = query.initial_global_state()
    params = query.derive_sample_params(state)
    diagonal = discretized.signs(params.sign_key, 2).numpy()
    update = sign * diagonal * 10.0
    # All clients send the same, so they round alike.
    one = _sample(query, state, [update])
    sample = tf.nest.map_structure(lambda leaf: 50 * leaf, one)
    modulus = settings.modulus(50)
    extreme = 2 * settings.linf_bound * 50 if sign > 0 else 0
    assert abs(int(sample.update[0]) - extreme) <= 50 * (1 + 2e-5 * settings.linf_bound)
    assert 0 <= int(tf.reduce_min(sample.update)) <= int(tf.reduce_max(sample.update)) < modulus
    result, _, _ = query.get_noised_result(sample, state)
    alone = (one.update - settings.linf_bound).numpy() / settings.scale
    # The sum is 50 times one of them, without any wrap-around.
    np.testing.assert_allclose(np.linalg.norm(result), np.linalg.norm(alone), rtol=1e-5)


def test_sums_are_those_of_integers():
    plan = _plan(clients=7)
    query = _query(plan)
    state = query.initial_global_state()
    updates = _updates(7, _SIZE, 0.6)
    params = query.derive_sample_params(state)
    sent = [query.preprocess_record(params, tf.constant(u, tf.float32)) for u in updates]
    total = sum(np.array(each.update, object) for each in sent)
    result, _, _ = query.get_noised_result(_sample(query, state, updates), state)
    sign = discretized.signs(params.sign_key, _SIZE)
    unshifted = (total - 7 * plan.discretization.linf_bound).astype(np.float64)
    matrix_back = discretized.rotate_back(tf.constant(unshifted), tf.cast(sign, tf.float64)).numpy()
    expected = matrix_back / plan.discretization.scale / 7
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-7)


def test_a_cohort_beyond_the_planned_one_is_refused():
    query = _query(_plan(clients=4))
    state = query.initial_global_state()
    sample = _sample(query, state, _updates(1, _SIZE, 0.5))
    query.get_noised_result(sample._replace(clients=tf.constant(4)), state)
    with pytest.raises(tf.errors.InvalidArgumentError, match='larger than the planned one'):
        query.get_noised_result(sample._replace(clients=tf.constant(5)), state)


def test_clients_round_by_numbers_of_their_own():
    # Updates that differ in one bit round independently of each other.
    query = _query(_plan(Discretization(2.0, 4096, 1.0)))
    params = query.derive_sample_params(query.initial_global_state())
    update = _updates(1, 4096, 0.5)[0].astype(np.float32)
    other = update.copy()
    other[0] = np.nextafter(other[0], np.float32(1))
    sent = [query.preprocess_record(params, tf.constant(u)).update for u in (update, other)]
    assert (sent[0] != sent[1]).numpy().mean() > 0.001


def test_keys_that_clients_see_are_those_of_the_round_and_none_of_the_noise():
    query, root = _query(_plan()), draws.seeded_root_key(3, 'rotation')
    assert (root != draws.seeded_root_key(3)).any()
    state = query.initial_global_state()
    for t in range(2):
        params, round_key = query.derive_sample_params(state), draws.derive(root, t)
        np.testing.assert_array_equal(params.sign_key, draws.derive(round_key, 0))
        np.testing.assert_array_equal(params.rounding_key, draws.derive(round_key, 1))
        _, state, _ = query.get_noised_result(_sample(query, state, []), state)


def test_clipped_coordinates_keep_the_direction():
    settings = Discretization(10.0, 4, 1.0)
    vector = tf.constant([30.0, -15.0, 3.0, 0.0])
    clipped = discretized.clip_linf(vector, settings).numpy()
    np.testing.assert_allclose(clipped, vector * settings.linf_bound / 30.0, rtol=1e-6)


@pytest.mark.parametrize('bits', range(12))
def test_fast_transform_is_the_product_with_the_matrix(bits):
    size = 2**bits
    vector = np.random.default_rng(bits).normal(size=size)
    expected = linalg.hadamard(size) @ vector / np.sqrt(size)
    np.testing.assert_allclose(discretized.hadamard(tf.constant(vector)), expected, atol=1e-12)
    single = discretized.hadamard(tf.constant(vector, tf.float32))
    assert single.dtype == tf.float32
    np.testing.assert_allclose(single, expected, atol=1e-5)


@pytest.mark.parametrize('size', [1, 2, 3, 5, 8, 33, 1000])
def test_rotating_back_undoes_it_and_keeps_the_norm(size):
    padded = 1 << (size - 1).bit_length() if size > 1 else 2
    vector = np.random.default_rng(size).normal(size=size).astype(np.float32)
    sign = discretized.signs(draws.seeded_root_key(1), size)
    rotated = discretized.rotate(tf.constant(vector), sign, padded)
    assert rotated.shape == [padded]
    assert np.linalg.norm(rotated) == pytest.approx(np.linalg.norm(vector), rel=1e-5)
    np.testing.assert_allclose(discretized.rotate_back(rotated, sign), vector, atol=1e-5)


def test_signs_are_even_and_differ_between_keys():
    root = draws.seeded_root_key(4)
    first, second = (discretized.signs(draws.derive(root, t), 100_000).numpy() for t in (0, 1))
    np.testing.assert_array_equal(np.abs(first), 1)
    # 5 standard errors of a mean of 100,000.
    assert abs(first.mean()) < 0.016
    assert abs((first * second).mean()) < 0.016
    assert abs((first[1:] * first[:-1]).mean()) < 0.016
    np.testing.assert_array_equal(discretized.signs(draws.derive(root, 0), 100_000), first)
