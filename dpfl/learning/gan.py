"""DP-FedAvg-GAN: a generator trained against a discriminator that is trained under a privacy plan.

The discriminator is trained like any model, by `build_dp_fedavg`. Then the server trains the
generator against the discriminator that this released. So the code follows the privacy argument:
clients' data enters a round only through the noised mean, and all that the server computes from
it, the generator and its images included, has the same guarantee (post-processing).

Both losses are those of [Gulrajani17] ([Augenstein20], appendix C.2). With D the score of the
discriminator, G the generator, u random inputs and x a point between a real and a generated image,

    discriminator: mean D(G(u)) - mean D(real) + coefficient * mean (|grad_x D(x)| - 1)^2
    generator:     -mean D(G(u))

For a learning process the discriminator is the model and has the trainable weights. All else that a
client needs in a round is in the non-trainable weights, a `Setting`.

Random inputs are pure functions of (seed, round, data of the batch) at clients, which makes them
independent of how a cohort is sharded, and of (seed, round, step) at the server. They need not be
secret: the noise of the privacy plan does not come from them.
"""

import collections
import functools
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import _validate, accounting, aggregators
from dpfl.aggregators import audited_query, clipping
from dpfl.aggregators.noise import draws
from dpfl.learning import processes
from dpfl.tasks.images import gan_models

_CLIENTS, _SERVER = 0, 1
_INPUTS, _PLACES = 0, 1
# The norm of a gradient that is exactly zero has no derivative.
_SQUARED_NORM_FLOOR = 1e-10

_Weights = tff.learning.models.ModelWeights


class Setting(NamedTuple):
    """Non-trainable weights: inputs of clients and server in a round, besides the discriminator.

    Attributes:
      generator: weights of the generator.
      key: root key of the random inputs, int64 [2].
      round: rounds done, int64 scalar.
    """

    generator: tuple
    key: Any
    round: Any

    @classmethod
    def of(cls, non_trainable: Any) -> 'Setting':
        """The setting in the non-trainable weights of a model, as `weights` makes them."""
        *generator, key, round_index = non_trainable
        return cls(tuple(generator), key, round_index)

    @property
    def weights(self) -> tuple:
        """The setting as a flat tuple: the form of a model's weights."""
        return (*self.generator, self.key, self.round)


class Scores(NamedTuple):
    """Scores of a batch by the discriminator, each float32 [batch].

    Attributes:
      real: scores of the real images.
      generated: scores of as many generated images.
      penalty: (|grad_x D(x)| - 1)^2 at a point between each pair of them.
    """

    real: Any
    generated: Any
    penalty: Any


def scores(
    model: gan_models.GanModel, discriminator: Any, generator: Any, images: tf.Tensor, key: Any
) -> Scores:
    """Scores of images, float32 [batch, *image_shape], and as many generated ones.

    Args:
      model: generator and discriminator.
      discriminator: its weights.
      generator: its weights.
      images: real images.
      key: of the generator's inputs and of the places of the gradient penalty, int64 [2].
    """
    inputs, places = drawn(model, key, tf.shape(images)[0])
    return compared(model, discriminator, images, model.generate(generator, inputs), places)


def drawn(model: gan_models.GanModel, key: Any, batch: Any) -> tuple[tf.Tensor, tf.Tensor]:
    """What `scores` draws: inputs of the generator, and places between two images, within [0, 1].

    Returns:
      Inputs float32 [batch, input_size], and places float32 [batch, 1, ...].
    """
    shape = [batch, *([1] * len(model.image_shape))]
    places = tf.random.stateless_uniform(shape, seed=draws.derive(key, _PLACES), alg='philox')
    return random_inputs(draws.derive(key, _INPUTS), batch, model.input_size), places


def compared(
    model: gan_models.GanModel, discriminator: Any, images: Any, fakes: Any, places: Any
) -> Scores:
    """Scores of images, as many generated ones, and the penalty at places between them."""
    between = images + places * (fakes - images)
    with tf.GradientTape() as tape:
        tape.watch(between)
        # Scores of different images are independent: the gradient of the sum holds each one's.
        total = tf.reduce_sum(model.score(discriminator, between))
    gradient = tf.reshape(tape.gradient(total, between), [tf.shape(images)[0], -1])
    norm = tf.sqrt(tf.reduce_sum(tf.square(gradient), axis=1) + _SQUARED_NORM_FLOOR)
    return Scores(
        real=model.score(discriminator, images),
        generated=model.score(discriminator, fakes),
        penalty=tf.square(norm - 1),
    )


