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
    weights = saved_models.ALL[name].initial_weights(
        50 if name in saved_models.WORD_MODELS else 258, seed=1
    )
    return saved_models.LanguageModel(
        name, weights, _WORDS if name in saved_models.WORD_MODELS else None
    )


@pytest.mark.parametrize('name', ['micro', 'lstm_tiny', 'char_small'])
def test_a_model_comes_back_with_its_bits(name, tmp_path):
    model, path = _model(name), tmp_path / 'model'
    saved_models.save(model, path)
    saved_models.save(model, path)  # Replaces.
    again = saved_models.load(path)
    assert (again.name, again.vocabulary) == (model.name, model.vocabulary)
    for first, second in zip(model.weights, again.weights, strict=True):
        np.testing.assert_array_equal(first, second)
    assert [p.name for p in tmp_path.iterdir()] == ['model']


@pytest.mark.parametrize('function', ['save', 'write'])
def test_a_model_that_cannot_be_written_is_an_error_of_the_system(tmp_path, function):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    module = tf.Module()
    module.weights = tf.Variable(tf.zeros(10_000))
    try:
        with pytest.raises(OSError, match='File too large') as caught:
            if function == 'save':
                saved_models.save(_model('micro'), tmp_path / 'model')
            else:
                saved_models.write(module, tmp_path / 'model', {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert '\n' not in str(caught.value)
    assert not (tmp_path / 'model').exists()
    saved_models.save(_model('micro'), tmp_path / 'model')
    assert [p.name for p in tmp_path.iterdir()] == ['model']


_STRANGER = """
import json, sys
import tensorflow as tf
tokens = tf.constant([[1, 7, 9, 4, 2], [1, 5, 5, 5, 5]])
found = []
for path in sys.argv[1:]:
    predict = tf.saved_model.load(path).signatures['serving_default']
    found.append(predict(tokens=tokens)['logits'].numpy().tolist())
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
        assert described == {'model': name, 'num_tokens': 50, 'vocabulary': list(_WORDS)}


def test_what_is_no_such_model_is_one_line(tmp_path):
    with pytest.raises(ValueError, match='^path=.*: must be a SavedModel .*no saved_model.pb'):
        saved_models.load(tmp_path / 'none')
    path = tmp_path / 'model'
    saved_models.save(_model('micro'), path)
    index = path / 'variables' / 'variables.data-00000-of-00001'
    index.write_bytes(index.read_bytes()[:100])
    with pytest.raises(ValueError, match='^path=.*: must be a SavedModel .*less bytes') as error:
        saved_models.load(path)
    assert '\n' not in str(error.value)


@pytest.mark.parametrize('spoil', ['fifo', 'words', 'float64'])
def test_a_folder_of_somebody_else_is_one_line(spoil, tmp_path):
    path = tmp_path / 'model'
    saved_models.save(_model('micro'), path)
    if spoil == 'fifo':
        (path / 'variables' / 'variables.index').unlink()
        os.mkfifo(path / 'variables' / 'variables.index')
    elif spoil == 'float64':
        model = _model('lstm_tiny')
        weights = tuple(weight.astype(np.float64) for weight in model.weights)
        checkpoint = tf.train.Checkpoint(parameters=[tf.Variable(weight) for weight in weights])
        shutil.rmtree(path / 'variables')
        checkpoint.write(str(path / 'variables' / 'variables'))
        description = {'model': 'lstm_tiny', 'num_tokens': 50, 'vocabulary': list(_WORDS)}
        (path / 'assets.extra' / 'model.json').write_text(json.dumps(description))
    else:
        file = path / 'assets.extra' / 'model.json'
        values = json.loads(file.read_text())
        file.write_text(json.dumps(values | {'vocabulary': [1] * len(_WORDS)}))
    signal.alarm(20)  # TensorFlow would wait for the FIFO, and the signal ends the tests.
    try:
        with pytest.raises(ValueError, match=f'^path={path}: must be a SavedModel') as caught:
            saved_models.load(path)
    finally:
        signal.alarm(0)
    assert str(caught.value).isprintable()
