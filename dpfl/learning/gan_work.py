"""Computations of clients and server that train a GAN: losses, random inputs, steps.

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
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from dpfl.aggregators.noise import keys
from dpfl.tasks.images import gan_models

_CLIENTS, _SERVER = 0, 1
_INPUTS, _PLACES = 0, 1
# The norm of a gradient that is exactly zero has no derivative.
_SQUARED_NORM_FLOOR = 1e-10


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


def initial_setting(model: gan_models.GanModel, seed: int) -> Setting:
    """The setting of the first round, as NumPy arrays.

    Raises:
      ValueError: if the seed is not an integer >= 0.
    """
    key = keys.seeded_root_key(seed, 'generator inputs')
    return Setting(tuple(model.initial_generator), key, np.int64(0))


def client_scores(
    model: gan_models.GanModel, discriminator: Any, setting: Setting, images: tf.Tensor
) -> Scores:
    """Scores of a client's batch and of as many generated images, from inputs for this batch."""
    round_key = keys.derive(keys.derive(setting.key, setting.round), _CLIENTS)
    key = keys.derive_from_content(round_key, tf.reshape(images, [-1]))
    return scores(model, discriminator, setting.generator, images, key)


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
    batch = tf.shape(images)[0]
    fakes = generated(model, generator, key, batch)
    places = tf.random.stateless_uniform(
        [batch, *([1] * len(model.image_shape))], seed=keys.derive(key, _PLACES), alg='philox'
    )
    between = images + places * (fakes - images)
    with tf.GradientTape() as tape:
        tape.watch(between)
        # Scores of different images are independent: the gradient of the sum holds each one's.
        total = tf.reduce_sum(model.score(discriminator, between))
    gradient = tf.reshape(tape.gradient(total, between), [batch, -1])
    norm = tf.sqrt(tf.reduce_sum(tf.square(gradient), axis=1) + _SQUARED_NORM_FLOOR)
    return Scores(
        real=model.score(discriminator, images),
        generated=model.score(discriminator, fakes),
        penalty=tf.square(norm - 1),
    )


def generated(model: gan_models.GanModel, generator: Any, key: Any, batch: Any) -> tf.Tensor:
    """The generated images that `scores` compares the real ones with."""
    inputs = random_inputs(keys.derive(key, _INPUTS), batch, model.input_size)
    return model.generate(generator, inputs)


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
      seed: of the random inputs.
    """

    @tf.function
    def predict(weights, x, training):
        del training  # There is no dropout or batch normalisation.
        discriminator, others = weights
        images = gan_models.images_of(x)
        return client_scores(model, discriminator, Setting.of(others), images)

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

    return tff.learning.models.FunctionalModel(
        initial_weights=(model.initial_discriminator, initial_setting(model, seed).weights),
        predict_on_batch_fn=predict,
        loss_fn=loss,
        metrics_fns=(initialize, update, finalize),
        input_spec=model.input_spec,
    )


def train_generator(
    model: gan_models.GanModel,
    optimizer: tff.learning.optimizers.Optimizer,
    discriminator: Any,
    setting: Setting,
    optimizer_state: Any,
    *,
    steps: Any,
    batch_size: int,
) -> tuple[Setting, Any, tf.Tensor]:
    """The generator's part of a round (GenUpdate in [Augenstein20], algorithm 1); uses no data.

    Args:
      model: generator and discriminator.
      optimizer: of the generator.
      discriminator: its weights after this round's noised update.
      setting: of this round.
      optimizer_state: of the generator's optimizer.
      steps: number of steps, an integer scalar; may be 0.
      batch_size: images per step.

    Returns:
      The setting of the next round, the state of the optimizer, and the mean loss over the steps (0
      without steps).
    """
    round_key = keys.derive(keys.derive(setting.key, setting.round), _SERVER)

    def step(index, generator, state, total):
        inputs = random_inputs(keys.derive(round_key, index), batch_size, model.input_size)
        with tf.GradientTape() as tape:
            tape.watch(generator)
            loss = -tf.reduce_mean(model.score(discriminator, model.generate(generator, inputs)))
        state, generator = optimizer.next(state, generator, tape.gradient(loss, generator))
        return index + 1, generator, state, total + loss

    count = tf.convert_to_tensor(steps)
    _, generator, optimizer_state, total = tf.while_loop(
        lambda index, *_: index < count,
        step,
        (tf.zeros([], count.dtype), setting.generator, optimizer_state, tf.zeros([])),
    )
    loss = tf.math.divide_no_nan(total, tf.cast(count, tf.float32))
    return setting._replace(generator=generator, round=setting.round + 1), optimizer_state, loss
