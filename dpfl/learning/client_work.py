"""Trains the simulated clients of one shard, one after the other, in one TensorFlow graph.

Each client starts from the broadcast model and sees only its own batches. Its record passes through
`preprocess_record` of the query on its own, so clipping is per client. Only the sum over the
clients leaves the shard. There is no padding: a client costs only its own batches.
"""

import collections
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff
import tensorflow_privacy as tfp

from dpfl.aggregators import clipping, estimators
from dpfl.aggregators import query as query_lib


@dataclasses.dataclass(frozen=True)
class ClientUpdate:
    """How a client turns the model and its batches into a record: three pure functions.

    Attributes:
      start: trainable weights -> state before the first batch.
      step: (weights as the model takes them, sample parameters of the query, state, batch) ->
        (state, `BatchOutput` of the model).
      finish: (trainable weights, state) -> record, in the structure of the trainable weights.
    """

    start: Callable[[Any], Any]
    step: Callable[[Any, Any, Any, Any], tuple[Any, tff.learning.models.BatchOutput]]
    finish: Callable[[Any, Any], Any]


def fedavg(
    model: tff.learning.models.FunctionalModel,
    optimizer: tff.learning.optimizers.Optimizer,
    clip_each_batch: clipping.Clip | None = None,
) -> ClientUpdate:
    """FedAvg: a step of a fresh optimizer per batch. The record is the old minus the new model.

    Args:
      model: the model to train.
      optimizer: of the local steps.
      clip_each_batch: clips how far the model has moved from the broadcast model after every batch,
        to the clip norm in use ([McMahan18], algorithm 1, UserUpdateFedAvg); None for no clip
        before the record is complete. A model that has no finite distance is left as it is, so
        that its record is recognised.
    """

    def start(trainable):
        specs = tf.nest.map_structure(tf.TensorSpec.from_tensor, trainable)
        return trainable, optimizer.initialize(specs)

    def step(weights, sample_params, state, batch):
        trainable, optimizer_state = state
        gradients, output = _gradients(model, (trainable, weights[1]), batch)
        optimizer_state, trainable = optimizer.next(optimizer_state, trainable, gradients)
        if clip_each_batch is not None:
            bound = query_lib.innermost(sample_params)
            trainable = _clipped_around(weights[0], trainable, clip_each_batch, bound)
        return (trainable, optimizer_state), output

    def finish(trainable, state):
        return tf.nest.map_structure(tf.subtract, trainable, state[0])

    return ClientUpdate(start, step, finish)


def fedsgd(model: tff.learning.models.FunctionalModel, learning_rate: float = 1.0) -> ClientUpdate:
    """FedSGD: one step of SGD over the client's examples ([McMahan18], algorithm 1).

    The record is the mean gradient at the broadcast model times the learning rate, so the clip norm
    bounds how far the client moves the model.
    """

    def start(trainable):
        return tf.nest.map_structure(tf.zeros_like, trainable), tf.zeros([])

    def step(weights, sample_params, state, batch):
        del sample_params
        total, num_examples = state
        gradients, output = _gradients(model, weights, batch)
        count = tf.cast(output.num_examples, tf.float32)
        total = tf.nest.map_structure(
            lambda sum_, gradient: sum_ + tf.cast(count, gradient.dtype) * gradient,
            total,
            gradients,
        )
        return (total, num_examples + count), output

    def finish(trainable, state):
        del trainable
        total, num_examples = state
        return tf.nest.map_structure(
            lambda sum_: (
                tf.cast(learning_rate, sum_.dtype)
                * tf.math.divide_no_nan(sum_, tf.cast(num_examples, sum_.dtype))
            ),
            total,
        )

    return ClientUpdate(start, step, finish)


def _clipped_around(centre, trainable, clip, clip_norm):
    """The weights, with their distance from `centre` clipped."""
    moved = tf.nest.map_structure(tf.subtract, trainable, centre)
    is_finite = tf.math.is_finite(clipping.norm(moved))
    return tf.nest.map_structure(
        lambda new, old, change: tf.where(is_finite, old + change, new),
        trainable,
        centre,
        clip(moved, clip_norm),
    )


def pair(batch: Any) -> tuple[Any, Any]:
    """Inputs and labels of a batch, or of its specs: a mapping with 'x' and 'y', or a pair."""
    return (batch['x'], batch['y']) if isinstance(batch, Mapping) else batch


def _gradients(model, weights, batch):
    """Dense gradients of the batch's loss, and the model's `BatchOutput`."""
    x, y = pair(batch)
    with tf.GradientTape() as tape:
        tape.watch(weights[0])
        predictions = model.predict_on_batch(weights, x, training=True)
        loss = model.loss(output=predictions, label=y)
    gradients = tape.gradient(loss, weights[0], unconnected_gradients=tf.UnconnectedGradients.ZERO)
    gradients = tf.nest.map_structure(tf.convert_to_tensor, gradients)
    num_examples = tf.shape(tf.nest.flatten(predictions)[0])[0]
    return gradients, tff.learning.models.BatchOutput(loss, predictions, num_examples)


