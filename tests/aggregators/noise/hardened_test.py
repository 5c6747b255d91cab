"""Hardened noise in queries and rings: exact sums, exact replay, bits, and what is refused."""

import multiprocessing
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from dpfl import Participation, accounting, aggregators, mechanisms
from dpfl.accounting import hardened
from dpfl.aggregators.noise import hardened_query, hardened_ring
from dpfl.mechanisms.hardened import discrete_gaussian, keystream, stream
from tests import mechanism_cases, paths, redrawn

_ROUNDS = 7
# More than one block of the ring; both types.
_SPECS = {'w': tf.TensorSpec([2, 20_000]), 'b': tf.TensorSpec([3], tf.float64)}
_SIZE = 40_003
_MECHANISMS = {
    'gaussian': mechanisms.Identity(_ROUNDS),
    'blt': mechanisms.Blt(_ROUNDS, [0.9, 0.4], [0.2, 0.3]),
    'honaker_tree': mechanisms.HonakerTree(_ROUNDS),
    'banded': mechanism_cases.FACTORIES['banded'](_ROUNDS),
    'banded_inverse': mechanisms.BandedInverse.square_root(_ROUNDS, 4),
    'restarted': mechanisms.Restarted(mechanisms.Blt(_ROUNDS, [0.9], [0.2]), (3,), _ROUNDS),
}


def _plan(mechanism=_MECHANISMS['blt'], **changes):
    fields = dict(
        mechanism=mechanism,
        participation=Participation(_ROUNDS),
        clip_norm=0.5,
        noise_multiplier=2.0,
        clients_per_round=2,
        noise='hardened',
    )
    return accounting.PrivacyPlan(**{**fields, **changes})


def _query(plan, seed=3, specs=_SPECS, **changes):
    return aggregators.build_query(plan, seed, record_specs=specs, supplied_noise=True, **changes)


def _updates(clients, scale=1.0):
    rng = np.random.default_rng(0)
    return [
        {
            name: tf.constant(rng.normal(size=spec.shape) * scale, spec.dtype)
            for name, spec in _SPECS.items()
        }
        for _ in range(clients)
    ]


def _sent(query, state, updates):
    params = query.derive_sample_params(state)
    return [query.preprocess_record(params, update) for update in updates]


def _released(query, state, rounds, ring, updates=()):
    """Released rows, [rounds, coordinates] in float64, and the state after them."""
    rows = []
    for _ in range(rounds):
        state = ring.supply(state, updates)
        total = sum(_sent(query, state, updates), query.initial_sample_state(_SPECS))
        result, state, _ = query.get_noised_result(total, state)
        rows.append(np.concatenate([np.ravel(leaf) for leaf in tf.nest.flatten(result)]))
    return np.array(rows), state


@pytest.fixture(scope='module', name='whole', params=_MECHANISMS.values(), ids=_MECHANISMS)
def _whole(request):
    """A plan, its query, and the noise that it releases."""
    plan = _plan(request.param)
    query = _query(plan)
    with aggregators.HardenedRing(plan) as ring:
        rows, end = _released(query, query.initial_global_state(), _ROUNDS, ring)
    return plan, query, rows, end


def test_the_noise_is_replayed_from_the_key(whole):
    """Rows are the integer stream of exact draws, redrawn here one block at a time."""
    plan, _, rows, end = whole
    kernel = plan.mechanism.kernel()
    keys, block = redrawn.keys(end), hardened_ring._BLOCK
    buffers = np.zeros((2, kernel.buffers, block))
    unit = np.float64(np.float32(0.5)) / (hardened.STDDEV / 2.0)
    matrix, z_rows, w_rows = plan.mechanism.strategy_matrix(), [], []
    for t in range(_ROUNDS):
        step = stream.step(kernel, t)
        sampler = discrete_gaussian.DiscreteGaussian(hardened.STDDEV * step.stddev)
        round_key = keys[t].astype('<i8').tobytes()
        z = [sampler.draw(keystream.Keystream(round_key, b), block) for b in (0, 1)]
        w = np.concatenate([step.apply(z[b], buffers[b]) for b in (0, 1)])[:_SIZE]
        z_rows.append(np.concatenate(z)[:_SIZE] * matrix[t, t])
        w_rows.append(w)
        expected = w.astype(np.float64) * unit / 2
        # Names in order: the float64 tensor first.
        np.testing.assert_array_equal(rows[t, :3], expected[:3])
        np.testing.assert_array_equal(rows[t, 3:], expected[3:].astype(np.float32))
    # And C w is the independent noise z.
    assert np.abs(matrix @ np.array(w_rows) - np.array(z_rows)).max() < 1e-9 * hardened.STDDEV
    assert abs(np.std(z_rows) / hardened.STDDEV - 1) < 0.01


@pytest.mark.parametrize('stop', [1, 5])
def test_another_ring_goes_on_with_the_same_bits(whole, stop, tmp_path):
    plan, query, rows, _ = whole
    with aggregators.HardenedRing(plan, tmp_path) as ring:
        first, state = _released(query, query.initial_global_state(), stop, ring)
    with aggregators.HardenedRing(plan, tmp_path) as ring:
        second, _ = _released(query, state, _ROUNDS - stop, ring)
    np.testing.assert_array_equal(np.concatenate([first, second]), rows)
    assert not list(tmp_path.iterdir())


