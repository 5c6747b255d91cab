"""A whole experiment on a toy problem: least squares with two weights, three clients in a round.

`experiment` trains in TFF. `in_numpy` has a process of a few lines in its place, whose rounds take
no time, for tests of what a run does around its rounds: checkpoints, ledger, log, files, errors.
"""

import collections
import dataclasses
import itertools
import pathlib
import secrets
import typing
from collections.abc import Callable

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import Participation, accounting, learning, mechanisms
from dpfl.accounting.records import archive
from dpfl.aggregators.noise import correlated
from dpfl.simulation import program, run_directory, sampling
from dpfl.simulation.training import ExecutionConfig

ROUNDS = 4
TARGET = np.array([0.5, -1.0], np.float32)


def model() -> tff.learning.models.FunctionalModel:
    """Least squares with two weights; `accuracy` is minus the loss, to have the metric."""
    spec = (tf.TensorSpec([None, 2]), tf.TensorSpec([None, 1]))

    @tf.function
    def predict(weights, x, training):
        del training
        return tf.linalg.matvec(x, weights[0][0])[:, None]

    def loss(output, label, sample_weight=None):
        del sample_weight
        return tf.reduce_mean((output - label) ** 2)

    @tf.function
    def initialize():
        return collections.OrderedDict(loss=tf.zeros([]))

    @tf.function
    def update(state, labels, batch_output, sample_weight=None):
        del sample_weight
        total = state['loss'] + loss(batch_output.predictions, labels)
        return collections.OrderedDict(loss=total)

    @tf.function
    def finalize(state):
        return collections.OrderedDict(loss=state['loss'], accuracy=-state['loss'])

    return tff.learning.models.FunctionalModel(
        initial_weights=((np.zeros(2, np.float32),), ()),
        predict_on_batch_fn=predict,
        loss_fn=loss,
        metrics_fns=(initialize, update, finalize),
        input_spec={'x': spec[0], 'y': spec[1]},
    )


def data(client: int) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(rows(client)[0]).batch(4)


class State(typing.NamedTuple):
    """What a process knows after a round."""

    global_model_weights: typing.Any
    noise: correlated.NoiseState


class Output(typing.NamedTuple):
    """What a process gives of a round."""

    state: State
    metrics: typing.Any


class Process:
    """Adds the mean of the data and the noise of key and round to two weights, in NumPy."""

    def __init__(self, noise_seed: int | None):
        self._seed = noise_seed

    def initialize(self) -> State:
        seed = secrets.randbits(60) if self._seed is None else self._seed
        noise = correlated.NoiseState(np.array([seed, 7], np.int64), np.int64(0), (), ())
        return State(_weights(np.zeros(2, np.float32)), noise)

    def get_model_weights(self, state: State) -> tff.learning.models.ModelWeights:
        return state.global_model_weights

    def next(self, state: State, shards: typing.Any) -> Output:
        key, t, _, past = state.noise
        noise = 0.01 * np.random.default_rng([*key.view(np.uint64), t]).normal(size=2)
        read = [list(shard.as_numpy_iterator()) for shard in shards]
        # Marks of the ends of clients have no elements.
        mean = np.mean([np.mean(leaf) for leaf in tf.nest.flatten(read) if np.size(leaf)])
        moved = state.global_model_weights.trainable[0] + 0.1 * mean + noise
        after = State(
            _weights(moved.astype(np.float32)),
            correlated.NoiseState(key, np.int64(t + 1), (), past),
        )
        train = collections.OrderedDict(loss=np.float32(mean))
        metrics = {'aggregator': collections.OrderedDict(), 'client_work': {'train': train}}
        return Output(after, metrics)


def _weights(values: np.ndarray) -> tff.learning.models.ModelWeights:
    return tff.learning.models.ModelWeights((values,), ())


def _evaluate(weights: tff.learning.models.ModelWeights) -> dict[str, float]:
    loss = float(np.sum((weights.trainable[0] - TARGET) ** 2))
    return {'loss': loss, 'accuracy': -loss}