class _Shard(NamedTuple):
    """State of the loop over the batches of a shard.

    Attributes:
      batches: number of batches read, markers included, int64 scalar.
      is_marked: whether the first one was a marker.
      client: state of the current client's update.
      examples: rows of the current client's batches, int64 scalar.
      metrics: state of the current client's metrics.
      sample: the query's sum over the clients before the current one.
      sample_metrics: sum of the metrics over the clients before the current one.
    """

    batches: Any
    is_marked: Any
    client: Any
    examples: Any
    metrics: Any
    sample: Any
    sample_metrics: Any


def build_shard_work(
    model: tff.learning.models.FunctionalModel,
    client_update: ClientUpdate,
    query: tfp.DPQuery,
    *,
    train_metrics: bool,
    weighted: bool = False,
    client_epochs: int = 1,
) -> Callable[[tff.learning.models.ModelWeights, Any, tf.data.Dataset], tuple[Any, Any]]:
    """The work of a shard.

    Args:
      model: the model to train; batches match its `input_spec`.
      client_update: the computation of a client.
      query: its client side is applied to every record.
      train_metrics: whether to compute the model's metrics over the training batches.
      weighted: whether the query takes `aggregators.WeightedRecord`, with the number of different
        examples of the client: the rows of its batches over `client_epochs`. That of a record
        without finite norm is 0.
      client_epochs: passes over the client's examples that its batches contain.

    Returns:
      A function (weights, sample parameters of the query, shard as `shards.shard` makes it) ->
      (sum of the preprocessed records, sum of the metrics' states or () without metrics). A client
      whose record has no finite norm contributes a zero record, and nothing to the metrics.

    Raises (when executed):
      tf.errors.InvalidArgumentError: if a batch within a client's data has no rows.
    """
    zero_metrics = model.initialize_metrics_state if train_metrics else collections.OrderedDict

    @tf.function
    def shard_work(weights, sample_params, batches):
        weights = (tuple(weights.trainable), tuple(weights.non_trainable))

        def begin_client(shard):
            return shard._replace(
                client=client_update.start(weights[0]),
                examples=tf.constant(0, tf.int64),
                metrics=zero_metrics(),
            )

        def end_client(shard):
            record, is_finite = _zero_unless_finite(client_update.finish(weights[0], shard.client))
            if weighted:
                examples = shard.examples // client_epochs
                count = tf.where(is_finite, examples, tf.zeros([], tf.int64))
                record = estimators.WeightedRecord(record, count)
            record = query.preprocess_record(sample_params, record)
            sample = query.accumulate_preprocessed_record(shard.sample, record)
            kept = tf.cond(is_finite, lambda: shard.metrics, zero_metrics)
            total = tf.nest.map_structure(tf.add, shard.sample_metrics, kept)
            return shard._replace(sample=sample, sample_metrics=total)

        def mark(shard):
            is_first = tf.equal(shard.batches, 0)
            allowed = tf.debugging.Assert(
                is_first | shard.is_marked, ['The data of a client has a batch without rows.']
            )
            with tf.control_dependencies([allowed] if allowed is not None else []):
                shard = shard._replace(is_marked=tf.constant(True))
            return tf.cond(is_first, lambda: shard, lambda: begin_client(end_client(shard)))

        def train(shard, batch):
            client, output = client_update.step(weights, sample_params, shard.client, batch)
            metrics = shard.metrics
            if train_metrics:
                labels = pair(batch)[1]
                metrics = model.update_metrics_state(metrics, labels=labels, batch_output=output)
            examples = shard.examples + _num_rows(batch)
            return shard._replace(client=client, examples=examples, metrics=metrics)

        template = weights[0]
        if weighted:
            template = estimators.WeightedRecord(template, tf.zeros([], tf.int64))
        shard = begin_client(
            _Shard(
                batches=tf.constant(0, tf.int64),
                is_marked=tf.constant(False),
                client=None,
                examples=None,
                metrics=None,
                sample=query.initial_sample_state(template),
                sample_metrics=zero_metrics(),
            )
        )
        # Without `iter` this becomes an operation that re-optimises the graph in every round.
        for batch in iter(batches.with_options(_reading())):
            shard = tf.cond(
                _num_rows(batch) > 0, lambda s=shard, b=batch: train(s, b), lambda s=shard: mark(s)
            )
            shard = shard._replace(batches=shard.batches + 1)
        shard = end_client(shard)
        return shard.sample, shard.sample_metrics

    return shard_work


def _reading() -> tf.data.Options:
    """Options for reading a shard: no tuning, since the batches are already in memory.

    TensorFlow's autotuning thread sleeps for 10, 20, 40, 80 ... ms, and the end of the iterator
    waits until it wakes up: up to half of a round.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    return options


def _num_rows(batch):
    return tf.shape(tf.nest.flatten(batch)[0], tf.int64)[0]


def _zero_unless_finite(record):
    """The record, or zeros if its norm is not finite; and whether it was finite."""
    leaves = tf.nest.flatten(record)
    # Clipping computes the same norm; TensorFlow computes it once.
    is_finite = tf.math.is_finite(clipping.norm(leaves))
    zeroed = tf.cond(is_finite, lambda: leaves, lambda: [tf.zeros_like(leaf) for leaf in leaves])
    return tf.nest.pack_sequence_as(record, zeroed), is_finite
