"""Sums of updates: exact in any order, and one client moves them by at most a clip norm."""

import numpy as np
import pytest
import tensorflow as tf

from dpfl import aggregators, mechanisms
from dpfl.aggregators import exact_sum
from tests import redrawn
from tests.aggregators import rounds


def _plan(clients, **changes):
    fields = dict(clip_norm=0.7, noise_multiplier=0.0)
    return rounds.plan(mechanisms.Identity(4), clients, **{**fields, **changes})


def _sum(query, records, template):
    return rounds.total(query, query.initial_global_state(), records, template)


@pytest.mark.parametrize('dtype', [tf.float16, tf.float32, tf.float64])
def test_the_order_of_clients_changes_no_bit(dtype):
    rng = np.random.default_rng(0)
    spec = tf.TensorSpec([500], dtype)
    query = aggregators.build_query(_plan(20), record_specs=spec)
    # Of very different sizes: the order of such float32 sums shows in most coordinates.
    updates = rng.normal(size=[20, 500]) * rng.lognormal(sigma=3, size=[20, 1])
    records = [tf.constant(update, dtype) for update in updates.clip(-6e4, 6e4)]
    orders = (range(20), range(19, -1, -1), rng.permutation(20))
    sums = [_sum(query, [records[i] for i in order], spec) for order in orders]
    sums.append(query.merge_sample_states(*(_sum(query, records[i::2], spec) for i in (0, 1))))
    # Keys of the noise depend on all of the bits.
    assert len({rounds.flat(each).tobytes() for each in sums}) == 1


@pytest.mark.parametrize('scale', [1e-9, 1e-3, 1.0, 1e6])
@pytest.mark.parametrize('clients', [1, 6500, 10**8])
def test_what_a_client_adds_is_a_multiple_of_the_unit_within_the_clip_norm(clients, scale):
    rng = np.random.default_rng(1)
    spec = tf.TensorSpec([4096], tf.float32)
    query = aggregators.build_query(_plan(clients, clip_norm=scale), record_specs=spec)
    norm = np.float32(scale)
    unit = float(exact_sum.unit(norm, clients))
    assert np.frexp(unit)[0] == 0.5  # A power of two.
    for update in (rng.normal(size=4096), np.ones(4096), np.geomspace(1, 1e-9, 4096)):
        sent = _sum(query, [tf.constant(scale * 5 * update, tf.float32)], spec).numpy()
        units = sent / unit  # Exactly.
        np.testing.assert_array_equal(units, np.rint(units))
        squares = sum(int(entry) ** 2 for entry in units)
        # An int and a float are compared exactly.
        assert (1 - 1e-4) * (norm / unit) ** 2 <= squares <= (norm / unit) ** 2


def test_units_leave_room_for_two_cohorts():
    for clients in (1, 2, 3, 6500, 2**20, 10**8):
        for norm in np.float32([1e-9, 0.7, 1.0, np.nextafter(np.float32(2), 1), 3e5]):
            assert 2 * clients * norm / float(exact_sum.unit(norm, clients)) <= 2**53


def test_results_are_rounded_only_after_the_noise(monkeypatch):
    redrawn.ignore_context(monkeypatch)
    plan = _plan(2, noise_multiplier=1.0, clip_norm=1.0)
    spec = tf.TensorSpec([1000])
    query = aggregators.build_query(plan, seed=1, record_specs=spec)
    state = query.initial_global_state()
    results = [
        query.get_noised_result(tf.fill([1000], tf.constant(total, tf.float64)), state)[0]
        for total in (0.0, 2.0**12)
    ]
    noise = results[0].numpy().astype(np.float64)
    moved = results[1].numpy().astype(np.float64)
    # (2^12 + noise) / 2 in float32: rounded once, so by half a unit in the last place at most.
    assert np.abs(moved - (2.0**11 + noise)).max() <= 2.0**-13 + 2.0**-22