def random_inputs(key: Any, batch: Any, input_size: int) -> tf.Tensor:
    """Standard normal inputs of the generator, float32 [batch, input_size]."""
    return tf.random.stateless_normal([batch, input_size], seed=key, alg='philox')


def discriminator_loss(values: Scores, gradient_penalty: float) -> tf.Tensor:
    """Loss of the discriminator, scalar."""
    return (
        tf.reduce_mean(values.generated)
        - tf.reduce_mean(values.real)
        + gradient_penalty * tf.reduce_mean(values.penalty)
    )


def discriminator_model(
    model: gan_models.GanModel, gradient_penalty: float, seed: int
) -> tff.learning.models.FunctionalModel:
    """The discriminator as a model whose predictions are `Scores`; labels are ignored.

    Its trainable weights are the discriminator's, the others a `Setting`. Its metrics are
    `discriminator_loss` and `critic_gap` (mean score of real minus mean score of generated images).

    Args:
      model: generator and discriminator with their initial weights.
      gradient_penalty: coefficient of the penalty, at least 0.
      seed: of the random inputs, an integer >= 0.
    """

    @tf.function
    def predict(weights, x, training):
        del training  # There is no dropout or batch normalisation.
        discriminator, others = weights
        setting, images = Setting.of(others), gan_models.images_of(x)
        round_key = draws.derive(draws.derive(setting.key, setting.round), _CLIENTS)
        key = draws.derive_from_content(round_key, tf.reshape(images, [-1]))
        return scores(model, discriminator, setting.generator, images, key)

    def loss(output, label, sample_weight=None):
        del label, sample_weight
        return discriminator_loss(output, gradient_penalty)

    @tf.function
    def initialize():
        return collections.OrderedDict(
            examples=tf.zeros([]), loss=tf.zeros([]), critic_gap=tf.zeros([])
        )

    @tf.function
    def update(state, labels, batch_output, sample_weight=None):
        del labels, sample_weight
        values = batch_output.predictions
        examples = tf.cast(tf.shape(values.real)[0], tf.float32)
        return collections.OrderedDict(
            examples=state['examples'] + examples,
            loss=state['loss'] + examples * discriminator_loss(values, gradient_penalty),
            critic_gap=state['critic_gap'] + tf.reduce_sum(values.real - values.generated),
        )

    @tf.function
    def finalize(state):
        return collections.OrderedDict(
            discriminator_loss=tf.math.divide_no_nan(state['loss'], state['examples']),
            critic_gap=tf.math.divide_no_nan(state['critic_gap'], state['examples']),
        )

    key = draws.seeded_root_key(seed, 'generator inputs')
    first = Setting(tuple(model.initial_generator), key, np.int64(0))
    return tff.learning.models.FunctionalModel(
        initial_weights=(model.initial_discriminator, first.weights),
        predict_on_batch_fn=predict,
        loss_fn=loss,
        metrics_fns=(initialize, update, finalize),
        input_spec=model.input_spec,
    )


class FinalizerState(NamedTuple):
    """States of the two optimizers at the server."""

    discriminator: Any
    generator: Any


