"""A round split in three parts: what each part gets, and how updates are joined."""

import numpy as np
import pytest
import tensorflow_federated as tff

from dpfl.runtime import split_round
from tests.simulation import toy_experiment

pytestmark = pytest.mark.tff


def test_shards_get_no_more_than_model_and_clip_norm():
    split = split_round.split(toy_experiment.experiment().process.next)
    message = split.work.type_signature.parameter[0]
    assert str(message) == '<<trainable=<float32[2]>,non_trainable=<>>@SERVER,float32@SERVER>'


def test_a_round_of_another_form_is_refused():
    @tff.federated_computation(tff.FederatedType(np.float32, tff.CLIENTS))
    def without_state(values):
        return tff.federated_sum(values)

    assert split_round.has_shards(without_state)
    with pytest.raises(ValueError, match='computation: must take a state and shards, takes'):
        split_round.split(without_state)


def test_a_computation_without_shards_has_none():
    process = toy_experiment.experiment().process
    assert not split_round.has_shards(process.initialize)
    assert not split_round.has_shards(process.get_model_weights)
    assert split_round.has_shards(process.next)


def test_updates_are_joined_in_order():
    at_clients = tff.FederatedType(np.int32, tff.CLIENTS)
    parts = [([1, 2], ([10, 20], ())), ([3], ([30], ()))]
    updates_type = tff.to_type([at_clients, [at_clients, []]])
    assert split_round.join(parts, updates_type) == ([1, 2, 3], ([10, 20, 30], ()))
    named = tff.to_type([('a', at_clients)])
    assert split_round.join([{'a': [1]}, {'a': [2]}], named) == ([1, 2],)
    assert split_round.join([], updates_type) == ([], ([], ()))
