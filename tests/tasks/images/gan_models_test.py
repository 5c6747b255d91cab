"""Generators and discriminators: shapes, sizes, and the layers against those of Keras."""

import math

import numpy as np
import pytest
import tensorflow as tf

from dpfl import _random
from dpfl.tasks.images import gan_models


def _inputs(number, size):
    return np.random.default_rng(0).normal(size=(number, size)).astype(np.float32)


def _shifted(weights):
    """With biases that are not zero."""
    rng = np.random.default_rng(1)
    return [w + 0.1 * rng.normal(size=w.shape).astype(np.float32) for w in weights]


def test_sizes_of_the_networks_of_document_004():
    """Dense and convolutional kernels of the tutorial's networks, a bias for each of its units."""
    sizes = gan_models.PRESETS['dcgan']
    generator = (128 + 1) * 1024 + (1024 + 1) * 49 * 256
    generator += (16 * 256 + 1) * 64 + (16 * 64 + 1) * 32 + 16 * 32 + 1
    discriminator = (16 + 1) * 64 + (16 * 64 + 1) * 128 + (49 * 128 + 1) * 1024 + 1024 + 1
    assert sum(map(math.prod, sizes.generator_shapes())) == generator == 13_285_217
    assert sum(map(math.prod, sizes.discriminator_shapes())) == discriminator == 6_556_865
    assert sizes.input_size == 128


@pytest.mark.parametrize('name', ['small', 'tiny'])
def test_an_example_does_not_depend_on_its_batch(name):
    model = gan_models.build_gan_model(name, 0)
    inputs = _inputs(4, model.input_size)
    images = model.generate(model.initial_generator, inputs)
    assert images.shape == (4, 28, 28, 1) and np.abs(images).max() <= 1
    assert np.std(images, axis=0).mean() > 0.01  # Different inputs, different images.
    assert model.generate(model.initial_generator, inputs[:0]).shape == (0, 28, 28, 1)
    generator, discriminator = map(_shifted, (model.initial_generator, model.initial_discriminator))
    together = model.generate(generator, inputs)
    alone = model.generate(generator, inputs[1:2])
    np.testing.assert_allclose(together[1:2], alone, atol=1e-5)
    scores = model.score(discriminator, together)
    assert scores.shape == (4,)
    np.testing.assert_allclose(scores[1:2], model.score(discriminator, together[1:2]), atol=1e-5)
    pixels = np.linspace(0, 1, 5)
    np.testing.assert_allclose(gan_models.pixels_of(gan_models.images_of(pixels)), pixels)
    assert gan_models.images_of(pixels).tolist() == [-1, -0.5, 0, 0.5, 1]


def test_generated_images_against_keras():
    """Keras in training mode normalises over its batch, which has the fixed inputs only."""
    model = gan_models.build_gan_model('tiny', 0)
    weights = _shifted(model.initial_generator)
    inputs = _random.generator('gan.reference', 0).normal(size=(32, model.input_size))
    inputs = inputs.astype(np.float32)
    layers = tf.keras.layers
    kernels, biases = weights[::2], weights[1::2]
    x = tf.constant(inputs)

    def normalised(x, bias):
        layer = layers.BatchNormalization(scale=False, center=False, epsilon=1e-3)
        return tf.nn.relu(layer(x, training=True) + bias)

    for kernel, bias in zip(kernels[:2], biases[:2], strict=True):
        x = normalised(x @ kernel, bias)
    x = tf.reshape(x, [32, 7, 7, 8])
    for kernel, bias in zip(kernels[2:4], biases[2:4], strict=True):
        layer = layers.Conv2DTranspose(4, 4, strides=2, padding='same', use_bias=False)
        layer.build(x.shape)
        layer.set_weights([kernel])
        x = normalised(layer(x), bias)
    layer = layers.Conv2D(1, 4, padding='same', activation='tanh')
    layer.build(x.shape)
    layer.set_weights([kernels[4], biases[4]])
    np.testing.assert_allclose(model.generate(weights, inputs), layer(x), atol=1e-5)


def test_initial_weights_are_a_function_of_the_seed():
    models = (gan_models.build_gan_model('tiny', seed) for seed in (1, 1, 2))
    weights = ([*each.initial_generator, *each.initial_discriminator] for each in models)
    for one, same, other in zip(*weights, strict=True):
        np.testing.assert_array_equal(one, same)
        assert one.dtype == np.float32 and (one.ndim == 1 or (one != other).mean() > 0.99)
