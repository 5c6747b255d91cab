"""The aggregator in TFF: limits of a plan, and what is refused; `family_test.py` has the rest."""

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
_GAUSSIAN = mechanisms.Identity(_ROUNDS)
_BLT = mechanisms.Blt(_ROUNDS, [0.99, 0.7, 0.2], [0.2, 0.25, 0.05])
_VECTOR = tff.TensorType(np.float32, [5])
_ONES = np.ones(5, np.float32)


@pytest.fixture(scope='module', autouse=True)
def _runtime():
    with contexts.local_runtime():
        yield


def _plan(mechanism=_BLT, **changes):
    fields = dict(
        mechanism=mechanism,
        participation=Participation(_ROUNDS, 2),
        clip_norm=0.5,
        noise_multiplier=3.0,
        clients_per_round=4,
    )
    return accounting.PrivacyPlan(**{**fields, **changes})


def test_each_start_has_its_own_noise():
    process = aggregators.build_aggregator(_plan(_GAUSSIAN)).create(_VECTOR)
    one, other = (process.next(process.initialize(), [_ONES]).result for _ in range(2))
    assert not np.isin(one, other).any()


def test_rounds_beyond_the_plan_are_refused():
    plan = _plan(participation=Participation(2))
    process = aggregators.build_aggregator(plan).create(_VECTOR)
    state = process.next(process.initialize(), [_ONES]).state
    event = differential_privacy.extract_dp_event_from_state(state)
    assert isinstance(event, dp_accounting.UnsupportedDpEvent)
    state = process.next(state, [_ONES]).state
    with pytest.raises(Exception, match='The privacy plan has 2 rounds, and all are done'):
        process.next(state, [_ONES])


@pytest.mark.standard
def test_queries_without_specs_in_tffs_own_factory():
    def create(mechanism):
        query = aggregators.build_query(_plan(mechanism), 7)
        return tff.aggregators.DifferentiallyPrivateFactory(query).create(_VECTOR)

    process = create(_GAUSSIAN)
    state = process.initialize()
    for _ in range(2):
        output = process.next(state, [_ONES] * 3)
        state = output.state
    assert np.ptp(output.result) > 0.1
    with pytest.raises(ValueError, match='record_specs=None: must be given in TFF'):
        create(_BLT)


def test_a_whole_number_of_clients_is_an_integer():
    plan = _plan(clients_per_round=4.0)
    assert plan == _plan() and plan.digest() == _plan().digest()
    with pytest.raises(ValueError, match='clients_per_round=4.5: must be an integer'):
        _plan(clients_per_round=4.5)


@pytest.mark.parametrize('seed', [-1, 0.5, True])
def test_a_bad_seed_is_named(seed):
    with pytest.raises(ValueError, match=f'seed={seed}: must be an integer >= 0'):
        aggregators.build_aggregator(_plan(), seed=seed)


def test_a_factory_that_is_given_sees_clipped_updates_in_their_own_scale():
    plan = _plan(noise_multiplier=0.0, clip_norm=1.0)
    norm = tff.tensorflow.computation(lambda update: tf.norm(update))
    measured = tff.aggregators.add_measurements(
        tff.aggregators.SecureSumFactory(plan.clip_norm, -plan.clip_norm),
        client_measurement_fn=lambda value: collections.OrderedDict(
            largest=tff.federated_max(tff.federated_map(norm, value))
        ),
    )
    process = aggregators.build_aggregator(plan, record_aggregation_factory=measured).create(
        tff.TensorType(np.float32, [2])
    )
    # What the context of `tff.backends.test` does before it executes.
    next_round = tff.backends.test.replace_secure_intrinsics_with_bodies(process.next)
    values = [np.array(each, np.float32) for each in ([3, 4], [0.1, 0])]
    output = next_round(process.initialize(), values)
    np.testing.assert_allclose(output['result'], np.array([0.7, 0.8]) / plan.denominator, rtol=1e-4)
    measurements = output['measurements']['dp']
    assert measurements['largest'] == pytest.approx(plan.clip_norm, rel=1e-4)
    assert measurements['secure_upper_clipped_count'] == 0


def test_a_sum_of_ones_own_is_no_secure_sum():
    plan = _plan(discretization=accounting.Discretization(2.0**14, 2, 0.5))
    with pytest.raises(ValueError, match='secure_sum=True: must be False with a record_aggre'):
        aggregators.build_aggregator(
            plan, secure_sum=True, record_aggregation_factory=tff.aggregators.SumFactory()
        )
