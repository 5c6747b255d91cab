"""The aggregator in TFF: limits of a plan, and what is refused; `family_test.py` has the rest."""

import collections

import dp_accounting
import numpy as np
import pytest
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


def test_an_integer_tensor_is_refused():
    value_type = tff.to_type(collections.OrderedDict(w=np.float32, n=[np.float32, np.int32]))
    with pytest.raises(TypeError, match='record/n/1 has a int32 tensor: must be float32 or'):
        aggregators.build_aggregator(_plan()).create(value_type)


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
