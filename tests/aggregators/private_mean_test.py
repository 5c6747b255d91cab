"""The aggregator in TFF: exact mean without noise, continuing, types and limits."""

import collections

import dp_accounting
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from tensorflow_federated.python.aggregators import differential_privacy

from dpfl import Participation, accounting, aggregators, mechanisms
from dpfl.runtime import contexts

pytestmark = pytest.mark.tff

_ROUNDS = 11
_MECHANISMS = {
    'gaussian': mechanisms.Identity(_ROUNDS),
    'tree': mechanisms.BinaryTree(_ROUNDS),
    'blt': mechanisms.Blt(_ROUNDS, [0.99, 0.7, 0.2], [0.2, 0.25, 0.05]),
}
_STRUCTURES = {
    'one tensor': tff.TensorType(np.float32, [5]),
    'scalar': tff.TensorType(np.float32),
    'nested': tff.to_type(
        collections.OrderedDict(
            b=tff.TensorType(np.float32, [2, 3]),
            a=[tff.TensorType(np.float32), tff.TensorType(np.float32, [4])],
        )
    ),
}

every_mechanism = pytest.mark.parametrize('mechanism', _MECHANISMS.values(), ids=_MECHANISMS)


@pytest.fixture(scope='module', autouse=True)
def _runtime():
    with contexts.local_runtime():
        yield


def _plan(mechanism, **changes):
    fields = dict(
        mechanism=mechanism,
        participation=Participation(_ROUNDS, 2),
        clip_norm=0.5,
        noise_multiplier=3.0,
        clients_per_round=4,
    )
    return accounting.PrivacyPlan(**{**fields, **changes})


def _zeros(value_type):
    specs = tff.types.type_to_tf_tensor_specs(value_type)
    return tf.nest.map_structure(lambda spec: np.zeros(spec.shape, np.float32), specs)


def _flat(value) -> np.ndarray:
    return np.concatenate([np.ravel(leaf) for leaf in tf.nest.flatten(value)])


def _run(process, state, cohorts):
    results = []
    for cohort in cohorts:
        output = process.next(state, cohort)
        state = output.state
        results.append(_flat(output.result))
    return np.array(results), state


@every_mechanism
def test_zero_noise_is_the_clipped_mean_over_the_planned_cohort(mechanism):
    plan = _plan(mechanism, noise_multiplier=0.0)
    process = aggregators.build_aggregator(plan).create(_STRUCTURES['one tensor'])
    rng = np.random.default_rng(0)
    updates = rng.normal(size=(3, 5)).astype(np.float32) * np.array([[0.01], [1.0], [100.0]])
    updates = updates.astype(np.float32)
    results, _ = _run(process, process.initialize(), [list(updates)])
    norms = np.linalg.norm(updates, axis=1, keepdims=True)
    clipped = updates * np.minimum(1, 0.5 / norms)
    # Three clients came, four were planned. Clipping keeps 1e-5 below the bound.
    np.testing.assert_allclose(results[0], clipped.sum(axis=0) / 4, rtol=3e-5, atol=1e-7)


@every_mechanism
def test_stopping_and_continuing_changes_no_bit(mechanism):
    value_type = _STRUCTURES['nested']
    cohorts = [[_zeros(value_type)] * 2] * _ROUNDS
    process = aggregators.build_aggregator(_plan(mechanism), seed=1).create(value_type)
    whole, _ = _run(process, process.initialize(), cohorts)
    first, state = _run(process, process.initialize(), cohorts[:5])
    saved = tf.nest.map_structure(np.asarray, state)
    again = aggregators.build_aggregator(_plan(mechanism), seed=1).create(value_type)
    second, _ = _run(again, saved, cohorts[5:])
    np.testing.assert_array_equal(np.concatenate([first, second]), whole)


def test_state_continues_without_the_seed():
    # The key is in the state: a process built from other entropy continues the same noise.
    value_type = _STRUCTURES['one tensor']
    cohorts = [[_zeros(value_type)]] * _ROUNDS
    plan = _plan(_MECHANISMS['blt'])
    process, other = (aggregators.build_aggregator(plan).create(value_type) for _ in range(2))
    start = process.initialize()
    whole, _ = _run(process, start, cohorts)
    first, state = _run(process, start, cohorts[:3])
    second, _ = _run(other, state, cohorts[3:])
    np.testing.assert_array_equal(np.concatenate([first, second]), whole)


