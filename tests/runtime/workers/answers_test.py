"""Whatever a worker answers, a run ends at worst in one line that names the worker."""

import grpc
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
import tree
from tensorflow_federated.proto.v0 import data_type_pb2, executor_pb2

from dpfl import learning
from dpfl.runtime import contexts
from tests.runtime.workers import lying_worker
from tests.simulation import toy_experiment

pytestmark = pytest.mark.tff

_INT32, _INT64 = (data_type_pb2.DataType.Value(name) for name in ('DT_INT32', 'DT_INT64'))


@tff.federated_computation(
    tff.FederatedType(np.int64, tff.SERVER), tff.FederatedType(np.int64, tff.CLIENTS)
)
def _round(state, values):
    add = tff.tensorflow.computation(lambda a, b: a + b, (np.int64, np.int64))
    sums = tff.federated_map(add, (tff.federated_broadcast(state), values))
    return tff.federated_sum(sums), state


def _number(value):
    made = executor_pb2.Value()
    made.array.dtype = _INT64
    made.array.shape.SetInParent()
    made.array.int64_list.value.append(value)
    return made


def _updates(*members):
    return lying_worker.struct(lying_worker.federated(*members))


def _result(answer):
    """The result of a round with two clients, whose worker gives this answer."""
    with lying_worker.lying_worker(lying_worker.probed(), answer) as address:
        with contexts.distributed_runtime([address]):
            return _round(0, [1, 1])


def _sequence(path):
    """A data set that writes a file when TFF reads it."""
    dataset = tf.data.experimental.to_variant(tf.data.Dataset.range(1))
    graph = tf.compat.v1.GraphDef.FromString(
        tf.raw_ops.DatasetToGraphV2(
            input_dataset=dataset, external_state_policy=0, strip_device_assignment=True
        ).numpy()
    )
    with tf.Graph().as_default() as writing:
        tf.raw_ops.WriteFile(filename=str(path), contents='written', name='write')
    graph.MergeFrom(writing.as_graph_def())
    for node in graph.node:
        if node.op == 'RangeDataset':
            node.input.append('^write')
    made = executor_pb2.Value()
    made.sequence.serialized_graph_def = graph.SerializeToString()
    made.sequence.element_type.tensor.dtype = _INT64
    return made


def test_what_fits_is_taken():
    assert _result(_updates(_number(3), _number(4))) == (7, 0)


def test_a_graph_in_an_answer_is_not_executed(tmp_path):
    path = tmp_path / 'file'
    answer = _sequence(path)
    for members in ((answer, answer), (_number(1), answer)):
        with pytest.raises(contexts.WorkerError, match='neither an array nor a structure'):
            _result(_updates(*members))
    assert not path.exists()


def _deep(levels):
    value = _number(1)
    for _ in range(levels):
        value = lying_worker.struct(value)
    return value


def _computation():
    made = executor_pb2.Value()
    made.computation.CopyFrom(
        tff.framework.serialize_computation(tff.tensorflow.computation(lambda: 1))
    )
    return made


def _huge():
    made = lying_worker.array(np.zeros(1, np.int64), _INT64, [1])
    made.array.shape.dim[:] = [1 << 40]
    return made


@pytest.mark.parametrize(
    'answer',
    [
        executor_pb2.Value(),
        lying_worker.struct(_number(1)),
        _updates(_number(1)),
        _updates(_number(1), lying_worker.array(1, _INT32)),
        _updates(_number(1), lying_worker.array(np.zeros(2, np.int64), _INT64, [2])),
        _updates(_number(1), lying_worker.struct(_number(1))),
        _updates(_number(1), _huge()),
        _updates(_number(1), _computation()),
        _deep(20),
        b'\xff' * 100,
    ],
    ids=range(10),
)
def test_what_does_not_fit_is_refused(answer):
    with pytest.raises(contexts.WorkerError) as caught:
        _result(answer)
    message = str(caught.value)
    assert message.startswith('worker 127.0.0.1:')
    assert '\n' not in message and len(message) < 700


def test_what_a_worker_says_cannot_command_the_terminal():
    def fail(context):
        context.abort(grpc.StatusCode.INTERNAL, '\x1b[2J\x07\n' + 'a' * 3000)

    with pytest.raises(contexts.WorkerError) as caught:
        _result(fail)
    assert isinstance(caught.value, contexts.ComputationError)
    message = str(caught.value)
    assert message.isprintable() and len(message) < 600


def test_a_worker_that_cannot_add_is_refused():
    probed = lying_worker.probed()
    probed.struct.element[0].value.array.int32_list.value[:] = [41]
    with lying_worker.lying_worker(probed) as address:
        with pytest.raises(contexts.WorkerError, match=r'computes wrongly: 42 \+ 1 = 41'):
            with contexts.distributed_runtime([address]):
                pass


@pytest.mark.standard
def test_nothing_of_the_noise_is_sent():
    process = toy_experiment.experiment(noise_multiplier=3.0).process
    shards = learning.shard(map(toy_experiment.data, range(3)), 2)
    with contexts.local_runtime():
        state = process.next(process.initialize(), shards).state

    def fail(context):
        context.abort(grpc.StatusCode.INTERNAL, 'heard enough')

    heard = []
    with lying_worker.lying_worker(lying_worker.probed(), fail, heard=heard) as address:
        with contexts.distributed_runtime([address]):
            with pytest.raises(contexts.WorkerError, match='heard enough'):
                process.next(state, shards)
    sent = b''.join(heard)
    secret = [np.asarray(leaf) for leaf in tree.flatten((state.aggregator, state.finalizer))]
    # The key, the buffers of past noise and the momentum, which are not zero; small counters and
    # the clip norm are in any message by chance.
    secret = [leaf for leaf in secret if leaf.nbytes >= 8 and leaf.any() and leaf.shape]
    assert len(secret) >= 3
    assert not [leaf for leaf in secret if leaf.tobytes() in sent]
    (weights,) = state.global_model_weights.trainable
    assert np.asarray(weights).tobytes() in sent  # As it would be found, if it were there.
