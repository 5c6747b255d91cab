"""Steps of a GAN against derivatives worked out by hand, and Keras. Starts no TFF runtime."""

import collections
import functools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from dpfl.aggregators.noise import keys
from dpfl.learning import client_work, gan_work
from dpfl.tasks.images import gan_models as presets
from tests.learning import gan_models

_RATE, _PENALTY, _SEED = 0.1, 10.0, 3
_SGD = tff.learning.optimizers.build_sgdm(_RATE)


def _generated(generator, t, pixels):
    """The inputs for a client's batch in round t, drawn again from the seed."""
    root = keys.seeded_root_key(_SEED, 'generator inputs')
    key = keys.derive_from_content(
        keys.derive(keys.derive(root, t), 0), tf.reshape(2 * pixels - 1, [-1])
    )
    inputs = tf.random.stateless_normal(
        [len(pixels), 2], seed=keys.derive(key, 0), alg='philox'
    ).numpy()
    return inputs @ generator[0] + generator[1]


@functools.cache
def _model():
    return gan_work.discriminator_model(gan_models.linear_gan(), _PENALTY, _SEED)


def _client_record(batches, t=0):
    """Delta of a client in federated averaging: old minus new."""
    model = _model()
    update = client_work.fedavg(model, _SGD)
    trainable, others = model.initial_weights
    trainable = tuple(map(tf.constant, trainable))
    others = (*map(tf.constant, others[:-1]), tf.constant(t, tf.int64))
    state = update.start(trainable)
    for batch in batches:
        state, output = update.step((trainable, others), None, state, batch)
    return [leaf.numpy() for leaf in update.finish(trainable, state)], output


@pytest.mark.parametrize('sizes', [[4], [4, 4, 1], [1]])
@pytest.mark.parametrize('t', [0, 5])
def test_a_client_trains_as_worked_out_by_hand(sizes, t):
    batches = gan_models.client(7, sizes)
    record, _ = _client_record(batches, t)
    weights = gan_models.DISCRIMINATOR
    for batch in batches:
        generated = _generated(gan_models.GENERATOR, t, batch['x'])
        weights = gan_models.discriminator_step(weights, generated, batch['x'], _RATE, _PENALTY)
    for actual, old, new in zip(record, gan_models.DISCRIMINATOR, weights, strict=True):
        np.testing.assert_allclose(actual, old - new, rtol=1e-4, atol=1e-5)


def test_other_rounds_and_other_data_meet_other_images():
    model = gan_models.linear_gan()
    setting = gan_work.initial_setting(model, _SEED)
    one, two = (tf.constant(batch['x']) for batch in gan_models.client(1, [3, 3]))

    def generated(images, t=0):
        later = setting._replace(round=np.int64(t))
        return gan_work.client_scores(model, model.initial_discriminator, later, images).generated

    np.testing.assert_array_equal(generated(one), generated(one))
    for other in (generated(two), generated(one, 1)):
        assert not np.isin(other, generated(one)).any()


def test_the_server_never_meets_the_inputs_of_the_clients():
    root = keys.seeded_root_key(_SEED, 'generator inputs')
    streams = [keys.derive(keys.derive(root, 0), side).numpy() for side in (0, 1)]
    assert not np.array_equal(*streams)


@pytest.mark.parametrize('steps', [0, 1, 3])
def test_the_server_trains_as_worked_out_by_hand(steps):
    model, t = gan_models.linear_gan(), 2
    setting = gan_work.initial_setting(model, _SEED)._replace(round=tf.constant(t, tf.int64))
    setting = setting._replace(generator=tuple(map(tf.constant, setting.generator)))
    specs = tuple(tf.TensorSpec(w.shape, w.dtype) for w in setting.generator)
    new, _, loss = gan_work.train_generator(
        model,
        _SGD,
        model.initial_discriminator,
        setting,
        _SGD.initialize(specs),
        steps=steps,
        batch_size=5,
    )
    generator, losses = gan_models.GENERATOR, []
    root = keys.seeded_root_key(_SEED, 'generator inputs')
    for step in range(steps):
        key = keys.derive(keys.derive(keys.derive(root, t), 1), step)
        inputs = tf.random.stateless_normal([5, 2], seed=key, alg='philox').numpy()
        images = inputs @ generator[0] + generator[1]
        losses.append(-np.mean(images @ model.initial_discriminator[0] + 0.2))
        generator = gan_models.generator_step(generator, gan_models.DISCRIMINATOR, inputs, _RATE)
    for actual, expected in zip(new.generator, generator, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(loss, np.mean(losses) if losses else 0, rtol=1e-5)
    assert new.round == t + 1
    np.testing.assert_array_equal(new.key, root)


def test_metrics_are_those_of_all_examples():
    model = _model()
    values = [
        gan_work.Scores(*(tf.constant(part, tf.float32) for part in parts))
        for parts in ([[1, 2], [3, 5], [0.5, 0]], [[4], [1], [1]])
    ]
    state = model.initialize_metrics_state()
    for scores in values:
        state = model.update_metrics_state(
            state,
            labels=None,
            batch_output=tff.learning.models.BatchOutput(
                loss=None, predictions=scores, num_examples=None
            ),
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
    key = keys.seeded_root_key(0, 'test')
    with tf.GradientTape() as tape:
        tensors = tuple(map(tf.constant, discriminator))
        tape.watch(tensors)
        values = gan_work.scores(
            model, tensors, model.initial_generator, presets.images_of(pixels), key
        )
        loss = gan_work.discriminator_loss(values, _PENALTY)
    gradients = tape.gradient(loss, tensors)

    images = 2 * tf.constant(pixels) - 1
    fakes = gan_work.generated(model, model.initial_generator, key, 3)
    places = tf.random.stateless_uniform([3, 1, 1, 1], seed=keys.derive(key, 1), alg='philox')
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
    for actual, leaf in zip(
        gradients, tape.gradient(expected, critic.trainable_variables), strict=True
    ):
        np.testing.assert_allclose(actual, leaf, rtol=2e-3, atol=1e-4)


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


def test_weights_of_a_setting_keep_their_order():
    setting = gan_work.initial_setting(gan_models.linear_gan(), 1)
    again = gan_work.Setting.of(setting.weights)
    assert all(a is b for a, b in zip(again.generator, setting.generator, strict=True))
    assert again.key is setting.key and again.round == 0


def test_a_step_that_is_not_finite_is_nobody_elses_business():
    batches = gan_models.client(7, [4])
    batches[0] = collections.OrderedDict(batches[0], x=np.full([4, 2], np.inf, np.float32))
    record, _ = _client_record(batches)
    assert not np.isfinite(record[0]).all()  # What a shard replaces by zero.