def test_without_noise_the_release_is_the_exact_sum():
    """A row of zeros: sums of integers in any order, and the mean of what clients sent."""
    query = _query(_plan())
    state = query.initial_global_state()
    row = state.numerator_state.noise.past
    zero = row._replace(round=np.int64(0), values=np.zeros(_SIZE, np.int64))
    numerator = state.numerator_state
    state = state._replace(
        numerator_state=numerator._replace(noise=numerator.noise._replace(past=zero))
    )
    sent = _sent(query, state, _updates(5))
    total = sum(sent[1:], sent[0])
    np.testing.assert_array_equal(total, sum(reversed(sent[:-1]), sent[-1]))
    exact = sum(np.asarray(one).astype(object) for one in sent)
    np.testing.assert_array_equal(np.asarray(total).astype(object), exact)
    result, _, _ = query.get_noised_result(total, state)
    unit = 0.5 / (hardened.STDDEV / 2)
    np.testing.assert_array_equal(result['b'], np.asarray(total)[:3].astype(np.float64) * unit / 2)
    clipped = [aggregators.clip_flat(update, 0.5) for update in _updates(5)]
    mean = sum(update['w'] for update in clipped) / 2
    np.testing.assert_allclose(result['w'], mean, atol=1e-7)


@pytest.mark.parametrize('scale', [1e-3, 1.0, 1e6, 1e30, np.inf, np.nan, 0.0])
@pytest.mark.parametrize('clip', [aggregators.clip_flat, aggregators.PerLayer(), lambda u, _: u])
def test_the_norm_of_the_integers_is_bounded_whatever_clips(scale, clip):
    """In integers of any length; also without clipping before."""
    plan = _plan()
    query = hardened_query.HardenedQuery(plan, _SPECS, 3, clip)
    state = query.initial_global_state()
    bound = int(hardened.STDDEV / plan.noise_multiplier)
    with np.errstate(invalid='ignore'):
        updates = _updates(2, scale)
    for sent in _sent(query, state, updates):
        squared = sum(int(value) ** 2 for value in np.asarray(sent).tolist())
        assert squared < bound**2
        if scale in (1.0, 1e6):
            assert squared > bound**2 * (1 - 1e-4)
        if not np.isfinite(scale) or scale == 0:
            assert squared == 0


def test_updates_within_the_norm_keep_their_values():
    plan = _plan()
    query = _query(plan)
    (update,), unit = _updates(1, 1e-4), 0.5 / (hardened.STDDEV / 2)
    (sent,) = _sent(query, query.initial_global_state(), [update])
    vector = np.concatenate([np.ravel(update['b']), np.ravel(update['w'])])
    np.testing.assert_allclose(np.asarray(sent) * unit, vector, atol=unit * 1.01, rtol=0)


def test_weights_scale_updates_down():
    plan = _plan(estimator=accounting.Estimator(example_cap=4.0))
    specs = aggregators.WeightedRecord(_SPECS, tf.TensorSpec([], tf.float32))
    query = _query(plan, specs=specs)
    state = query.initial_global_state()
    (update,) = _updates(1)
    records = [aggregators.WeightedRecord(update, tf.constant(n)) for n in (1.0, 4.0, 9.0, -1.0)]
    quarter, full, more, none = (
        np.asarray(sent).astype(np.float64) for sent in _sent(query, state, records)
    )
    np.testing.assert_array_equal(full, more)
    np.testing.assert_allclose(4 * quarter, full, atol=4)
    assert not none.any()


def test_clip_norms_of_a_schedule_scale_noise_and_updates():
    plan = _plan(mechanisms.Identity(_ROUNDS), clip_schedule=((2, 0.25),))
    query = _query(plan)
    plain = _query(_plan(mechanisms.Identity(_ROUNDS)))
    with aggregators.HardenedRing(plan) as ring:
        rows, _ = _released(query, query.initial_global_state(), 4, ring)
    with aggregators.HardenedRing(_plan(mechanisms.Identity(_ROUNDS))) as ring:
        others, _ = _released(plain, plain.initial_global_state(), 4, ring)
    np.testing.assert_array_equal(rows[:2], others[:2])
    np.testing.assert_array_equal(rows[2:], others[2:] / 2)


def test_keys_are_drawn_when_a_run_begins():
    query = _query(_plan(), seed=None)
    first, second = query.initial_global_state(), query.initial_global_state()
    keys = [one.numerator_state.noise.key.numpy() for one in (first, second)]
    assert keys[0].shape == (4,) and not np.isin(keys[0], keys[1]).any()
    with aggregators.HardenedRing(_plan()) as ring:
        rows = [_released(query, one, 1, ring)[0] for one in (first, second, first)]
    np.testing.assert_array_equal(rows[0], rows[2])
    assert not np.isin(rows[0][:, :3], rows[1][:, :3]).any()


def _in_child(ring, query, state, connection):
    state = ring.supply(state, ())
    connection.send((os.getpid(), np.asarray(state.numerator_state.noise.past.values)))


