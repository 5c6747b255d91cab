"""Images of a generator, and how well a discriminator tells them from held-out real images."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import _validate, errors
from dpfl.aggregators.noise import keys
from dpfl.learning import gan, gan_work
from dpfl.tasks.images import gan_models


def sample(
    model: gan_models.GanModel, generator: Sequence[Any], number: int, seed: int
) -> np.ndarray:
    """Images of a generator: pixels within [0, 1], float32 [number, *image_shape].

    A pure function. The first images do not depend on the number, up to rounding.

    Args:
      model: generator and discriminator.
      generator: weights of the generator.
      number: number of images, at least 1.
      seed: of the inputs, an integer >= 0.

    Raises:
      ValueError: if the number or the seed is out of range.

    Example:
      >>> from dpfl.tasks.images import gan_models
      >>> model = gan_models.build_gan_model('tiny', seed=0)
      >>> sample(model, model.initial_generator, number=2, seed=0).shape
      (2, 28, 28, 1)
    """
    _validate.integer('number', number, minimum=1)
    key = keys.seeded_root_key(seed, 'generator samples')
    inputs = gan_work.random_inputs(key, number, model.input_size)
    images = model.generate(tuple(map(tf.convert_to_tensor, generator)), inputs)
    return gan_models.pixels_of(images).numpy()


def build_gan_evaluation(
    model: gan_models.GanModel, pixels: np.ndarray, *, gradient_penalty: float, seed: int
) -> Callable[[tff.learning.models.ModelWeights], dict[str, float]]:
    """A function from the weights of a GAN to its metrics.

    Args:
      model: generator and discriminator.
      pixels: real images of held-out clients, float32 [n, *image_shape] within [0, 1], n > 0. As
        many images are generated. Metrics on images of training clients would have no guarantee.
      gradient_penalty: coefficient of the penalty in the loss.
      seed: of the generator's inputs, which are the same in all evaluations.

    Returns:
      A function of the result of `get_model_weights` of `build_dp_fedavg_gan`. Its metrics are
      `loss` (of the discriminator), `generator_loss`, `critic_gap` (mean score of real minus mean
      score of generated images), `accuracy` (share of all pairs in which the real image scores
      higher: 0.5 if the discriminator cannot tell them apart), and `intensity` and `diversity` of
      the generated images (mean pixel, and standard deviation of a pixel over the images, averaged
      over pixels).

    Raises:
      ValueError: if there are no images, or they have another shape.

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
      >>> measure = build_gan_evaluation(
      ...     model, np.zeros([4, 28, 28, 1], np.float32), gradient_penalty=10.0, seed=0)
      >>> measured = measure(process.get_model_weights(process.initialize()))
      >>> 0 <= measured['accuracy'] <= 1
      True
    """
    images = tf.constant(gan_models.images_of(pixels), tf.float32)
    if images.shape[1:] != model.image_shape or not len(images):
        raise errors.ArgumentError(
            'pixels',
            errors.NOT_SHOWN,
            f'must be images of shape {model.image_shape}, has shape {images.shape}',
        )
    key = keys.seeded_root_key(seed, 'generator evaluation')

    @tf.function
    def evaluate(generator, discriminator):
        values = gan_work.scores(model, discriminator, generator, images, key)
        generated = gan_models.pixels_of(gan_work.generated(model, generator, key, len(images)))
        above = tf.sign(values.real[:, None] - values.generated[None, :])
        return dict(
            loss=gan_work.discriminator_loss(values, gradient_penalty),
            accuracy=(1 + tf.reduce_mean(above)) / 2,
            critic_gap=tf.reduce_mean(values.real) - tf.reduce_mean(values.generated),
            generator_loss=-tf.reduce_mean(values.generated),
            intensity=tf.reduce_mean(generated),
            diversity=tf.reduce_mean(tf.math.reduce_std(generated, axis=0)),
        )

    def metrics(weights):
        named = tf.nest.map_structure(tf.convert_to_tensor, gan.gan_weights(weights))
        values = evaluate(named.generator, named.discriminator)
        return {name: float(value) for name, value in values.items()}

    return metrics
