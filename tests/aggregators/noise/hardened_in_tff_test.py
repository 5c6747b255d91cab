"""Hardened noise through processes of TFF: sums, states, resumed runs, and learning algorithms."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import Participation, accounting, aggregators, mechanisms
from dpfl.accounting import hardened
from dpfl.runtime import contexts
from tests import mechanism_cases

pytestmark = pytest.mark.tff

_ROUNDS = 6
_TYPE = tff.to_type(
    collections.OrderedDict(b=tff.TensorType(np.float32, [2, 3]), a=tff.TensorType(np.float64, [4]))
)
_QUICK = ('blt', 'banded_inverse', 'restarted_blt')
_STANDARD = ('gaussian', 'tree', 'honaker_tree', 'banded', 'banded_toeplitz')


@pytest.fixture(scope='module', autouse=True)
def _runtime():
    with contexts.local_runtime():
        yield


def _plan(name, **changes):
    return accounting.PrivacyPlan(
        **{
            **dict(
                mechanism=mechanism_cases.FACTORIES[name](_ROUNDS),
                participation=Participation(_ROUNDS),
                clip_norm=0.5,
                noise_multiplier=2.0,
                clients_per_round=4,
                noise='hardened',
            ),
            **changes,
        }
    )


def _clients(count):
    rng = np.random.default_rng(5)
    return [
        collections.OrderedDict(b=rng.normal(size=(2, 3)).astype(np.float32), a=rng.normal(size=4))
        for _ in range(count)
    ]


def _run(process, ring, state, rounds, clients):
    results = []
    for _ in range(rounds):
        output = process.next(ring.supply(state, 'data'), clients)
        state = output.state
        results.append(np.concatenate([np.ravel(output.result['b']), output.result['a']]))
    return np.array(results), state


@pytest.mark.parametrize(
    'name', [*_QUICK, *(pytest.param(name, marks=pytest.mark.standard) for name in _STANDARD)]
)
def test_a_process_releases_the_mean_and_the_noise_of_the_mechanism(name):
    plan = _plan(name)
    process = aggregators.build_aggregator(plan, 7, supplied_noise=True).create(_TYPE)
    clients = _clients(3)
    with aggregators.HardenedRing(plan) as ring:
        noise, _ = _run(process, ring, process.initialize(), _ROUNDS, [])
        means, _ = _run(process, ring, process.initialize(), _ROUNDS, clients)
    clipped = [aggregators.clip_flat(client, 0.5) for client in clients]
    expected = sum(np.concatenate([np.ravel(c['b']), c['a']]) for c in clipped) / 4
    # A coordinate is off by an integer unit per client, and by float32 rounding.
    np.testing.assert_allclose(means - noise, np.tile(expected, (_ROUNDS, 1)), atol=1e-6)
    independent = plan.mechanism.strategy_matrix() @ noise * 4
    assert 0.6 < independent.std() / plan.stddev < 1.5


def test_a_saved_state_goes_on_with_the_same_bits():
    plan = _plan('blt')
    factory = aggregators.build_aggregator(plan, supplied_noise=True)
    process, clients = factory.create(_TYPE), _clients(4)
    with aggregators.HardenedRing(plan) as ring:
        start = process.initialize()
        whole, _ = _run(process, ring, start, _ROUNDS, clients)
    with aggregators.HardenedRing(plan) as ring:
        first, state = _run(process, ring, start, 2, clients)
    process = factory.create(_TYPE)
    with aggregators.HardenedRing(plan) as ring:
        second, _ = _run(process, ring, state, _ROUNDS - 2, clients)
    np.testing.assert_array_equal(np.concatenate([first, second]), whole)


def test_the_order_of_clients_changes_no_bit():
    plan = _plan('banded')
    process = aggregators.build_aggregator(plan, 7, supplied_noise=True).create(_TYPE)
    clients = _clients(5)
    with aggregators.HardenedRing(plan) as ring:
        one, _ = _run(process, ring, process.initialize(), 1, clients)
        other, _ = _run(process, ring, process.initialize(), 1, clients[::-1])
    np.testing.assert_array_equal(one, other)


def test_two_runs_have_keys_of_their_own():
    plan = _plan('blt')
    process = aggregators.build_aggregator(plan, supplied_noise=True).create(_TYPE)
    with aggregators.HardenedRing(plan) as ring:
        one, other = (_run(process, ring, process.initialize(), 1, [])[0] for _ in range(2))
    assert not np.isin(one, other).any()


def test_weighted_means_take_it():
    plan = _plan('blt', estimator=accounting.Estimator(example_cap=4.0))
    factory = aggregators.build_weighted_aggregator(plan, 7, supplied_noise=True)
    process = factory.create(_TYPE, tff.TensorType(np.float32))
    clients = _clients(2)
    with aggregators.HardenedRing(plan) as ring:
        state = ring.supply(process.initialize(), 'data')
        sums = [
            process.next(state, clients, weights).result['a']
            for weights in ([4.0, 0.0], [9.0, 0.0], [2.0, 0.0], [0.0, 0.0])
        ]
    np.testing.assert_array_equal(sums[0], sums[1])
    unit = 0.5 / (hardened.STDDEV / 2) / 4
    np.testing.assert_allclose(sums[0] - sums[3], 2 * (sums[2] - sums[3]), atol=3 * unit)


@pytest.mark.standard
def test_an_algorithm_of_tff_trains_with_it():
    plan = accounting.PrivacyPlan(
        mechanism=mechanisms.Blt(3, [0.9], [0.2]),
        participation=Participation(3),
        clip_norm=1.0,
        noise_multiplier=0.5,
        clients_per_round=2,
        noise='hardened',
    )
    rows = collections.OrderedDict(x=np.ones((4, 3), np.float32), y=np.ones((4, 1), np.float32))
    data = [tf.data.Dataset.from_tensor_slices(rows).batch(2) for _ in range(2)]
    model = tff.learning.models.functional_model_from_keras(
        tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(3,))]),
        loss_fn=tf.keras.losses.MeanSquaredError(),
        input_spec=data[0].element_spec,
    )
    process = tff.learning.algorithms.build_unweighted_fed_avg(
        model,
        client_optimizer_fn=tff.learning.optimizers.build_sgdm(0.1),
        server_optimizer_fn=tff.learning.optimizers.build_sgdm(1.0),
        model_aggregator=aggregators.build_aggregator(plan, 1, supplied_noise=True),
    )
    with aggregators.HardenedRing(plan) as ring:
        state = process.initialize()
        before = process.get_model_weights(state).trainable
        for _ in range(3):
            state = process.next(ring.supply(state, 'data'), data).state
    after = process.get_model_weights(state).trainable
    assert np.isfinite(after[0]).all() and np.abs(after[0] - before[0]).max() > 1e-3
