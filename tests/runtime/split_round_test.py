"""A round split in three parts: what each part gets, and how updates are joined."""

import functools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from dpfl.runtime import contexts, split_round
from tests.simulation import toy_experiment

pytestmark = pytest.mark.tff


@functools.cache
def _process():
    return toy_experiment.experiment().process


def test_shards_get_no_more_than_model_and_clip_norm():
    split = split_round.split(_process().next)
    message = split.work.type_signature.parameter[0]
    assert str(message) == '<<trainable=<float32[2]>,non_trainable=<>>@SERVER,float32@SERVER>'


def test_what_has_shards_can_be_split_if_it_has_a_state():
    @tff.federated_computation(tff.FederatedType(np.float32, tff.CLIENTS))
    def without_state(values):
        return tff.federated_sum(values)

    process = _process()
    computations = (process.initialize, process.get_model_weights, process.next, without_state)
    assert [*map(split_round.has_shards, computations)] == [False, False, True, True]
    with pytest.raises(ValueError, match='computation: must take a state and shards, takes'):
        split_round.split(without_state)


@tff.tensorflow.computation(np.float32)
def _drawn(state):
    return state + tf.random.uniform([])


@tff.tensorflow.computation(np.float32, np.float32)
def _first(seen, value):
    del value
    return seen


@tff.federated_computation(
    tff.FederatedType(np.float32, tff.SERVER), tff.FederatedType(np.float32, tff.CLIENTS)
)
def _drawing_round(state, values):
    drawn = tff.federated_map(_drawn, state)
    seen = tff.federated_zip((tff.federated_broadcast(drawn), values))
    return drawn, tff.federated_max(tff.federated_map(_first, seen))


def test_what_the_server_draws_for_the_shards_is_drawn_once():
    split = split_round.split(_drawing_round)
    with contexts.local_runtime():
        message, kept = split.begin(0.0)
        drawn, seen = split.finish(kept, split.work(message, [1.0, 2.0]))
    assert drawn == seen > 0


def test_updates_are_joined_in_order():
    at_clients = tff.FederatedType(np.int32, tff.CLIENTS)
    parts = [([1, 2], ([10, 20], ())), ([3], ([30], ()))]
    updates_type = tff.to_type([at_clients, [at_clients, []]])
    assert split_round.join(parts, updates_type) == ([1, 2, 3], ([10, 20, 30], ()))
    named = tff.to_type([('a', at_clients)])
    assert split_round.join([{'a': [1]}, {'a': [2]}], named) == ([1, 2],)
    assert split_round.join([], updates_type) == ([], ([], ()))


@tff.federated_computation(
    tff.FederatedType(np.float32, tff.SERVER), tff.FederatedType(np.float32, tff.CLIENTS)
)
def _extremes(state, values):
    return state, (tff.federated_sum(values), tff.federated_max(values))


def test_rounds_that_only_add_updates():
    assert split_round.split(_process().next).only_adds
    assert not split_round.split(_extremes).only_adds


@pytest.mark.parametrize('num_parts', [1, 2, 3, 7])
def test_an_update_is_cut_and_put_together(num_parts):
    vector = tff.TensorType(np.float64, [5])
    matrix, scalar = tff.TensorType(np.float32, [2, 3]), tff.TensorType(np.float64, [])
    member = tff.StructType([('a', vector), ('b', [matrix, scalar, []])])
    updates_type = tff.StructType(
        [tff.FederatedType(member, tff.CLIENTS), tff.FederatedType(np.float32, tff.CLIENTS)]
    )
    assert split_round.num_bytes(updates_type) == 5 * 8 + 6 * 4 + 8 + 4
    tensors = np.arange(5.0), np.arange(6, dtype=np.float32).reshape(2, 3), np.float64(7.0)
    loss = np.float32(8.0)
    update = [[{'a': tensors[0], 'b': (tensors[1], tensors[2], ())}], [loss]]
    unknown = tff.FederatedType(tff.TensorType(np.float32, [None]), tff.CLIENTS)
    assert split_round.num_bytes(unknown) is None
    parts = split_round.cut(update, updates_type, num_parts)
    assert len(parts) == num_parts
    sizes = [sum(vector.nbytes for vector in part) for part in parts]
    assert max(sizes) - min(sizes) <= 8 + 4
    (whole,), (last,) = split_round.uncut(parts, updates_type)
    for found, expected in zip([whole.a, *whole.b[:2], last], [*tensors, loss], strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
