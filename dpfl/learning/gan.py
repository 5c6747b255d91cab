"""DP-FedAvg-GAN: a generator trained against a discriminator that is trained under a privacy plan.

The discriminator is trained like any model, by `build_dp_fedavg`. Then the server trains the
generator against the discriminator that this released. So the code follows the privacy argument:
clients' data enters a round only through the noised mean, and all that the server computes from
it, the generator and its images included, has the same guarantee (post-processing).
"""

import collections
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from dpfl import _validate, accounting, aggregators
from dpfl.aggregators import canary_query, clipping
from dpfl.learning import gan_work, processes
from dpfl.tasks.images import gan_models

_Weights = tff.learning.models.ModelWeights


class FinalizerState(NamedTuple):
    """States of the two optimizers at the server."""

    discriminator: Any
    generator: Any


def build_dp_fedavg_gan(
    model: gan_models.GanModel,
    plan: accounting.PrivacyPlan,
    *,
    client_optimizer_fn: tff.learning.optimizers.Optimizer,
    server_optimizer_fn: tff.learning.optimizers.Optimizer,
    generator_optimizer: tff.learning.optimizers.Optimizer,
    generator_steps: int = 6,
    generator_every: int = 1,
    generator_batch_size: int = 32,
    gradient_penalty: float = 10.0,
    seed: int = 0,
    noise_seed: int | None = None,
    train_metrics: bool = False,
    clip: clipping.Clip = aggregators.clip_flat,
    canaries: canary_query.Canaries | None = None,
) -> tff.learning.templates.LearningProcess:
    """DP-FedAvg-GAN ([Augenstein20], algorithm 1) under any privacy plan.

    In a round every client trains the discriminator, one step per batch, each with as many
    generated images as real ones. The deltas are clipped, and their noised mean goes to the server
    optimizer. Then the server trains the generator against the new discriminator. Defaults are
    those of [Augenstein20], table 9.

    Args:
      model: generator and discriminator.
      plan: determines clipping, noise and denominator. The generator has the plan's guarantee too,
        since it is computed from released values only.
      client_optimizer_fn: of a client's discriminator steps, fresh in every round.
      server_optimizer_fn: takes the noised mean of the clients' deltas as a gradient; SGD with
        rate 1 in the algorithm.
      generator_optimizer: its state is kept from round to round.
      generator_steps: training steps of the generator each time it is trained.
      generator_every: number of rounds between two trainings of the generator.
      generator_batch_size: generated images per step.
      gradient_penalty: coefficient of the penalty in the discriminator's loss.
      seed: of the generator's inputs, which need not be secret, an integer >= 0.
      noise_seed, train_metrics, clip, canaries: as in `build_dp_fedavg`.

    Returns:
      A process that takes shards of batches that match `model.input_spec`. The model in its state
      is the discriminator; its non-trainable weights are a `gan_work.Setting`. `get_model_weights`
      returns the generator, the result of a run, as the trainable weights, and the discriminator
      and the number of rounds as the others; `gan_weights` names them.

    Raises:
      ValueError: if an argument is out of range.

    Example:
      >>> plan = accounting.PrivacyPlan(
      ...     mechanism=mechanisms.Identity(4), participation=Participation(4, min_separation=4),
      ...     clip_norm=1.0, noise_multiplier=1.0, clients_per_round=2)
      >>> from dpfl.tasks.images import gan_models
      >>> model = gan_models.build_gan_model('tiny', seed=0)
      >>> sgd = tff.learning.optimizers.build_sgdm
      >>> process = build_dp_fedavg_gan(
      ...     model, plan, client_optimizer_fn=sgd(0.1), server_optimizer_fn=sgd(1.0),
      ...     generator_optimizer=sgd(0.01))
      >>> process.get_model_weights(process.initialize()).trainable[0].shape == (
      ...     model.initial_generator[0].shape)
      True
    """
    _validate.integer('generator_steps', generator_steps, minimum=0)
    _validate.integer('generator_every', generator_every, minimum=1)
    _validate.integer('generator_batch_size', generator_batch_size, minimum=1)
    _validate.number('gradient_penalty', gradient_penalty, minimum=0)
    inner = processes.build_dp_fedavg(
        gan_work.discriminator_model(model, gradient_penalty, seed),
        plan,
        client_optimizer_fn=client_optimizer_fn,
        server_optimizer_fn=server_optimizer_fn,
        noise_seed=noise_seed,
        train_metrics=train_metrics,
        clip=clip,
        canaries=canaries,
    )

    @tf.function
    def train_generator(weights, optimizer_state):
        setting = gan_work.Setting.of(weights.non_trainable)
        is_due = tf.equal((setting.round + 1) % generator_every, 0)
        return gan_work.train_generator(
            model,
            generator_optimizer,
            tuple(weights.trainable),
            setting,
            optimizer_state,
            steps=tf.where(is_due, generator_steps, 0),
            batch_size=generator_batch_size,
        )

    def initial_optimizer_state():
        specs = [tf.TensorSpec(w.shape, w.dtype) for w in model.initial_generator]
        return generator_optimizer.initialize(tuple(specs))

    return _with_generator(inner, initial_optimizer_state, train_generator)


