"""Tests of the compilation of TFF computations."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from dpfl.runtime import compilation, interpreter
from dpfl.tasks.text.models import cifg

pytestmark = pytest.mark.tff


_LENGTH = 3


@tff.tensorflow.computation(tff.TensorType(np.float32, [_LENGTH, 2, 12]))
def gradient_of_a_recurrence(inputs):
    @tf.function  # As the functions of a model are.
    def outputs(inputs):
        return cifg.recurrence(inputs, tf.ones([3, 12]), tf.ones([4, 3]))

    with tf.GradientTape() as tape:
        tape.watch(inputs)
        total = tf.reduce_sum(outputs(inputs))
    return tape.gradient(total, inputs)


def _operations(computation) -> collections.Counter:
    """Number of operations of each kind in its graph."""
    graph_def = tf.compat.v1.GraphDef()
    proto = tff.framework.serialize_computation(computation)
    proto.tensorflow.graph_def.Unpack(graph_def)
    nodes = [*graph_def.node, *(n for f in graph_def.library.function for n in f.node_def)]
    return collections.Counter(node.op for node in nodes)


def test_activations_are_not_computed_again_for_their_gradients():
    # Two gates of each position.
    assert _operations(compilation.compiled(gradient_of_a_recurrence))['Sigmoid'] == 2 * _LENGTH
    # The reason for not using TFF's compilation as it is.
    stock = tff.backends.native.desugar_and_transform_to_native(gradient_of_a_recurrence)
    assert _operations(stock)['Sigmoid'] > 2 * _LENGTH


def test_the_result_is_that_of_tff():
    inputs = np.random.default_rng(0).normal(size=(_LENGTH, 2, 12)).astype(np.float32)
    running = interpreter.Interpreter(num_threads=1)
    ours = running.execute(gradient_of_a_recurrence, inputs)
    running.close()
    stock = tff.backends.native.create_sync_local_cpp_execution_context()
    with tff.framework.get_context_stack().install(stock):
        np.testing.assert_allclose(ours, gradient_of_a_recurrence(inputs), rtol=1e-5)
