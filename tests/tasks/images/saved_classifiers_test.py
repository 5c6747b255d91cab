"""Classifiers from files: of runs, of studies, and as SavedModel."""

import json

import numpy as np
import pytest
import tensorflow as tf

from dpfl.errors import ArgumentError
from dpfl.tasks.config import ImageTaskConfig
from dpfl.tasks.images import classifiers

_PIXELS = np.random.default_rng(0).random([3, 28, 28]).astype(np.float32)


def _weights():
    return classifiers.initial_weights(classifiers.PRESETS['tiny'], 1)


def _write(path, **more):
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **{str(i): weight for i, weight in enumerate(_weights())}, **more)


@pytest.mark.parametrize('name', ['model.npz', 'primary/model.npz'])
def test_weights_of_a_run_and_of_a_study(tmp_path, name):
    _write(tmp_path / name, configuration=np.array('{}'))
    expected = classifiers.build_inference('tiny', _weights())(_PIXELS)
    for path in (tmp_path, tmp_path / name):
        model = classifiers.load(path)
        assert model.name == 'a model tiny'
        np.testing.assert_array_equal(model.probabilities(_PIXELS), expected[0])
        np.testing.assert_array_equal(model.features(_PIXELS), expected[1])


def _run_of(task, seed=3):
    return {'config.json': {'task': {'task': task}, 'seed': seed}}


def _study_of(task, **values):
    return {'primary/model.npz': {'task': task, **values}}


@pytest.mark.parametrize(
    'task, origin, known',
    [
        ('emnist', _run_of('emnist', seed=8), 'was trained on the clients of task=emnist'),
        ('synthetic_glyphs', _run_of('synthetic_glyphs'), 'was trained on the clients'),
        ('synthetic_glyphs', _run_of('synthetic_glyphs', seed=8), None),
        ('emnist', _run_of('synthetic_glyphs'), None),
        ('emnist', _study_of('emnist', heldout_fraction=0.1), None),
        ('emnist', _study_of('emnist', heldout_fraction=0.05), None),
        (
            'emnist',
            _study_of('emnist', heldout_fraction=0.2),
            'does not hold out: its study had 0.2',
        ),
        ('emnist', _study_of('emnist'), 'does not hold out: its study had None'),
        ('emnist', _study_of('emnist', heldout_fraction='0.1'), 'does not hold out'),
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
    for path in (tmp_path, *(each for each in files if each.exists() or 'config.json' in origin)):
        judged = ImageTaskConfig(task=task)
        if known is None:
            classifiers.require_stranger(path, judged, 3)
            continue
        with pytest.raises(ArgumentError, match=known) as raised:
            classifiers.require_stranger(path, judged, 3)
        assert raised.value.name == 'path'


class _Own(tf.Module):
    """Mean intensity times 1, 2, 3 and so on, as logits or as probabilities."""

    def __init__(self, outputs, channels, is_share):
        super().__init__()
        shape = [None, 28, 28] + ([1] if channels else [])
        factors = tf.range(1.0, outputs + 1)

        @tf.function(input_signature=[tf.TensorSpec(shape, tf.float32, name='images')])
        def serve(images):
            means = tf.reduce_mean(tf.reshape(images, [-1, 28 * 28]), axis=1, keepdims=True)
            logits = means * factors
            return {'scores': tf.nn.softmax(logits) if is_share else logits}

        self.serve = serve


def _save(path, outputs=62, channels=True, is_share=False):
    model = _Own(outputs, channels, is_share)
    tf.saved_model.save(model, str(path), signatures={'serving_default': model.serve})
    return path


@pytest.mark.parametrize('channels, is_share', [(True, False), (False, True)])
def test_a_saved_model_of_ones_own(tmp_path, channels, is_share):
    model = classifiers.load(_save(tmp_path / 'm', channels=channels, is_share=is_share))
    logits = _PIXELS.mean(axis=(1, 2))[:, None] * np.arange(1, 63)
    expected = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model.probabilities(_PIXELS), expected, rtol=1e-3)
    assert model.features(_PIXELS).shape == (3, 62)
    assert model.probabilities(_PIXELS[:0]).shape == (0, 62)


def test_what_is_no_classifier_is_refused(tmp_path):
    with pytest.raises(ArgumentError, match='path=.*holds no classifier of images'):
        classifiers.load(tmp_path)
    with pytest.raises(ArgumentError, match=r'of images \(no such file or directory\)$'):
        classifiers.load(tmp_path / 'absent')
    np.savez(tmp_path / 'model.npz', **{'0': np.zeros([3], np.float32)})
    with pytest.raises(ArgumentError, match='model.npz has not the weights of one of cnn, small'):
        classifiers.load(tmp_path)
    (tmp_path / 'model.npz').write_bytes(b'PK')
    with pytest.raises(ArgumentError, match='path='):
        classifiers.load(tmp_path)
    with pytest.raises(ArgumentError, match=r'must return 62 values.*\(2, 5\)'):
        classifiers.load(_save(tmp_path / 'five', outputs=5))
    damaged = tmp_path / 'damaged'
    damaged.mkdir()
    (damaged / 'saved_model.pb').write_bytes(b'nothing')
    with pytest.raises(ArgumentError, match='cannot be loaded'):
        classifiers.load(damaged)
