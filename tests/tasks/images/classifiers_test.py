"""Classifiers: a NumPy oracle, metrics, inference, central training, and files."""

import collections
import contextlib
import json
import math

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from scipy import signal

from dpfl.errors import ArgumentError
from dpfl.tasks.config import ImageTaskConfig
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
    """One image by SciPy, one output channel at a time; padding as TensorFlow's SAME."""
    padding = max((math.ceil(len(x) / stride) - 1) * stride + len(kernel) - len(x), 0)
    sides = padding // 2, padding - padding // 2
    padded = np.pad(x, (sides, sides, (0, 0)))
    of_channels = [signal.correlate(padded, each, 'valid') for each in np.moveaxis(kernel, 3, 0)]
    return np.maximum(np.concatenate(of_channels, axis=2)[::stride, ::stride] + bias, 0)


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
def test_logits_equal_those_of_scipy(sizes):
    rng = np.random.default_rng(1)
    weights = [0.3 * rng.normal(size=shape) for shape in sizes.weight_shapes()]
    images = _batch(2)['x']
    actual = classifiers.logits(sizes, [w.astype(np.float32) for w in weights], images)
    expected = [_oracle_logits(sizes, weights, image) for image in images]
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize('name', classifiers.PRESETS)
def test_models_start_at_chance_and_are_pure_functions_of_their_seed(name):
    model, again, other = (classifiers.build_image_classifier(name, seed) for seed in (1, 1, 2))
    np.testing.assert_equal(model.initial_weights[0], again.initial_weights[0])
    assert (model.initial_weights[0][0] != other.initial_weights[0][0]).all()
    batch = _batch(32)
    output = model.predict_on_batch(model.initial_weights, batch['x'], training=False)
    assert model.loss(output, batch['y']).numpy() == pytest.approx(math.log(62), abs=0.7)


def test_the_size_of_the_largest_one():
    layers = (25 + 1) * 32, (25 * 32 + 1) * 64, (7 * 7 * 64 + 1) * 512, 513 * 62
    assert classifiers.PRESETS['cnn'].num_parameters == sum(layers)


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
    infer = classifiers.of_weights('tiny', weights)
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
    pixels, labels = _EASY.heldout_examples(60)
    weights = classifiers.train_centrally('tiny', pixels, labels, steps=300, learning_rate=0.01)
    again = classifiers.train_centrally('tiny', pixels, labels, steps=3, learning_rate=0.01)
    same = classifiers.train_centrally('tiny', pixels, labels, steps=3, learning_rate=0.01)
    np.testing.assert_equal(again, same)
    infer = classifiers.of_weights('tiny', weights)
    others, their_labels = (
        np.concatenate(parts)
        for parts in zip(*(_EASY.examples(client) for client in range(20)), strict=True)
    )
    accuracy = (infer(others)[0].argmax(axis=1) == their_labels).mean()
    assert accuracy > 0.7
    # What the bug of [Augenstein20] does to it.
    assert (infer(1 - others)[0].argmax(axis=1) == their_labels).mean() < accuracy / 2


_IMAGES = np.random.default_rng(0).random([3, 28, 28]).astype(np.float32)


def _weights():
    return classifiers.initial_weights(classifiers.PRESETS['tiny'], 1)


def _write(path, **more):
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **{str(i): weight for i, weight in enumerate(_weights())}, **more)


@pytest.mark.parametrize('name', ['model.npz', 'primary/model.npz'])
def test_weights_of_a_run_and_of_a_study(tmp_path, name):
    _write(tmp_path / name, configuration=np.array('{}'))
    expected = classifiers.of_weights('tiny', _weights())(_IMAGES)
    for path in (tmp_path, tmp_path / name):
        np.testing.assert_equal(classifiers.load(path)(_IMAGES), expected)


def _run_of(task, seed=3):
    return {'config.json': {'task': {'task': task}, 'seed': seed}}


def _study_of(task, **values):
    return {'primary/model.npz': {'task': task, **values}}


_TRAINED_ON, _NOT_HELD_OUT = (
    'was trained on the clients of task=',
    'does not hold out: its study had ',
)


@pytest.mark.parametrize(
    'task, origin, known',
    [
        ('emnist', _run_of('emnist', seed=8), f'{_TRAINED_ON}emnist'),
        ('synthetic_glyphs', _run_of('synthetic_glyphs'), _TRAINED_ON),
        ('synthetic_glyphs', _run_of('synthetic_glyphs', seed=8), None),
        ('emnist', _run_of('synthetic_glyphs'), None),
        ('emnist', _study_of('emnist', heldout_fraction=0.1), None),
        ('emnist', _study_of('emnist', heldout_fraction=0.05), None),
        ('emnist', _study_of('emnist', heldout_fraction=0.2), f'{_NOT_HELD_OUT}0.2'),
        ('emnist', _study_of('emnist'), f'{_NOT_HELD_OUT}None'),
        ('emnist', _study_of('emnist', heldout_fraction='0.1'), _NOT_HELD_OUT),
        ('emnist', _study_of('synthetic_glyphs'), None),
        ('synthetic_glyphs', _study_of('synthetic_glyphs', seed=3), None),
        ('emnist', {'config.json': ['task']}, None),
        ('emnist', {}, None),
    ],
)
def test_a_judge_must_not_know_the_clients(task, origin, known, tmp_path):
    """[Augenstein20], appendix C.3: who is strong and who is poor."""
    for name, values in origin.items():
        if name.endswith('.npz'):
            _write(tmp_path / name, configuration=np.array(json.dumps(values)))
        else:
            _write(tmp_path / 'model.npz')
            (tmp_path / name).write_text(json.dumps(values))
    files = [tmp_path / name for name in ('model.npz', 'primary', 'saved_model')]
    expected = contextlib.nullcontext()
    if known is not None:
        expected = pytest.raises(ArgumentError, match=f'^path=.*{known}')
    for path in (tmp_path, *(each for each in files if each.exists() or 'config.json' in origin)):
        with expected:
            classifiers.require_stranger(path, ImageTaskConfig(task=task), 3)


def _refused_paths(folder):
    """Paths of what is no classifier, and why."""
    yield folder, 'path=.*holds no classifier of images'
    yield folder / 'absent', r'of images \(no such file or directory\)$'
    np.savez(folder / 'model.npz', **{'0': np.zeros([3], np.float32)})
    yield folder, 'model.npz has not the weights of one of cnn, small'
    (folder / 'model.npz').write_bytes(b'PK')
    yield folder, 'path='


def test_what_is_no_classifier_is_refused(tmp_path):
    for path, message in _refused_paths(tmp_path):
        with pytest.raises(ArgumentError, match=message):
            classifiers.load(path)
