"""The TensorFlow interpreter of the kernels against dense solves, for every mechanism."""

import numpy as np
import pytest
import tensorflow as tf

from dpfl import mechanisms
from dpfl.aggregators.noise import correlated, draws
from tests import mechanism_cases, oracles, redrawn

_ROUNDS = 64
_SPECS = [tf.TensorSpec([2, 3], tf.float64), tf.TensorSpec([], tf.float32)]


_KEY = draws.seeded_root_key(3)


_drawn = tf.function(lambda key: redrawn.of_key(key, _SPECS))


def _independent(drawn):
    """The independent noise of rounds with these keys: an array for each spec."""
    rounds = [_drawn(key) for key in drawn]
    return [np.array(leaves, dtype=np.float64) for leaves in zip(*rounds, strict=True)]


def _start(kernel):
    return correlated.initial_state(kernel, _ROUNDS, _SPECS, _KEY)


@pytest.mark.parametrize('make', mechanism_cases.quick_by_kernel(_ROUNDS))
def test_streaming_equals_solving(make):
    mechanism = make(_ROUNDS)
    kernel = mechanism.kernel()
    state = _start(kernel)
    step = tf.function(
        lambda state, total: correlated.next_noise(kernel, _ROUNDS, state, _SPECS, total)
    )
    if isinstance(kernel, mechanisms.BandedProduct):
        assert state.past == ()
    else:
        shapes = {name: tuple(past.shape) for name, past in state.past.items()}
        assert shapes == {'float32': (kernel.buffers, 1), 'float64': (kernel.buffers, 6)}
    streamed = []
    for t in range(_ROUNDS):
        output, state = step(state, tf.constant([t % 5]))
        streamed.append([leaf.numpy() for leaf in output])
    assert len(np.unique(state.drawn, axis=0)) == _ROUNDS
    independent = _independent(state.drawn)
    for leaf, tolerance in ((0, 1e-9), (1, 1e-4)):
        got = np.array([row[leaf] for row in streamed])
        expected = oracles.streamed_by_solving(mechanism, independent[leaf])
        scale = np.abs(expected).max()
        np.testing.assert_allclose(got, expected, atol=tolerance * scale)


@pytest.mark.parametrize('make', mechanism_cases.quick_by_kernel(_ROUNDS))
def test_a_type_without_coordinates_changes_no_noise(make):
    kernel, some = make(_ROUNDS).kernel(), [tf.TensorSpec([2], tf.float32)]
    rows = []
    for specs in (some, [*some, tf.TensorSpec([0], tf.float64)]):
        state = correlated.initial_state(kernel, _ROUNDS, specs, _KEY)
        before = [leaf.shape.as_list() for leaf in tf.nest.flatten(state.past)]
        for _ in range(3):
            noise, state = correlated.next_noise(kernel, _ROUNDS, state, specs, tf.zeros([1]))
            rows.append(noise[0].numpy())
            assert [leaf.shape for leaf in noise[1:]] == [spec.shape for spec in specs[1:]]
        assert [leaf.shape.as_list() for leaf in tf.nest.flatten(state.past)] == before
    np.testing.assert_array_equal(rows[:3], rows[3:])


@pytest.mark.parametrize('make', mechanism_cases.quick_by_kernel(_ROUNDS))
def test_states_without_their_zero_buffers_give_the_same_bits(make):
    kernel = make(_ROUNDS).kernel()
    if isinstance(kernel, mechanisms.BandedProduct) or not kernel.buffers:
        states = correlated.without_buffers(_start(kernel)), _start(kernel)
        tf.nest.map_structure(np.testing.assert_array_equal, *states)
        return
    step = tf.function(
        lambda state: correlated.next_noise(kernel, _ROUNDS, state, _SPECS, tf.zeros([1])),
        reduce_retracing=True,
    )
    whole, small = _start(kernel), correlated.without_buffers(_start(kernel))
    for t in range(10):
        for name, buffers in whole.past.items():
            is_written = np.any(buffers, axis=1)
            np.testing.assert_array_equal(small.past[name], buffers[is_written])
            assert t or not is_written.any()
        expected, whole = step(whole)
        output, small = step(small)
        for leaf, other in zip(output, expected, strict=True):
            np.testing.assert_array_equal(leaf, other)


@mechanism_cases.every
def test_fresh_noise_of_float32_coordinates_keeps_the_digits_of_float64(make):
    """The first row has no past, which may be float32: it is z / C[0, 0]."""
    mechanism = make(_ROUNDS)
    kernel = mechanism.kernel()
    output, state = correlated.next_noise(kernel, _ROUNDS, _start(kernel), _SPECS, tf.zeros([1]))
    expected = _independent(state.drawn[:1])[1][0] / mechanism.strategy_matrix()[0, 0]
    np.testing.assert_allclose(output[1].numpy(), expected, rtol=1e-14)
