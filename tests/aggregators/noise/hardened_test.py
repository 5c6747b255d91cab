"""Hardened noise in queries: exact sums of integers, whose norm is bounded, and what is refused."""

import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from dpfl import accounting, aggregators, mechanisms
from dpfl.accounting import hardened
from dpfl.aggregators.noise import hardened_query
from tests import paths
from tests.aggregators import rounds

_SPECS = {'w': tf.TensorSpec([2, 2000]), 'b': tf.TensorSpec([3], tf.float64)}
_UNIT = 0.5 / (hardened.STDDEV / 2)


def _plan(mechanism=None, **changes):
    return rounds.plan(mechanism, **{'noise': 'hardened', **changes})


def _query(plan, specs=_SPECS, seed=3):
    return aggregators.build_query(plan, seed, record_specs=specs, supplied_noise=True)


def _updates(clients, scale=1.0):
    rng = np.random.default_rng(0)
    return [
        {
            name: tf.constant(rng.normal(size=spec.shape) * scale, spec.dtype)
            for name, spec in _SPECS.items()
        }
        for _ in range(clients)
    ]


def test_without_noise_the_release_is_the_exact_sum():
    """A row of zeros: sums of integers in any order, and the mean of what clients sent."""
    query = _query(_plan())
    state = query.initial_global_state()
    numerator = state.numerator_state
    zero = numerator.noise.past._replace(round=np.int64(0), values=np.zeros(4003, np.int64))
    state = state._replace(
        numerator_state=numerator._replace(noise=numerator.noise._replace(past=zero))
    )
    sent = rounds.sent(query, state, _updates(5))
    total = sum(sent[1:], sent[0])
    np.testing.assert_array_equal(total, sum(reversed(sent[:-1]), sent[-1]))
    exact = sum(np.asarray(one).astype(object) for one in sent)
    np.testing.assert_array_equal(np.asarray(total).astype(object), exact)
    result, _, _ = query.get_noised_result(total, state)
    np.testing.assert_array_equal(result['b'], np.asarray(total)[:3].astype(np.float64) * _UNIT / 2)
    clipped = [aggregators.clip_flat(update, 0.5) for update in _updates(5)]
    mean = sum(update['w'] for update in clipped) / 2
    np.testing.assert_allclose(result['w'], mean, atol=1e-7)


@pytest.mark.parametrize('scale', [1e-3, 1.0, 1e6, 1e30, np.inf, np.nan, 0.0])
@pytest.mark.parametrize('clip', [aggregators.clip_flat, aggregators.PerLayer(), lambda u, _: u])
def test_the_norm_of_the_integers_is_bounded_whatever_clips(scale, clip):
    """In integers of any length; also without clipping before."""
    query = hardened_query.HardenedQuery(_plan(), _SPECS, 3, clip)
    bound = int(hardened.STDDEV / _plan().noise_multiplier)
    with np.errstate(invalid='ignore'):
        updates = _updates(2, scale)
    for sent in rounds.sent(query, query.initial_global_state(), updates):
        squared = sum(int(value) ** 2 for value in np.asarray(sent).tolist())
        assert squared < bound**2
        if scale in (1.0, 1e6):
            assert squared > bound**2 * (1 - 1e-4)
        if not np.isfinite(scale) or scale == 0:
            assert squared == 0


def test_weights_scale_updates_down():
    specs = aggregators.WeightedRecord(_SPECS, tf.TensorSpec([], tf.float32))
    query = _query(_plan(estimator=accounting.Estimator(example_cap=4.0)), specs)
    (update,) = _updates(1)
    records = [aggregators.WeightedRecord(update, tf.constant(n)) for n in (1.0, 4.0, 9.0, -1.0)]
    quarter, full, more, none = (
        np.asarray(sent).astype(np.float64)
        for sent in rounds.sent(query, query.initial_global_state(), records)
    )
    np.testing.assert_array_equal(full, more)
    np.testing.assert_allclose(4 * quarter, full, atol=4)
    assert not none.any()


def test_clip_norms_of_a_schedule_scale_noise_and_updates():
    released = []
    for schedule in ((), ((2, 0.25),)):
        plan = _plan(mechanisms.Identity(4), clip_schedule=schedule)
        query = _query(plan)
        with aggregators.build_noise_ring(plan) as ring:
            rows, _ = rounds.run(query, None, [()] * 4, _SPECS, ring)
        released.append(rows)
    np.testing.assert_array_equal(released[1][:2], released[0][:2])
    np.testing.assert_array_equal(released[1][2:], released[0][2:] / 2)


def test_16_bit_updates_are_widened():
    query = _query(_plan(), tf.TensorSpec([5], tf.float16))
    with aggregators.build_noise_ring(_plan()) as ring:
        state = ring.supply(query.initial_global_state(), ())
        (sent,) = rounds.sent(query, state, [tf.ones([5], tf.float16)])
        result, _, _ = query.get_noised_result(sent, state)
    assert sent.dtype == tf.int64 and result.dtype == tf.float16


@pytest.mark.exhaustive
def test_memory_is_that_of_the_buffers():
    """BLT with 4 buffers at 2.4M coordinates: 77 MB of buffers, 19 MB for each of a few rows."""
    code = """
import resource
import numpy as np
from dpfl import mechanisms
from dpfl.aggregators.noise import hardened_ring
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
kernel = mechanisms.Blt(9, [0.999, 0.97, 0.8, 0.3], [0.02, 0.05, 0.1, 0.2]).kernel()
before = peak()
stream = hardened_ring._Stream(kernel, [0], 2_400_000, None)
for t in range(3):
    row = stream.row(np.arange(4 * (t + 1)).reshape(-1, 4), False)
assert row.shape == (2_400_000,) and row.std() > 2.0**39
stream.close()
print(peak() - before)
"""
    grown = subprocess.check_output([sys.executable, '-c', code], cwd=paths.ROOT)
    assert int(grown) < 77e6 + 3 * 19.2e6 + 40e6