def test_a_forked_process_starts_anew_and_does_not_hang():
    query = _query(_plan())
    with aggregators.HardenedRing(_plan()) as ring:
        state = ring.supply(query.initial_global_state(), ())
        expected = np.asarray(state.numerator_state.noise.past.values)
        plain = tf.nest.map_structure(np.asarray, state)  # No tensors in the child.
        here, there = multiprocessing.Pipe()
        child = multiprocessing.get_context('fork').Process(
            target=_in_child, args=(ring, query, plain, there)
        )
        child.start()
        assert here.poll(60)
        process, row = here.recv()
        child.join(30)
        assert child.exitcode == 0
        assert process != os.getpid()
        np.testing.assert_array_equal(row, expected)
        again = ring.supply(state, ())
        np.testing.assert_array_equal(again.numerator_state.noise.past.values, row)


def test_a_row_that_is_missing_or_stale_is_an_error():
    query = _query(_plan())
    state = query.initial_global_state()
    zero = query.initial_sample_state(_SPECS)
    with pytest.raises(tf.errors.InvalidArgumentError, match='through HardenedRing.supply'):
        query.get_noised_result(zero, state)
    with aggregators.HardenedRing(_plan()) as ring:
        supplied = ring.supply(state, ())
        _, following, _ = query.get_noised_result(zero, supplied)
        stale = following._replace(
            numerator_state=following.numerator_state._replace(
                noise=following.numerator_state.noise._replace(
                    past=supplied.numerator_state.noise.past
                )
            )
        )
        with pytest.raises(tf.errors.InvalidArgumentError, match='is that of another round'):
            query.get_noised_result(zero, stale)
        _, end = _released(query, state, _ROUNDS, ring)
        with pytest.raises(tf.errors.InvalidArgumentError, match='has 7 rounds, and all are done'):
            query.get_noised_result(zero, ring.supply(end, ()))


def test_a_round_that_failed_half_way_changes_no_bit_of_later_ones(monkeypatch):
    plan = _plan()
    query = _query(plan)
    with aggregators.HardenedRing(plan) as ring:
        whole, _ = _released(query, query.initial_global_state(), 5, ring)
    with aggregators.HardenedRing(plan) as ring:
        _, state = _released(query, query.initial_global_state(), 3, ring)
        with monkeypatch.context() as patched:
            patched.setattr(stream.StateMap, 'apply', _failing)
            with pytest.raises(MemoryError, match='in a block'):
                ring.supply(state, ())
        rest, _ = _released(query, state, 2, ring)
    np.testing.assert_array_equal(rest, whole[3:])


def _failing(self, z, buffers):
    buffers += 1
    raise MemoryError('in a block')


def test_rings_and_plans_go_together():
    with pytest.raises(ValueError, match='noise=default: must be hardened with a HardenedRing'):
        aggregators.HardenedRing(_plan(noise='default'))
    with pytest.raises(ValueError, match='state: holds 0 hardened noises, must hold one'):
        aggregators.HardenedRing(_plan()).supply({'w': np.zeros(3)}, ())


@pytest.mark.parametrize(
    'make, message',
    [
        (
            lambda: aggregators.build_query(_plan(), record_specs=_SPECS),
            'supplied_noise=False: must be True with noise=hardened',
        ),
        (
            lambda: aggregators.build_query(_plan(), supplied_noise=True),
            'record_specs=None: must be given with noise=hardened',
        ),
        (lambda: _query(_plan(noise_multiplier=0.0)), 'noise_multiplier=0.0: must be > 0 with'),
        (lambda: _query(_plan(noise_multiplier=0.01)), 'noise=hardened: must be default with mech'),
        (lambda: _query(_plan(), seed=-1), 'seed=-1: must be an integer >= 0'),
        (
            lambda: _query(_plan(), specs=tf.TensorSpec([2**14, 2**15])),
            'record_specs: has 536870912',
        ),
        (lambda: hardened_query.HardenedQuery(_plan(noise='default'), _SPECS), 'must be hardened'),
    ],
)
def test_what_has_no_proof_is_refused_in_one_line(make, message):
    with pytest.raises(ValueError, match=message) as error:
        make()
    assert '\n' not in str(error.value)


def test_16_bit_updates_are_widened():
    query = _query(_plan(), specs=tf.TensorSpec([5], tf.float16))
    with aggregators.HardenedRing(_plan()) as ring:
        state = ring.supply(query.initial_global_state(), ())
        sent = query.preprocess_record(query.derive_sample_params(state), tf.ones([5], tf.float16))
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
stream = hardened_ring._Stream(kernel, 2_400_000, None)
for t in range(3):
    row = stream.row(np.arange(4 * (t + 1)).reshape(-1, 4), False)
assert row.shape == (2_400_000,) and row.std() > 2.0**39
stream.close()
print(peak() - before)
"""
    done = subprocess.run(
        [sys.executable, '-c', code],
        capture_output=True,
        text=True,
        check=True,
        cwd=paths.ROOT,
    )
    assert int(done.stdout) < 77e6 + 3 * 19.2e6 + 40e6