class GanWeights(NamedTuple):
    """The result of `get_model_weights` of a GAN's process, by name.

    Attributes:
      generator: its weights.
      discriminator: its weights.
      round: rounds done, int64 scalar.
    """

    generator: tuple
    discriminator: tuple
    round: Any


def gan_weights(weights: tff.learning.models.ModelWeights) -> GanWeights:
    """The result of `get_model_weights` of a process of `build_dp_fedavg_gan`, by name.

    Example:
      >>> plan = accounting.PrivacyPlan(
      ...     mechanism=mechanisms.Identity(4), participation=Participation(4, min_separation=4),
      ...     clip_norm=1.0, noise_multiplier=1.0, clients_per_round=2)
      >>> from dpfl.tasks.images import gan_models
      >>> model = gan_models.build_gan_model('tiny', seed=0)
      >>> sgd = tff.learning.optimizers.build_sgdm
      >>> process = build_dp_fedavg_gan(
      ...     model, plan, client_optimizer_fn=sgd(0.1), server_optimizer_fn=sgd(1.0),
      ...     generator_optimizer=sgd(0.01))
      >>> weights = gan_weights(process.get_model_weights(process.initialize()))
      >>> len(weights.discriminator) == len(model.initial_discriminator)
      True
    """
    *discriminator, round_index = weights.non_trainable
    return GanWeights(tuple(weights.trainable), tuple(discriminator), round_index)


def _with_generator(inner, initial_optimizer_state, train_generator):
    """A process that trains a generator after each round of a discriminator's process.

    Args:
      inner: process of the discriminator.
      initial_optimizer_state: () -> state of the generator's optimizer.
      train_generator: (weights of the inner process, state of the generator's optimizer) ->
        (setting of the next round, state of the optimizer, mean loss).
    """
    inner_type = inner.initialize.type_signature.result.member
    initial_generator_state = tff.tensorflow.computation(initial_optimizer_state)
    generator_type = initial_generator_state.type_signature.result

    @tff.tensorflow.computation(inner_type, generator_type)
    def join(inner_state, generator_state):
        return inner_state._replace(
            finalizer=FinalizerState(inner_state.finalizer, generator_state)
        )

    state_type = join.type_signature.result

    @tff.tensorflow.computation(state_type)
    def inner_state_of(state):
        return state._replace(finalizer=state.finalizer.discriminator)

    @tff.tensorflow.computation(state_type)
    def generator_state_of(state):
        return state.finalizer.generator

    @tff.federated_computation
    def initialize():
        return tff.federated_map(
            join, (inner.initialize(), tff.federated_eval(initial_generator_state, tff.SERVER))
        )

    @tff.tensorflow.computation(inner_type, generator_type)
    def post_process(inner_state, generator_state):
        weights = inner_state.global_model_weights
        setting, generator_state, loss = train_generator(weights, generator_state)
        state = inner_state._replace(
            global_model_weights=_Weights(weights.trainable, setting.weights),
            finalizer=FinalizerState(inner_state.finalizer, generator_state),
        )
        return state, collections.OrderedDict(loss=loss)

    @tff.federated_computation(
        tff.FederatedType(state_type, tff.SERVER), inner.next.type_signature.parameter[1]
    )
    def next_round(state, shards):
        output = inner.next(tff.federated_map(inner_state_of, state), shards)
        # From here on the shards matter only through what the plan covers.
        new_state, generator_metrics = tff.federated_map(
            post_process, (output.state, tff.federated_map(generator_state_of, state))
        )
        measurements = collections.OrderedDict(
            distributor=output.metrics['distributor'],
            client_work=output.metrics['client_work'],
            aggregator=output.metrics['aggregator'],
            finalizer=output.metrics['finalizer'],
            generator=generator_metrics,
        )
        return tff.learning.templates.LearningProcessOutput(
            new_state, tff.federated_zip(measurements)
        )

    return _learning_process(initialize, next_round, state_type)


def _learning_process(initialize, next_round, state_type):
    @tff.tensorflow.computation(state_type)
    def get_model_weights(state):
        weights = state.global_model_weights
        setting = gan_work.Setting.of(weights.non_trainable)
        return _Weights(setting.generator, (*weights.trainable, setting.round))

    @tff.tensorflow.computation(state_type, get_model_weights.type_signature.result)
    def set_model_weights(state, weights):
        given = gan_weights(weights)
        before = gan_work.Setting.of(state.global_model_weights.non_trainable)
        setting = gan_work.Setting(given.generator, before.key, given.round)
        return state._replace(global_model_weights=_Weights(given.discriminator, setting.weights))

    return tff.learning.templates.LearningProcess(
        initialize, next_round, get_model_weights, set_model_weights
    )
