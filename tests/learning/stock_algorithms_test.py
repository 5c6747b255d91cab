"""Pipelines that were written for TFF 0.87 and Keras 2 run as they are, with our aggregators."""

import asyncio
import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import aggregators, mechanisms
from dpfl.runtime import contexts
from tests.aggregators import rounds

pytestmark = pytest.mark.tff
_ROUNDS, _COHORT = 3, 4
_SGD = tff.learning.optimizers.build_sgdm
_algorithms = tff.learning.algorithms


def _preprocess(dataset):
    def flat(row):
        return collections.OrderedDict(x=tf.reshape(row['pixels'], [784]), y=row['label'])

    return dataset.take(20).map(flat).batch(10)


@pytest.fixture(scope='module', name='data')
def _data():
    """Four clients of TFF's made-up digits."""
    source = tff.simulation.datasets.emnist.get_synthetic().preprocess(_preprocess)
    client = source.create_tf_dataset_for_client(source.client_ids[0])
    return [client] * _COHORT


def _model_fn(data):
    def build():
        network = tf.keras.Sequential(
            [
                tf.keras.layers.InputLayer(input_shape=(784,)),
                tf.keras.layers.Dense(10, kernel_initializer='zeros'),
            ]
        )
        return tff.learning.models.from_keras_model(
            network,
            input_spec=data[0].element_spec,
            loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=[tf.keras.metrics.SparseCategoricalAccuracy()],
        )

    return build


def _aggregator(noise_multiplier):
    plan = rounds.plan(mechanisms.Identity(_ROUNDS), _COHORT, noise_multiplier=noise_multiplier)
    return aggregators.build_aggregator(plan, seed=1)


# One without weights, and one with weights that trains otherwise.
_PROCESSES = {
    'fed_avg': lambda model, noise: _algorithms.build_unweighted_fed_avg(
        model, _SGD(0.02), _SGD(1.0), model_aggregator=_aggregator(noise)
    ),
    'mime_lite': lambda model, noise: _algorithms.build_weighted_mime_lite(
        model,
        _SGD(0.02),
        _SGD(1.0),
        client_weighting=tff.learning.ClientWeighting.UNIFORM,
        # Under a plan all weights are 1.
        model_aggregator=tff.aggregators.as_weighted_aggregator(_aggregator(noise)),
    ),
}


def _accuracy(process, model, data):
    state = process.initialize()
    for _ in range(_ROUNDS):
        state = process.next(state, data).state
    weights = process.get_model_weights(state)
    evaluation = _algorithms.build_fed_eval(model)
    started = evaluation.set_model_weights(evaluation.initialize(), weights)
    metrics = evaluation.next(started, data).metrics
    measured = metrics['client_work']['eval']['current_round_metrics']
    norm = np.sqrt(sum((np.asarray(weight) ** 2).sum() for weight in weights.trainable))
    return measured['sparse_categorical_accuracy'], norm


@pytest.mark.standard
@pytest.mark.parametrize('name', _PROCESSES)
def test_an_algorithm_learns_with_our_clip_and_shows_our_noise(name, data):
    model = _model_fn(data)
    with contexts.local_runtime():
        accuracy, norm = _accuracy(_PROCESSES[name](model, 0.0), model, data)
        assert accuracy > 0.5 and 0 < norm <= 0.5 * _ROUNDS * 1.001
        _, noisy = _accuracy(_PROCESSES[name](model, 5.0), model, data)
    # Three rounds of 7850 coordinates with the standard deviation 5 * 0.5 / 4.
    assert noisy == pytest.approx(np.sqrt(_ROUNDS * 7850) * 0.625, rel=0.05)


@pytest.mark.standard
def test_the_context_of_tff_itself_computes_the_same(data):
    """`worker_binary`, which comes with TFF's wheel."""
    model = _model_fn(data)
    process = _PROCESSES['fed_avg'](model, 0.0)
    with contexts.local_runtime():
        ours = _accuracy(process, model, data)
    tff.backends.native.set_sync_local_cpp_execution_context()
    assert _accuracy(process, model, data) == pytest.approx(ours, rel=1e-5)


@pytest.mark.standard
def test_a_program_trains_and_saves(data, tmp_path):
    process = _PROCESSES['fed_avg'](_model_fn(data), 1.0)
    manager = tff.program.FileProgramStateManager(tmp_path)
    released = tff.program.MemoryReleaseManager()

    async def run():
        state = process.initialize()
        for t in range(_ROUNDS):
            state = await tff.program.materialize_value(state)
            output = await tff.program.materialize_value(process.next(state, data))
            state = output.state
            await manager.save(state, t)
            await released.release(output.metrics['client_work'], t)

    with contexts.local_runtime(for_programs=True):
        asyncio.run(run())
        versions = asyncio.run(manager.get_versions())
    assert list(versions) == list(range(_ROUNDS)) and list(released.values()) == [0, 1, 2]
