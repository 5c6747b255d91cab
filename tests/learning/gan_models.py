"""A GAN whose training is easy to repeat by hand: images of two pixels, everything linear."""

import collections

import numpy as np
import tensorflow as tf

from dpfl.tasks.images import gan_models

GENERATOR = (np.array([[0.3, -0.2], [0.1, 0.4]], np.float32), np.array([0.1, -0.1], np.float32))
DISCRIMINATOR = (np.array([0.8, -0.5], np.float32), np.float32(0.2))


def linear_gan() -> gan_models.GanModel:
    """G(u) = u A + a and D(x) = x w + b, for images [2]."""
    return gan_models.GanModel(
        initial_generator=GENERATOR,
        initial_discriminator=DISCRIMINATOR,
        generate=lambda weights, inputs: tf.matmul(inputs, weights[0]) + weights[1],
        score=lambda weights, images: tf.linalg.matvec(images, weights[0]) + weights[1],
        input_size=2,
        image_shape=(2,),
    )


def client(seed: int, sizes: list[int]) -> list[collections.OrderedDict]:
    """Batches of these sizes."""
    rng = np.random.default_rng(seed)
    return [
        collections.OrderedDict(
            x=rng.uniform(size=(size, 2)).astype(np.float32), y=np.zeros(size, np.int32)
        )
        for size in sizes
    ]


def discriminator_step(discriminator, generated, pixels, rate: float, penalty: float):
    """Weights after a step of SGD; derivatives of the loss worked out by hand.

    The gradient of the score by the image is w wherever it is taken, so the penalty is
    (|w| - 1)^2, and its derivative 2 (|w| - 1) w / |w|.
    """
    w, b = discriminator
    norm = np.linalg.norm(w)
    gradient = generated.mean(axis=0) - (2 * pixels - 1).mean(axis=0)
    gradient = gradient + penalty * 2 * (norm - 1) * w / norm
    return w - rate * gradient, b  # b cancels in the difference of the means.


def generator_step(generator, discriminator, inputs, rate: float):
    """Weights after a step of SGD on -mean D(G(u))."""
    matrix, shift = generator
    w, _ = discriminator
    return matrix + rate * np.outer(inputs.mean(axis=0), w), shift + rate * w
