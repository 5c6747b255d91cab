"""Noise supplied from outside of TFF: the rows that a state would give, always the same bits."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from dpfl import Participation, accounting, aggregators, mechanisms
from dpfl.mechanisms import kernels
from tests import mechanism_cases, oracles, redrawn

_ROUNDS = 11
# Several blocks of the ring, and a part of one; both types.
_SPECS = {'w': tf.TensorSpec([2, 2500]), 'b': tf.TensorSpec([3], tf.float64)}
_MECHANISMS = {
    'blt': mechanisms.Blt(_ROUNDS, [0.9, 0.4], [0.2, 0.3]),
    'honaker_tree': mechanisms.HonakerTree(_ROUNDS),
    'banded': mechanism_cases.FACTORIES['banded'](_ROUNDS),
    'banded_inverse': mechanisms.BandedInverse.square_root(_ROUNDS, 4),
}


def _plan(mechanism):
    return accounting.PrivacyPlan(
        mechanism=mechanism,
        participation=Participation(_ROUNDS),
        clip_norm=0.5,
        noise_multiplier=2.0,
        clients_per_round=2,
    )


def _query(mechanism, **changes):
    return aggregators.build_query(_plan(mechanism), 3, record_specs=_SPECS, **changes)


def _released(query, state, rounds, ring=None):
    """Rows of the noise, [rounds, coordinates], and the state after them."""
    zero = tf.nest.map_structure(lambda spec: tf.zeros(spec.shape, spec.dtype), _SPECS)
    rows = []
    for _ in range(rounds):
        if ring is not None:
            state = ring.supply(state, zero)
        result, state, _ = query.get_noised_result(zero, state)
        rows.append(np.concatenate([np.ravel(leaf) for leaf in tf.nest.flatten(result)]))
    return np.array(rows), state


@pytest.fixture(scope='module', name='supplied', params=_MECHANISMS.values(), ids=_MECHANISMS)
def _supplied(request):
    """A mechanism, its query, and what it releases."""
    query = _query(request.param, supplied_noise=True)
    with aggregators.NoiseRing(_plan(request.param)) as ring:
        rows, end = _released(query, query.initial_global_state(), _ROUNDS, ring)
    return request.param, query, rows, end


def test_supplied_noise_is_that_of_the_solution(supplied):
    mechanism, _, rows, end = supplied
    z = redrawn.vectors(end, _SPECS)
    exact = oracles.streamed_by_solving(mechanism, z) * _plan(mechanism).stddev / 2
    scale = np.abs(exact).max()
    np.testing.assert_allclose(rows, exact, atol=1e-6 * scale)
    # The float64 coordinates come first, in the order of the names.
    np.testing.assert_allclose(rows[:, :3], exact[:, :3], atol=1e-14 * scale)


@pytest.mark.parametrize('stop', [1, 6])
def test_another_ring_goes_on_with_the_same_bits(supplied, stop, tmp_path):
    mechanism, query, whole, _ = supplied
    with aggregators.NoiseRing(_plan(mechanism), tmp_path) as ring:
        first, state = _released(query, query.initial_global_state(), stop, ring)
    with aggregators.NoiseRing(_plan(mechanism), tmp_path) as ring:
        second, _ = _released(query, state, _ROUNDS - stop, ring)
    np.testing.assert_array_equal(np.concatenate([first, second]), whole)
    assert not list(tmp_path.iterdir())


def test_a_state_can_be_supplied_again(supplied):
    mechanism, query, whole, _ = supplied
    with aggregators.NoiseRing(_plan(mechanism)) as ring:
        start = query.initial_global_state()
        _released(query, start, 6, ring)
        _, middle = _released(query, start, 3, ring)  # Going back.
        for _ in range(2):
            once_more, _ = _released(query, middle, 2, ring)
            np.testing.assert_array_equal(once_more, whole[3:5])


def test_the_state_holds_one_row_before_a_round_and_none_after_it(supplied):
    mechanism, query, _, _ = supplied
    with aggregators.NoiseRing(_plan(mechanism)) as ring:
        state = query.initial_global_state()
        assert _numbers(state) < 20 + 2 * _ROUNDS  # A key for each round.
        assert _numbers(ring.supply(state, ())) == _numbers(state) + 5003
        assert _numbers(_released(query, state, 1, ring)[1]) == _numbers(state)


def _numbers(state):
    return sum(np.size(leaf) for leaf in tf.nest.flatten(state))


def test_a_row_that_is_missing_or_stale_is_an_error():
    query = _query(_MECHANISMS['blt'], supplied_noise=True)
    state = query.initial_global_state()
    with pytest.raises(tf.errors.InvalidArgumentError, match='pass each state through NoiseRing'):
        _released(query, state, 1)
    with aggregators.NoiseRing(_plan(_MECHANISMS['blt'])) as ring:
        supplied = ring.supply(state, ())
        _, following = _released(query, supplied, 1)
    row = supplied.numerator_state.noise.past
    stale = following._replace(
        numerator_state=following.numerator_state._replace(
            noise=following.numerator_state.noise._replace(past=row)
        )
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match='is that of another round'):
        _released(query, stale, 1)


def test_states_of_other_keys_have_their_own_noise():
    query = aggregators.build_query(
        _plan(_MECHANISMS['blt']), record_specs=_SPECS, supplied_noise=True
    )
    starts = [query.initial_global_state() for _ in range(2)]
    with aggregators.NoiseRing(_plan(_MECHANISMS['blt'])) as ring:
        first, second, again = (
            _released(query, start, 2, ring)[0] for start in (*starts, starts[0])
        )
    np.testing.assert_array_equal(first, again)
    assert not np.isin(first[:, :3], second[:, :3]).any()
    assert np.isin(first, second).mean() < 0.01  # float32 has equal ones by chance.


def test_a_round_that_failed_half_way_changes_no_bit_of_later_ones(supplied, monkeypatch):
    mechanism, query, whole, _ = supplied
    step, calls = kernels.step, itertools.count(1)  # Blocks run in more than one thread.

    class Failing:
        def __init__(self, inner):
            self._inner = inner

        def apply(self, *arrays):
            call = next(calls)
            self._inner.apply(*arrays)
            if call == 2:  # Some blocks are done, others are not.
                raise MemoryError('in a block')

    with aggregators.NoiseRing(_plan(mechanism)) as ring:
        _, state = _released(query, query.initial_global_state(), 4, ring)
        with monkeypatch.context() as patched:
            patched.setattr(kernels, 'step', lambda *args: Failing(step(*args)))
            with pytest.raises(MemoryError, match='in a block'):
                _released(query, state, 1, ring)
            assert next(calls) > 2
        rest, _ = _released(query, state, _ROUNDS - 4, ring)
    np.testing.assert_array_equal(rest, whole[4:])


def test_a_ring_serves_processes_of_other_sizes_with_one_key():
    plan = _plan(_MECHANISMS['blt'])
    with aggregators.NoiseRing(plan) as ring:
        for size in (5, 3000, 5):
            query = aggregators.build_query(
                plan, 3, record_specs=tf.TensorSpec([size]), supplied_noise=True
            )
            state = ring.supply(query.initial_global_state(), ())
            assert state.numerator_state.noise.past.float32.shape == (size,)


def test_rounds_beyond_the_plan_are_refused():
    query = _query(_MECHANISMS['blt'], supplied_noise=True)
    with aggregators.NoiseRing(_plan(_MECHANISMS['blt'])) as ring:
        _, state = _released(query, query.initial_global_state(), _ROUNDS, ring)
        with pytest.raises(tf.errors.InvalidArgumentError, match='has 11 rounds, and all are done'):
            _released(query, state, 1, ring)


def test_noise_that_is_held_cannot_be_supplied():
    with aggregators.NoiseRing(_plan(_MECHANISMS['blt'])) as ring:
        state = _query(_MECHANISMS['blt']).initial_global_state()
        with pytest.raises(ValueError, match='state: holds 0 noises to be supplied, must hold one'):
            ring.supply(state, ())


def test_a_state_that_tff_cannot_carry_is_refused_when_it_is_built():
    mechanism = mechanisms.BandedToeplitz.fichtenberger(_ROUNDS, 8)
    specs = tf.TensorSpec([60_000_000])
    with pytest.raises(ValueError, match='supplied_noise=False: .* for 1.68 GB'):
        aggregators.build_query(_plan(mechanism), record_specs=specs)
    aggregators.build_query(_plan(mechanism), record_specs=specs, supplied_noise=True)
    product = mechanisms.BandedInverse.square_root(_ROUNDS, 8)  # Keeps nothing.
    aggregators.build_query(_plan(product), record_specs=specs)


def test_supplied_noise_needs_the_specs():
    with pytest.raises(ValueError, match='record_specs=None: must be given with supplied_noise'):
        aggregators.build_query(_plan(_MECHANISMS['blt']), supplied_noise=True)


def test_a_ring_from_before_a_fork_is_refused(monkeypatch):
    plan = _plan(_MECHANISMS['blt'])
    query = aggregators.build_query(plan, record_specs=tf.TensorSpec([3]), supplied_noise=True)
    with aggregators.NoiseRing(plan) as ring:
        state = query.initial_global_state()
        ring.supply(state, ())
        with monkeypatch.context() as patch:
            patch.setattr('os.getpid', lambda: -1)
            with pytest.raises(RuntimeError, match='NoiseRing: must be made in the process that'):
                ring.supply(state, ())
            ring.close()  # The fork's: the ring of its parent goes on.
        ring.supply(state, ())
