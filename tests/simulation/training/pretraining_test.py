"""Pre-training on files: what is read, what is held out, and the curve."""

import csv

import numpy as np
import pytest

from dpfl.errors import ArgumentError, StorageError
from dpfl.simulation.training import PretrainConfig, pretrain, pretraining
from dpfl.tasks.text.models import saved_models
from tests import text_files

_CONFIG = PretrainConfig(
    vocabulary_size=31, sentence_length=10, model='micro', batch_size=8, learning_rate=0.02
)


@pytest.fixture(scope='module', name='text')
def _text(tmp_path_factory):
    """240 sentences as JSON Lines, of which 12 are held out."""
    path = tmp_path_factory.mktemp('text') / 'a.jsonl'
    text_files.write_clients(path, 20)
    return path


def _run(text, path, **changes):
    config = _CONFIG.with_values({'public_text': str(text), **changes})
    return pretrain(config, path / 'model', progress=False)


def _tokens(text):
    _, sentences = pretraining._public(_CONFIG.with_values({'public_text': str(text)}))
    return np.concatenate(list(sentences()))


@pytest.mark.standard
def test_the_curve_is_that_of_sentences_that_are_not_trained_on(text, tmp_path, monkeypatch):
    trained = []
    work = pretraining._Split.chunks

    def seen(split):
        for chunk in work(split):
            trained.append(chunk)
            yield chunk

    monkeypatch.setattr(pretraining._Split, 'chunks', seen)
    monkeypatch.setattr(pretraining, '_CHUNK', 50)
    result = _run(text, tmp_path, epochs=2, eval_every=20)
    assert [row['step'] for row in result.curve] == [0, 20, 40, 56]
    assert len(trained) == 10 and max(map(len, trained)) <= 50
    tokens = _tokens(text)
    is_held = np.arange(len(tokens)) % 20 == 19
    np.testing.assert_array_equal(np.concatenate(trained), np.tile(tokens[~is_held], (2, 1)))
    model = saved_models.load(str(result.output))
    architecture = saved_models.WORD_MODELS['micro']
    logits = architecture.logits(model.weights, tokens[is_held][:, :-1]).numpy()
    targets = tokens[is_held][:, 1:]
    logs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    losses = -np.take_along_axis(logs, targets[..., None], axis=-1)[..., 0]
    assert result.curve[-1]['loss'] == pytest.approx(losses[targets != 0].mean(), rel=1e-4)
    hits = logits.argmax(axis=-1) == targets
    assert result.curve[-1]['accuracy'] == pytest.approx(hits[targets > 3].mean())
    assert result.curve[-1]['accuracy'] > result.curve[0]['accuracy']
    with open(tmp_path / 'model.curve.csv') as file:
        rows = [{name: float(text) for name, text in row.items()} for row in csv.DictReader(file)]
    assert rows == list(result.curve)
    assert (tmp_path / 'model.curve.png').stat().st_size > 1000


@pytest.mark.standard
def test_doses_are_the_first_sentences(text, tmp_path):
    few = _run(text, tmp_path, max_sentences=100)
    assert few.num_sentences == 95 and len(few.losses) == 95 // 8
    none_held = _run(text, tmp_path, max_sentences=100, heldout_sentences=0)
    assert none_held.num_sentences == 100 and none_held.curve == ()


@pytest.mark.parametrize('output', ['folder', 'folder/file', 'folder/..', '.'])
def test_nothing_but_a_saved_model_is_replaced(output, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'folder').mkdir()
    (tmp_path / 'folder' / 'file').write_text('mine')
    with pytest.raises(ArgumentError, match='must be new, empty, or the folder of a SavedModel'):
        pretrain(_CONFIG, output, progress=False)
    assert (tmp_path / 'folder' / 'file').read_text() == 'mine'


def test_an_empty_text_is_refused(tmp_path):
    (tmp_path / 'a.txt').write_text('word\n')
    (tmp_path / 'b.txt').write_text('\n')
    with pytest.raises(ArgumentError, match='batch_size=8: must be at most the number of'):
        _run(tmp_path / 'a.txt', tmp_path)
    with pytest.raises(ArgumentError, match='public_text=.*: must have words'):
        _run(tmp_path / 'b.txt', tmp_path)


def test_where_no_model_can_be_written_nothing_is_trained(text, tmp_path, monkeypatch):
    monkeypatch.setattr(pretraining, '_public', lambda config: pytest.fail('read'))
    with pytest.raises(ArgumentError, match='output=.: must be new, empty, or'):
        pretrain(_CONFIG, '.', progress=False)
    (tmp_path / 'file').write_text('')
    config = _CONFIG.with_values({'public_text': str(text)})
    with pytest.raises(StorageError, match='file/model: '):
        pretrain(config, tmp_path / 'file' / 'model', progress=False)
    with pytest.raises(ArgumentError, match='public_clients=3: cannot be combined with public_te'):
        config.with_values({'public_clients': 3})
