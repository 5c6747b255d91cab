"""A whole experiment on a toy problem: least squares with two weights, three clients in a round."""

import collections

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import Participation, accounting, learning, mechanisms
from dpfl.simulation import program, sampling

ROUNDS = 4
TARGET = np.array([0.5, -1.0], np.float32)


def _model() -> tff.learning.models.FunctionalModel:
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
    x = np.random.default_rng(client).normal(size=(8, 2)).astype(np.float32)
    return tf.data.Dataset.from_tensor_slices({'x': x, 'y': (x @ TARGET)[:, None]}).batch(4)


def experiment(
    noise_multiplier=1e-3,
    client_data=data,
    rounds=ROUNDS,
    noise_seed=5,
    noise_storage=None,
    plan_fields=None,
    **changes,
):
    """The experiment; `noise_seed=None` takes noise from the operating system.

    `plan_fields` are fields of its plan that differ from the usual ones.
    """
    schema = Participation(rounds, 2)
    fields = dict(
        mechanism=mechanisms.Blt(rounds, [0.9], [0.2]),
        participation=schema,
        clip_norm=1.0,
        noise_multiplier=noise_multiplier,
        clients_per_round=3,
    )
    plan = accounting.PrivacyPlan(**{**fields, **(plan_fields or {})})
    model = _model()
    sgd = tff.learning.optimizers.build_sgdm
    process = learning.build_dp_fedavg(
        model,
        plan,
        client_optimizer_fn=sgd(0.2),
        server_optimizer_fn=sgd(0.8, momentum=0.2),
        noise_seed=noise_seed,
        supplied_noise=noise_storage is not None and noise_storage.is_supplied,
    )
    return program.Experiment(
        **{
            **dict(
                process=process,
                plan=plan,
                delta=1e-6,
                sampler=sampling.MinSeparationSampler(schema, 12, 3),
                client_data=client_data,
                evaluate=learning.build_evaluation(model, data(1000)),
                eval_every=2,
                reference_accuracies={'best accuracy': 0.0},
                noise_is_seeded=noise_seed is not None,
                noise_storage=noise_storage,
            ),
            **changes,
        }
    )