def _with_generator(
    finalizer: tff.learning.templates.FinalizerProcess,
    model: gan_models.GanModel,
    optimizer: tff.learning.optimizers.Optimizer,
    steps: int,
    batch_size: int,
) -> tff.learning.templates.FinalizerProcess:
    """The server's part of a round: the discriminator's step, and then the generator's training.

    The generator's part is GenUpdate in [Augenstein20], algorithm 1; it uses no data. Its mean loss
    over the steps, 0 without steps, is the measurement `generator_loss`.

    Args:
      finalizer: applies the noised mean to the discriminator.
      model: generator and discriminator.
      optimizer: of the generator.
      steps: training steps of the generator; may be 0.
      batch_size: images per step.
    """
    _, weights_type, mean_type = finalizer.next.type_signature.parameter
    measurements_type = finalizer.next.type_signature.result.measurements

    @tff.tensorflow.computation
    def initial_optimizer_state():
        specs = [tf.TensorSpec(w.shape, w.dtype) for w in model.initial_generator]
        return optimizer.initialize(tuple(specs))

    optimizer_type = initial_optimizer_state.type_signature.result

    @tff.tensorflow.computation(weights_type.member, optimizer_type, measurements_type.member)
    @tf.function
    def train_generator(weights, optimizer_state, measurements):
        discriminator, setting = tuple(weights.trainable), Setting.of(weights.non_trainable)
        round_key = draws.derive(draws.derive(setting.key, setting.round), _SERVER)

        def step(index, generator, state, total):
            inputs = random_inputs(draws.derive(round_key, index), batch_size, model.input_size)
            with tf.GradientTape() as tape:
                tape.watch(generator)
                generated = model.generate(generator, inputs)
                loss = -tf.reduce_mean(model.score(discriminator, generated))
            state, generator = optimizer.next(state, generator, tape.gradient(loss, generator))
            return index + 1, generator, state, total + loss

        _, generator, optimizer_state, total = tf.while_loop(
            lambda index, *_: index < steps,
            step,
            (0, setting.generator, optimizer_state, tf.zeros([])),
        )
        setting = setting._replace(generator=generator, round=setting.round + 1)
        loss = tf.math.divide_no_nan(total, float(steps))
        return (
            _Weights(weights.trainable, setting.weights),
            optimizer_state,
            collections.OrderedDict(measurements, generator_loss=loss),
        )

    @tff.federated_computation
    def initialize():
        generator = tff.federated_eval(initial_optimizer_state, tff.SERVER)
        return tff.federated_zip(FinalizerState(finalizer.initialize(), generator))

    @tff.federated_computation(initialize.type_signature.result, weights_type, mean_type)
    def next_round(state, weights, mean):
        output = finalizer.next(state.discriminator, weights, mean)
        weights, generator, measurements = tff.federated_map(
            train_generator, (output.result, state.generator, output.measurements)
        )
        state = tff.federated_zip(FinalizerState(output.state, generator))
        return tff.templates.MeasuredProcessOutput(state, weights, measurements)

    return tff.learning.templates.FinalizerProcess(initialize, next_round)


def build_dp_fedavg_gan(
    model: gan_models.GanModel,
    plan: accounting.PrivacyPlan,
    *,
    client_optimizer_fn: tff.learning.optimizers.Optimizer,
    server_optimizer_fn: tff.learning.optimizers.Optimizer,
    generator_optimizer: tff.learning.optimizers.Optimizer,
    generator_steps: int = 6,
    generator_batch_size: int = 32,
    gradient_penalty: float = 10.0,
    seed: int = 0,
    noise_seed: int | None = None,
    train_metrics: bool = False,
    clip: clipping.Clip = aggregators.clip_flat,
    supplied_noise: bool = False,
    canaries: audited_query.Canaries | None = None,
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
      generator_steps: training steps of the generator in each round.
      generator_batch_size: generated images per step.
      gradient_penalty: coefficient of the penalty in the discriminator's loss.
      seed: of the generator's inputs, which need not be secret, an integer >= 0.
      noise_seed, train_metrics, clip, supplied_noise, canaries: as in `build_dp_fedavg`.

    Returns:
      A process that takes shards of batches that match `model.input_spec`. The model in its state
      is the discriminator; its non-trainable weights are a `Setting`. `get_model_weights`
      returns the generator, the result of a run, as the trainable weights, and the discriminator
      and the number of rounds as the others; `gan_weights` names them. The mean loss of the
      generator in a round is the metric `generator_loss` of the finalizer.

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
    _validate.integer('generator_batch_size', generator_batch_size, minimum=1)
    _validate.number('gradient_penalty', gradient_penalty, minimum=0)
    inner = processes.build_dp_fedavg(
        discriminator_model(model, gradient_penalty, seed),
        plan,
        client_optimizer_fn=client_optimizer_fn,
        server_optimizer_fn=server_optimizer_fn,
        noise_seed=noise_seed,
        train_metrics=train_metrics,
        clip=clip,
        supplied_noise=supplied_noise,
        canaries=canaries,
        extend_server=functools.partial(
            _with_generator,
            model=model,
            optimizer=generator_optimizer,
            steps=int(generator_steps),
            batch_size=generator_batch_size,
        ),
    )
    state_type = inner.initialize.type_signature.result.member

    @tff.tensorflow.computation(state_type)
    def get_model_weights(state):
        weights = state.global_model_weights
        setting = Setting.of(weights.non_trainable)
        return _Weights(setting.generator, (*weights.trainable, setting.round))

    @tff.tensorflow.computation(state_type, get_model_weights.type_signature.result)
    def set_model_weights(state, weights):
        given = gan_weights(weights)
        before = Setting.of(state.global_model_weights.non_trainable)
        setting = Setting(given.generator, before.key, given.round)
        return state._replace(global_model_weights=_Weights(given.discriminator, setting.weights))

    return tff.learning.templates.LearningProcess(
        inner.initialize, inner.next, get_model_weights, set_model_weights
    )


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
