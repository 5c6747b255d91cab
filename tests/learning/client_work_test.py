"""The output of a shard against a NumPy loop over its clients. Starts no TFF runtime."""

import collections
import functools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from tensorflow.core.framework import dataset_options_pb2

from dpfl import aggregators, learning, mechanisms
from dpfl.learning import client_work
from tests.aggregators import rounds
from tests.learning import models

_RATE = 0.1
_CLIP, _CLIENTS = 0.4, 3


def _query():
    return aggregators.build_query(rounds.plan(mechanisms.Identity(1), _CLIENTS, clip_norm=_CLIP))


def _weights():
    model = models.least_squares()
    return tff.learning.models.ModelWeights(*model.initial_weights)


@functools.cache
def _build(kind='fedavg', train_metrics=True):
    model = models.least_squares()
    update = {
        'fedavg': client_work.fedavg(model, tff.learning.optimizers.build_sgdm(_RATE)),
        'fedsgd': client_work.fedsgd(model),
    }[kind]
    return client_work.build_shard_work(model, update, _query(), train_metrics=train_metrics)


def _work(shards, *args, **kwargs):
    """Sums of the records and of the metrics over all shards."""
    work = _build(*args, **kwargs)
    outputs = [work(_weights(), tf.constant(_CLIP), shard) for shard in shards]
    totals, metrics = tf.nest.map_structure(
        lambda *parts: sum(part.numpy() for part in parts), *outputs
    )
    return list(totals), metrics


@pytest.mark.standard
def test_nothing_tunes_how_a_shard_is_read():
    # The end of an iterator waits for the tuning thread, which sleeps for up to a round.
    (shard,) = learning.shard(models.COHORT, 1)
    weights = tf.nest.map_structure(tf.constant, _weights())
    graph = _build().get_concrete_function(weights, tf.constant(_CLIP), shard).graph
    (operation,) = (op for op in graph.get_operations() if op.type == 'OptionsDataset')
    (reader,) = (op for op in graph.get_operations() if op.type == 'MakeIterator')
    assert reader.inputs[0].op is operation
    options = dataset_options_pb2.Options.FromString(operation.get_attr('serialized_options'))
    assert not options.autotune_options.enabled and options.autotune_options.HasField('enabled')


@pytest.mark.standard
def test_a_users_loss_and_optimizer_may_have_python_control_flow_over_tensors():
    model = models.least_squares()

    def loss(output, label, sample_weight=None):
        if tf.reduce_sum(output) > 1e9:  # noqa: SIM108 - an expression would not be converted
            scale = 2.0
        else:
            scale = 1.0
        return scale * tf.reduce_mean((output - label) ** 2)

    model._loss_fn = loss

    class Sgd(type(tff.learning.optimizers.build_sgdm(_RATE))):
        def next(self, state, weights, gradients):
            if tf.reduce_sum(gradients[0]) > 1e9:
                weights = gradients
            return super().next(state, weights, gradients)

    update = client_work.fedavg(model, Sgd(_RATE))
    work = client_work.build_shard_work(model, update, _query(), train_metrics=False)
    (shard,) = learning.shard(models.COHORT, 1)
    sums, _ = work(_weights(), tf.constant(_CLIP), shard)
    expected, _ = _work([shard])
    tf.nest.map_structure(np.testing.assert_array_equal, list(sums), expected)


@pytest.mark.parametrize('kind', ['fedavg', 'fedsgd'])
@pytest.mark.parametrize('num_shards', [1, 2, 3, 5])
def test_each_client_is_clipped_on_its_own(kind, num_shards):
    total, metrics = _work(learning.shard(models.COHORT, num_shards), kind)
    # By how much clients lower the weights, or gradients.
    trained = models.trained if kind == 'fedavg' else models.gradient_step
    rate = _RATE if kind == 'fedavg' else 1.0
    records = [trained(client, rate) for client in models.COHORT]
    norms = [rounds.norm(record) for record in records]
    assert min(norms) < _CLIP < max(norms)  # Both sides of the clipping are tested.
    clipped = [rounds.clipped(record, _CLIP) for record in records]
    for actual, *leaves in zip(total, *clipped, strict=True):
        np.testing.assert_allclose(actual, -sum(leaves), rtol=1e-4, atol=1e-6)
    assert metrics['num_batches'] == 9


# The last one makes a record of finite numbers whose squares are not.
@pytest.mark.parametrize('feature', [np.nan, np.inf, 1e12])
def test_a_record_without_a_finite_norm_counts_as_zero(feature):
    broken = models.client(7, [3, 2])
    broken[1]['x'][0, 0] = feature
    whole, metrics = _work(learning.shard([*models.COHORT[:2], broken, *models.COHORT[2:]], 1))
    without, metrics_without = _work(learning.shard(models.COHORT, 1))
    tf.nest.map_structure(np.testing.assert_array_equal, whole, without)
    assert metrics == metrics_without


def test_a_data_set_without_marker_is_one_client():
    for client in models.COHORT:
        one, _ = _work([models.dataset(client, models.COHORT[0][0])])
        other, _ = _work(learning.shard([client, models.COHORT[0]], 1))
        first, _ = _work(learning.shard([models.COHORT[0]], 1))
        for actual, both, alone in zip(one, other, first, strict=True):
            np.testing.assert_allclose(actual, both - alone, atol=1e-6)


def test_a_batch_without_rows_within_a_client_is_an_error():
    # Otherwise it would end the client, and the rest would be clipped as another client.
    rows = collections.OrderedDict(x=np.ones((5, 2), np.float32), y=np.ones((5, 1), np.float32))
    dataset = tf.data.Dataset.from_tensors(rows).rebatch(np.array([3, 0, 2], np.int64))
    with pytest.raises(tf.errors.InvalidArgumentError, match='batch without rows'):
        _work([dataset])


def test_metrics_only_if_asked_for():
    _, metrics = _work(learning.shard(models.COHORT, 2), train_metrics=False)
    assert metrics == {}