def test_each_start_has_its_own_noise():
    value_type = _STRUCTURES['one tensor']
    process = aggregators.build_aggregator(_plan(_MECHANISMS['gaussian'])).create(value_type)
    runs = [_run(process, process.initialize(), [[_zeros(value_type)]] * 3)[0] for _ in range(2)]
    assert not np.isin(runs[0], runs[1]).any()


def test_rounds_beyond_the_plan_are_refused():
    value_type = _STRUCTURES['scalar']
    plan = _plan(mechanisms.BinaryTree(_ROUNDS), participation=Participation(2))
    process = aggregators.build_aggregator(plan).create(value_type)
    _, state = _run(process, process.initialize(), [[np.float32(0)]] * 2)
    with pytest.raises(Exception, match='The privacy plan has 2 rounds, and all are done'):
        process.next(state, [np.float32(0)])


def test_no_measurement_leaks_what_clients_sent():
    factory = aggregators.build_aggregator(_plan(_MECHANISMS['blt']))
    process = factory.create(tff.TensorType(np.float32))
    measurements = process.next(process.initialize(), [np.float32(3)]).measurements
    assert tf.nest.flatten(measurements) == []


@every_mechanism
def test_types(mechanism):
    value_type = _STRUCTURES['nested']
    process = aggregators.build_aggregator(_plan(mechanism)).create(value_type)
    signature = process.next.type_signature
    tff.test.assert_types_identical(
        signature.result.result, tff.FederatedType(value_type, tff.SERVER)
    )
    tff.test.assert_types_identical(
        signature.parameter[1], tff.FederatedType(value_type, tff.CLIENTS)
    )
    tff.test.assert_types_equivalent(signature.result.state, signature.parameter[0])
    assert isinstance(
        aggregators.build_aggregator(_plan(mechanism)), tff.aggregators.UnweightedAggregationFactory
    )


def test_an_integer_tensor_is_refused():
    value_type = tff.to_type(collections.OrderedDict(w=np.float32, n=[np.float32, np.int32]))
    with pytest.raises(TypeError, match='record/n/1 has a int32 tensor: must be float32 or'):
        aggregators.build_aggregator(_plan(_MECHANISMS['blt'])).create(value_type)


def test_queries_without_specs_in_tffs_own_factory():
    value_type = tff.TensorType(np.float32, [5])

    def create(name):
        query = aggregators.build_query(_plan(_MECHANISMS[name]), 7)
        return tff.aggregators.DifferentiallyPrivateFactory(query).create(value_type)

    process = create('gaussian')
    state = process.initialize()
    for _ in range(2):
        output = process.next(state, [np.ones(5, np.float32)] * 3)
        state = output.state
    assert np.ptp(output.result) > 0.1
    with pytest.raises(ValueError, match='record_specs=None: must be given in TFF'):
        create('blt')


def test_a_round_has_no_event_of_its_own():
    process = aggregators.build_aggregator(_plan(_MECHANISMS['blt'])).create(
        tff.TensorType(np.float32, [5])
    )
    state = process.next(process.initialize(), [np.ones(5, np.float32)]).state
    event = differential_privacy.extract_dp_event_from_state(state)
    assert isinstance(event, dp_accounting.UnsupportedDpEvent)


def test_a_whole_number_of_clients_is_an_integer():
    plan = _plan(_MECHANISMS['blt'], clients_per_round=4.0)
    assert plan == _plan(_MECHANISMS['blt']) and plan.digest() == _plan(_MECHANISMS['blt']).digest()
    with pytest.raises(ValueError, match='clients_per_round=4.5: must be an integer'):
        _plan(_MECHANISMS['blt'], clients_per_round=4.5)


@pytest.mark.parametrize('seed', [-1, 0.5, True])
def test_a_bad_seed_is_named(seed):
    with pytest.raises(ValueError, match=f'seed={seed}: must be an integer >= 0'):
        aggregators.build_aggregator(_plan(_MECHANISMS['blt']), seed=seed)
