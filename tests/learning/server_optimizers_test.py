"""Optimizers of the server against steps computed by hand."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import _settings, errors, learning, mechanisms
from dpfl.learning import server_optimizers
from dpfl.simulation import state as states
from dpfl.simulation.training.round_config import ServerConfig
from tests.learning import models

pytestmark = pytest.mark.tff

_ROUNDS = 6
_RNG = np.random.default_rng(3)
_GRADIENTS = [
    (_RNG.normal(size=(2, 3)).astype(np.float32), _RNG.normal(size=4).astype(np.float32))
    for _ in range(_ROUNDS)
]
_START = tuple(np.ones_like(leaf) for leaf in _GRADIENTS[0])
_RATES = np.array([0.2, 0.4, 0.4, 0.3, 0.2, 0.1])


def _by_hand(step, start, rates):
    """Weights after each round; `step` maps (t, rate, gradient, memory) to the change."""
    found, weights, memories = [], [leaf.astype(np.float64) for leaf in start], [{}, {}]
    for t, (rate, gradients) in enumerate(zip(rates, _GRADIENTS, strict=True)):
        for i, gradient in enumerate(gradients):
            weights[i] = weights[i] - step(t, rate, gradient.astype(np.float64), memories[i])
        found.append([leaf.copy() for leaf in weights])
    return found


def _sgd(momentum, nesterov=False):
    def step(t, rate, g, memory):
        memory['v'] = momentum * memory.get('v', 0.0) + g
        return rate * (g + momentum * memory['v'] if nesterov else memory['v'])

    return step


def _adam(beta1, beta2=0.999, epsilon=1e-7):
    def step(t, rate, g, memory):
        memory['m'] = beta1 * memory.get('m', 0.0) + (1 - beta1) * g
        memory['s'] = beta2 * memory.get('s', 0.0) + (1 - beta2) * g**2
        corrected = rate * np.sqrt(1 - beta2 ** (t + 1)) / (1 - beta1 ** (t + 1))
        return corrected * memory['m'] / (np.sqrt(memory['s']) + epsilon)

    return step


_CASES = {
    'sgd': (dict(name='sgd'), _sgd(0.0)),
    'momentum': (dict(name='sgd', momentum=0.7), _sgd(0.7)),
    'nesterov': (dict(name='sgd', momentum=0.7, nesterov=True), _sgd(0.7, nesterov=True)),
    'adam': (dict(name='adam', momentum=0.8), _adam(0.8)),
}


def _run(optimizer, restart_after=None, dtype=np.float32):
    """Weights after each round in a graph of TensorFlow, as TFF runs it."""
    start = [leaf.astype(dtype) for leaf in _START]
    specs = tf.nest.map_structure(lambda leaf: tf.TensorSpec(leaf.shape, leaf.dtype), start)
    step = tf.function(lambda state, weights, mean: optimizer.next(state, weights, mean))
    initial = tf.function(lambda: optimizer.initialize(specs))
    # As TFF keeps them: a Python number is a float32 tensor.
    state = tf.nest.map_structure(tf.convert_to_tensor, initial())
    weights, found = tf.nest.map_structure(tf.constant, start), []
    for t, gradients in enumerate(_GRADIENTS):
        gradients = [leaf.astype(dtype) for leaf in gradients]
        if t == restart_after:
            saved = states.leaves(tf.nest.map_structure(lambda leaf: leaf.numpy(), state))
            fresh = tf.nest.map_structure(lambda leaf: leaf.numpy(), initial())
            restored = states.restore(saved, tf.nest.map_structure(np.asarray, fresh))
            state = tf.nest.map_structure(tf.convert_to_tensor, restored)
        state, weights = step(state, weights, gradients)
        found.append([leaf.numpy() for leaf in weights])
    return found


def test_every_optimizer_of_a_run_is_computed_by_hand():
    fields = {field.name: field for field in dataclasses.fields(ServerConfig)}
    choices = {*_settings.choices_of(fields['server_optimizer'])}
    assert choices == {*server_optimizers.SERVER_OPTIMIZERS}
    assert choices == {settings['name'] for settings, _ in _CASES.values()}


# A schedule goes on with its last rate.
@pytest.mark.parametrize('rates', [[0.3], _RATES[:4]], ids=['constant', 'schedule'])
@pytest.mark.parametrize('case', _CASES)
def test_steps_are_those_computed_by_hand(case, rates):
    settings, step = _CASES[case]
    given = rates[0] if len(rates) == 1 else rates
    optimizer = learning.build_server_optimizer(rates=given, **settings)
    expected = _by_hand(step, _START, [*rates, *[rates[-1]] * _ROUNDS][:_ROUNDS])
    models.assert_close(*map(tf.nest.flatten, (_run(optimizer), expected)), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize('case', _CASES)
def test_float64_weights_take_the_same_steps(case):
    settings, step = _CASES[case]
    optimizer = learning.build_server_optimizer(rates=_RATES, **settings)
    found, expected = _run(optimizer, dtype=np.float64), _by_hand(step, _START, _RATES)
    models.assert_close(*map(tf.nest.flatten, (found, expected)), rtol=2e-5, atol=2e-6)


def test_momentum_has_the_bits_of_tff():
    own = learning.build_server_optimizer('sgd', 0.3, momentum=0.7)
    stock = tff.learning.optimizers.build_sgdm(0.3, 0.7)
    np.testing.assert_equal(_run(own), _run(stock))
    one, other = (each.initialize(tf.TensorSpec([2])) for each in (own, stock))
    assert [*one] == [*other]  # So that a run of an earlier version goes on.


@pytest.mark.parametrize('case', ['nesterov', 'adam'])
def test_a_restored_state_gives_the_same_bits(case):
    optimizer = learning.build_server_optimizer(rates=_RATES, **_CASES[case][0])
    np.testing.assert_equal(_run(optimizer), _run(optimizer, restart_after=3))


@pytest.mark.parametrize('nesterov', [False, True])
def test_the_workload_of_sgd_is_what_the_server_does(nesterov):
    optimizer = learning.build_server_optimizer('sgd', _RATES, momentum=0.7, nesterov=nesterov)
    workload = mechanisms.workload.learning_rate_schedule(_RATES, 0.7, nesterov=nesterov)
    for leaf in (0, 1):
        updates = np.array([gradients[leaf].ravel() for gradients in _GRADIENTS], np.float64)
        expected = _START[leaf].ravel() - workload @ updates
        found = np.array([weights[leaf].ravel() for weights in _run(optimizer)])
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(
    'settings, name',
    [
        (dict(name='lamb', rates=1.0), 'server_optimizer'),
        (dict(name='sgd', rates=[0.5, 0.0]), 'rates'),
        (dict(name='sgd', rates=1.0, momentum=1.0), 'momentum'),
        (dict(name='sgd', rates=1.0, nesterov=True), 'nesterov'),
        (dict(name='adam', rates=1.0, momentum=0.5, nesterov=True), 'nesterov'),
    ],
)
def test_bad_arguments_are_named(settings, name):
    with pytest.raises(errors.ArgumentError) as caught:
        learning.build_server_optimizer(**settings)
    assert caught.value.name == name