def rows(client: int) -> list[dict[str, np.ndarray]]:
    """As `data`, without TensorFlow."""
    x = np.random.default_rng(client).normal(size=(8, 2)).astype(np.float32)
    return [{'x': x, 'y': (x @ TARGET)[:, None]}]


def _plan(rounds, noise_multiplier, plan_fields) -> accounting.PrivacyPlan:
    fields = dict(
        mechanism=mechanisms.Blt(rounds, [0.9], [0.2]),
        participation=Participation(rounds, 2),
        clip_norm=1.0,
        noise_multiplier=noise_multiplier,
        clients_per_round=3,
    )
    return accounting.PrivacyPlan(**{**fields, **(plan_fields or {})})


def in_numpy(
    noise_multiplier=1.0, rounds=ROUNDS, noise_seed=5, plan_fields=None, **changes
) -> program.Experiment:
    """As `experiment`, with a process that needs no TFF."""
    fields = dict(
        process=Process(noise_seed),
        plan=_plan(rounds, noise_multiplier, plan_fields),
        client_data=rows,
        evaluate=_evaluate,
        noise_is_seeded=noise_seed is not None,
    )
    return _experiment(**{**fields, **changes})


def experiment(
    noise_multiplier=1e-3,
    client_data=data,
    rounds=ROUNDS,
    noise_seed=5,
    noise_storage=None,
    plan_fields=None,
    **changes,
) -> program.Experiment:
    """The experiment; `noise_seed=None` takes noise from the operating system.

    `plan_fields` are fields of its plan that differ from the usual ones.
    """
    plan = _plan(rounds, noise_multiplier, plan_fields)
    trained = model()
    sgd = tff.learning.optimizers.build_sgdm
    process = learning.build_dp_fedavg(
        trained,
        plan,
        client_optimizer_fn=sgd(0.2),
        server_optimizer_fn=sgd(0.8, momentum=0.2),
        noise_seed=noise_seed,
        supplied_noise=noise_storage is not None and noise_storage.is_supplied,
    )
    fields = dict(
        process=process,
        plan=plan,
        client_data=client_data,
        evaluate=learning.build_evaluation(trained, data(1000)),
        noise_is_seeded=noise_seed is not None,
        noise_storage=noise_storage,
    )
    return _experiment(**{**fields, **changes})


def run(experiment: program.Experiment, path: pathlib.Path) -> accounting.PrivacyReport:
    """The report of a run in a directory, where it may have begun before."""
    return program.run_training(experiment, run_directory.RunDirectory(path, resume=True))


def failing(
    experiment: program.Experiment, t: int, fail: Callable[[], typing.Any]
) -> program.Experiment:
    """The experiment, with a fault when the data of round `t`, of those that it runs, is read."""
    asked = itertools.count()

    def client_data(client):
        if next(asked) == 3 * t:
            fail()
        return experiment.client_data(client)

    return dataclasses.replace(experiment, client_data=client_data)


def _experiment(
    plan,
    noise_is_seeded,
    delta=1e-6,
    accountant='analytic_gaussian',
    train_metrics_released=False,
    **fields,
) -> program.Experiment:
    schema = Participation(plan.participation.rounds, 2)
    execution = {name: fields.pop(name) for name in ExecutionConfig().flat() if name in fields}
    shared = dict(
        execution=ExecutionConfig(**execution),
        record=archive.PlanRecord(
            plan,
            (delta,),
            accountant,
            noise_is_seeded,
            sampling_is_seeded=plan.sampling is not None,
            train_metrics_released=train_metrics_released,
        ),
        noise_is_seeded=noise_is_seeded,
        sampler=sampling.MinSeparationSampler(schema, 12, 3),
        eval_every=2,
        reference_accuracies={'best accuracy': 0.0},
        progress=False,
    )
    return program.Experiment(**{**shared, **fields})
