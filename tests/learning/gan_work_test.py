"""Steps of a GAN against derivatives worked out by hand, and Keras. Starts no TFF runtime."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from dpfl.aggregators.noise import draws
from dpfl.learning import gan
from dpfl.tasks.images import gan_models as presets
from tests.learning import gan_models, models

_PENALTY, _SEED = 10.0, 3


def test_other_rounds_and_other_data_meet_other_images():
    model = gan.discriminator_model(gan_models.linear_gan(), _PENALTY, _SEED)
    trainable, others = tf.nest.map_structure(tf.constant, model.initial_weights)
    one, two = (batch['x'] for batch in gan_models.client(1, [3, 3]))

    def scores(pixels, t=0):
        weights = trainable, (*others[:-1], tf.constant(t, tf.int64))
        return model.predict_on_batch(weights, pixels, training=True)

    real, generated, penalty = first = scores(one)
    np.testing.assert_array_equal(scores(one).generated, generated)
    for other in (scores(two), scores(one, 1)):
        assert not np.isin(other.generated, generated).any()
    expected = np.mean(generated - real) + _PENALTY * np.mean(penalty)
    assert float(model.loss(first, None)) == pytest.approx(expected, rel=1e-6)


def test_metrics_are_those_of_all_examples():
    model = gan.discriminator_model(gan_models.linear_gan(), _PENALTY, _SEED)
    values = [
        gan.Scores(*(tf.constant(part, tf.float32) for part in parts))
        for parts in ([[1, 2], [3, 5], [0.5, 0]], [[4], [1], [1]])
    ]
    state = model.initialize_metrics_state()
    for scores in values:
        state = model.update_metrics_state(
            state,
            labels=None,
            batch_output=tff.learning.models.BatchOutput(None, scores, None),
        )
    metrics = model.finalize_metrics(state)
    real, generated, penalty = (np.concatenate(part) for part in zip(*values, strict=True))
    assert float(metrics['critic_gap']) == pytest.approx(np.mean(real - generated))
    expected = np.mean(generated - real) + _PENALTY * np.mean(penalty)
    assert float(metrics['discriminator_loss']) == pytest.approx(expected)


def test_convolutional_scores_against_keras():
    """The gradient of the whole loss, penalty included, for Keras networks."""
    model = presets.build_gan_model('tiny', 0)
    rng = np.random.default_rng(1)
    # Biases that are not zero, and images that are.
    discriminator = [
        w + 0.1 * rng.normal(size=w.shape).astype(np.float32) for w in model.initial_discriminator
    ]
    pixels = rng.uniform(size=(3, 28, 28, 1)).astype(np.float32)
    pixels[0] = 0.5
    critic = _keras_critic(discriminator)
    key = draws.seeded_root_key(0, 'test')
    with tf.GradientTape() as tape:
        tensors = tuple(map(tf.constant, discriminator))
        tape.watch(tensors)
        values = gan.scores(model, tensors, model.initial_generator, presets.images_of(pixels), key)
        loss = gan.discriminator_loss(values, _PENALTY)
    gradients = tape.gradient(loss, tensors)

    images = 2 * tf.constant(pixels) - 1
    inputs = gan.random_inputs(draws.derive(key, 0), 3, model.input_size)
    fakes = model.generate(model.initial_generator, inputs)
    places = tf.random.stateless_uniform([3, 1, 1, 1], seed=draws.derive(key, 1), alg='philox')
    with tf.GradientTape() as tape:
        between = tf.Variable(places * fakes + (1 - places) * images)
        with tf.GradientTape() as inner:
            each = tf.unstack(critic(between)[:, 0])
            total = sum(each)
        norms = tf.norm(tf.reshape(inner.gradient(total, between), [3, -1]), axis=1)
        expected = (
            tf.reduce_mean(critic(fakes))
            - tf.reduce_mean(critic(images))
            + _PENALTY * tf.reduce_mean((norms - 1) ** 2)
        )
    np.testing.assert_allclose(loss, expected, rtol=1e-4)
    of_keras = tape.gradient(expected, critic.trainable_variables)
    models.assert_close(gradients, of_keras, rtol=2e-3, atol=1e-4)


def _keras_critic(weights):
    layers = tf.keras.layers
    leaky = lambda: layers.LeakyReLU(alpha=0.01)  # noqa: E731
    critic = tf.keras.Sequential(
        [
            layers.Conv2D(4, 4, strides=2, padding='same', input_shape=(28, 28, 1)),
            leaky(),
            layers.Conv2D(8, 4, strides=2, padding='same'),
            leaky(),
            layers.Flatten(),
            layers.Dense(16, use_bias=False),
            layers.LayerNormalization(scale=False, epsilon=1e-3),
            leaky(),
            layers.Dense(1),
        ]
    )
    critic.set_weights(weights)
    return critic
