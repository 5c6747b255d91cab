"""SavedModels compute what the models do that they were made from, also without dpfl."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from dpfl.tasks.text.models import saved_models

_WORDS = tuple(f'wört{i}' for i in range(46))


def _model(name):
    words = _WORDS if name in saved_models.WORD_MODELS else None
    weights = saved_models.ALL[name].initial_weights(50 if words else 258, seed=1)
    return saved_models.LanguageModel(name, weights, words)


def _described(name):
    return {'model': name, 'num_tokens': 50, 'vocabulary': list(_WORDS)}


@pytest.mark.parametrize('name', ['micro', 'lstm_tiny', 'char_small'])
def test_a_model_comes_back_with_its_bits(name, tmp_path):
    model, path = _model(name), tmp_path / 'model'
    saved_models.save(model, path)
    saved_models.save(model, path)  # Replaces.
    again = saved_models.load(path)
    assert (again.name, again.vocabulary) == (model.name, model.vocabulary)
    np.testing.assert_equal(again.weights, model.weights)
    assert [p.name for p in tmp_path.iterdir()] == ['model']


def test_a_link_to_a_folder_stays_one(tmp_path):
    (tmp_path / 'link').symlink_to('model')
    for _ in range(2):  # The folder is new, and then replaced.
        saved_models.write(tf.Module(), tmp_path / 'link', {})
        assert (tmp_path / 'model' / 'saved_model.pb').is_file()
    assert (tmp_path / 'link').is_symlink()


@pytest.mark.parametrize('function', ['save', 'write'])
def test_a_model_that_cannot_be_written_is_an_error_of_the_system(tmp_path, function):
    path, module = tmp_path / 'model', tf.Module()
    module.weights = tf.Variable(tf.zeros(10_000))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(OSError, match='File too large') as caught:
            if function == 'save':
                saved_models.save(_model('micro'), path)
            else:
                saved_models.write(module, path, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert '\n' not in str(caught.value) and not path.exists()
    saved_models.save(_model('micro'), path)
    assert [p.name for p in tmp_path.iterdir()] == ['model']


_STRANGER = """
import json, sys
import tensorflow as tf
tokens = tf.constant([[1, 7, 9, 4, 2], [1, 5, 5, 5, 5]])
found = []
for path in sys.argv[1:]:
    predict = tf.saved_model.load(path).signatures['serving_default']
    found.append(predict(tokens=tokens)['logits'].numpy().tolist())
    assert predict(tokens=tokens[:, :0])['logits'].shape == (2, 0, 50)
assert not any(name.startswith(('dpfl', 'tensorflow_federated')) for name in sys.modules)
print(json.dumps(found))
"""


@pytest.mark.standard
def test_tensorflow_alone_loads_them(tmp_path):
    names = ['micro', 'lstm_tiny']
    for name in names:
        saved_models.save(_model(name), tmp_path / name)
    done = subprocess.run(
        [sys.executable, '-I', '-c', _STRANGER, *(str(tmp_path / name) for name in names)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    tokens = tf.constant([[1, 7, 9, 4, 2], [1, 5, 5, 5, 5]])
    for name, logits in zip(names, json.loads(done.stdout), strict=True):
        model = _model(name)
        expected = model.architecture.logits(model.weights, tokens)
        np.testing.assert_allclose(logits, expected, atol=1e-5)
        described = json.loads((tmp_path / name / 'assets.extra/model.json').read_text('utf-8'))
        assert described == _described(name)


def _cut(path):
    index = path / 'variables' / 'variables.data-00000-of-00001'
    index.write_bytes(index.read_bytes()[:100])


def _with_fifo(path):
    (path / 'variables' / 'variables.index').unlink()
    os.mkfifo(path / 'variables' / 'variables.index')


def _with_words_that_are_numbers(path):
    values = _described('micro') | {'vocabulary': [1] * len(_WORDS)}
    (path / 'assets.extra' / 'model.json').write_text(json.dumps(values))


def _of_float64(path):
    weights = [tf.Variable(weight.astype(np.float64)) for weight in _model('lstm_tiny').weights]
    shutil.rmtree(path / 'variables')
    tf.train.Checkpoint(parameters=weights).write(str(path / 'variables' / 'variables'))
    (path / 'assets.extra' / 'model.json').write_text(json.dumps(_described('lstm_tiny')))


@pytest.mark.parametrize(
    'spoil, reason',
    [
        (shutil.rmtree, '.*no saved_model.pb'),
        (_cut, '.*less bytes'),
        (_with_fifo, ''),
        (_with_words_that_are_numbers, ''),
        (_of_float64, ''),
    ],
)
def test_a_folder_of_somebody_else_is_one_line(spoil, reason, tmp_path):
    path = tmp_path / 'model'
    saved_models.save(_model('micro'), path)
    spoil(path)
    signal.alarm(20)  # TensorFlow would wait for the FIFO, and the signal ends the tests.
    try:
        message = f'^path={path}: must be a SavedModel{reason}'
        with pytest.raises(ValueError, match=message) as caught:
            saved_models.load(path)
    finally:
        signal.alarm(0)
    assert str(caught.value).isprintable()
