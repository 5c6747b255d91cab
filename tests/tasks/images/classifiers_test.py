"""Classifiers: sizes, a NumPy oracle, gradients, metrics, inference, central training."""

import collections
import math

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from dpfl.tasks.images import classifiers
from dpfl.tasks.images.classifiers import ClassifierSizes
from dpfl.tasks.images.synthetic_glyphs import SyntheticGlyphs

_EASY = SyntheticGlyphs(digit_share=1.0)


def _batch(count=4, seed=0):
    rng = np.random.default_rng(seed)
    return collections.OrderedDict(
        x=rng.random([count, 28, 28, 1], np.float32),
        y=rng.integers(62, size=count, dtype=np.int32),
    )


def _convolved(x, kernel, bias, stride):
    """One image, one output pixel at a time; padding as TensorFlow's SAME."""
    height, size, channels = len(x), len(kernel), kernel.shape[3]
    after = math.ceil(height / stride)
    padding = max((after - 1) * stride + size - height, 0)
    before = padding // 2
    padded = np.pad(x, ((before, padding - before), (before, padding - before), (0, 0)))
    result = np.zeros([after, after, channels])
    for row in range(after):
        for column in range(after):
            top, left = row * stride, column * stride
            patch = padded[top : top + size, left : left + size]
            result[row, column] = np.tensordot(patch, kernel, 3) + bias
    return np.maximum(result, 0)


def _oracle_logits(sizes, weights, image):
    x = image.astype(np.float64)
    *convolutions, hidden_kernel, hidden_bias, kernel, bias = weights
    for index in range(0, len(convolutions), 2):
        x = _convolved(x, *convolutions[index : index + 2], 1 if sizes.pools else 2)
        if sizes.pools:
            half = len(x) // 2
            x = x[: 2 * half, : 2 * half].reshape(half, 2, half, 2, -1).max(axis=(1, 3))
    return np.maximum(x.ravel() @ hidden_kernel + hidden_bias, 0) @ kernel + bias


@pytest.mark.parametrize(
    'sizes',
    [
        ClassifierSizes(kernel=3, channels=(2, 3), hidden=5),
        ClassifierSizes(kernel=4, channels=(2, 3, 2), hidden=4),
        ClassifierSizes(kernel=5, channels=(3, 2), hidden=5, pools=True),
        ClassifierSizes(kernel=3, channels=(2, 2, 2), hidden=3, pools=True),
    ],
)
def test_logits_equal_a_loop_over_pixels(sizes):
    rng = np.random.default_rng(1)
    weights = [0.3 * rng.normal(size=shape) for shape in sizes.weight_shapes()]
    images = _batch(2)['x']
    actual = classifiers.logits(sizes, [w.astype(np.float32) for w in weights], images)
    expected = [_oracle_logits(sizes, weights, image) for image in images]
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize('name', classifiers.PRESETS)
def test_models_start_at_chance_and_are_pure_functions_of_their_seed(name):
    model = classifiers.build_image_classifier(name, seed=1)
    again = classifiers.build_image_classifier(name, seed=1).initial_weights[0]
    other = classifiers.build_image_classifier(name, seed=2).initial_weights[0]
    for one, same in zip(model.initial_weights[0], again, strict=True):
        np.testing.assert_array_equal(one, same)
    assert (model.initial_weights[0][0] != other[0]).all()
    batch = _batch(32)
    output = model.predict_on_batch(model.initial_weights, batch['x'], training=False)
    assert model.loss(output, batch['y']).numpy() == pytest.approx(math.log(62), abs=0.7)
    if name == 'cnn':
        assert classifiers.PRESETS[name].num_parameters == (
            (25 + 1) * 32 + (25 * 32 + 1) * 64 + (7 * 7 * 64 + 1) * 512 + 513 * 62
        )


def test_loss_and_metrics_by_hand():
    model = classifiers.build_image_classifier('tiny', seed=0)
    logits = np.zeros([3, 62], np.float32)
    logits[0, 5], logits[1, 7], logits[2, 9] = 2, 2, 2
    labels = np.array([5, 7, 8], np.int32)
    total = math.log(61 + math.exp(2))
    losses = [total - 2, total - 2, total]
    state = model.initialize_metrics_state()
    for part in (slice(0, 1), slice(1, 3)):
        outcome = tff.learning.models.BatchOutput(None, tf.constant(logits[part]), None)
        state = model.update_metrics_state(state, labels=labels[part], batch_output=outcome)
    metrics = model.finalize_metrics(state)
    assert metrics['loss'].numpy() == pytest.approx(np.mean(losses), rel=1e-6)
    assert metrics['accuracy'].numpy() == pytest.approx(2 / 3)
    assert metrics['num_examples'].numpy() == 3
    assert model.loss(logits, labels).numpy() == pytest.approx(np.mean(losses), rel=1e-6)


def test_inference_goes_through_all_images_in_batches(monkeypatch):
    monkeypatch.setattr(classifiers, '_INFERENCE_BATCH', 3)
    sizes = classifiers.PRESETS['tiny']
    weights = classifiers.initial_weights(sizes, 0)
    infer = classifiers.build_inference('tiny', weights)
    images = _batch(8)['x']
    probabilities, features = infer(images[..., 0])
    expected = tf.nn.softmax(classifiers.logits(sizes, weights, images))
    np.testing.assert_allclose(probabilities, expected, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(
        features, classifiers.features(sizes, weights, images), rtol=1e-5, atol=1e-6
    )
    nothing = infer(np.zeros([0, 28, 28], np.float32))
    assert [part.shape for part in nothing] == [(0, 62), (0, sizes.hidden)]


@pytest.mark.exhaustive
def test_central_training_learns_digits():
    model = classifiers.build_image_classifier('tiny', seed=0)
    pixels, labels = _EASY.heldout_examples(60)
    weights = classifiers.train_centrally(model, pixels, labels, steps=300, learning_rate=0.01)
    again = classifiers.train_centrally(model, pixels, labels, steps=3, learning_rate=0.01)
    same = classifiers.train_centrally(model, pixels, labels, steps=3, learning_rate=0.01)
    for one, other in zip(again, same, strict=True):
        np.testing.assert_array_equal(one, other)
    infer = classifiers.build_inference('tiny', weights)
    others, their_labels = (
        np.concatenate(parts)
        for parts in zip(*(_EASY.examples(client) for client in range(20)), strict=True)
    )
    accuracy = (infer(others)[0].argmax(axis=1) == their_labels).mean()
    assert accuracy > 0.7
    # What the bug of [Augenstein20] does to it.
    assert (infer(1 - others)[0].argmax(axis=1) == their_labels).mean() < accuracy / 2
