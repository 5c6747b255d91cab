"""Pre-training on files: what is read, and what is replaced."""

import numpy as np
import pytest

from dpfl.errors import ArgumentError, StorageError
from dpfl.simulation.training import PretrainConfig, pretrain, pretraining
from dpfl.tasks.text.models import architectures, saved_models
from tests import text_files

_CONFIG = PretrainConfig(
    vocabulary_size=31, sentence_length=10, model='micro', batch_size=8, learning_rate=0.02
)


@pytest.fixture(scope='module', name='text')
def _text(tmp_path_factory):
    """240 sentences as JSON Lines."""
    path = tmp_path_factory.mktemp('text') / 'a.jsonl'
    text_files.write_clients(path, 20)
    return path


def _run(text, path, **changes):
    config = _CONFIG.with_values({'public_text': str(text), **changes})
    return pretrain(config, path / 'model')


def _tokens(text):
    _, sentences = pretraining._public(_CONFIG.with_values({'public_text': str(text)}))
    return np.concatenate(list(sentences()))


@pytest.mark.standard
def test_every_sentence_is_trained_on_once_an_epoch(text, tmp_path, monkeypatch):
    trained = []
    work = architectures.pretrain

    def seen(architecture, weights, chunks, **options):
        def kept():
            for chunk in chunks():
                trained.append(chunk)
                yield chunk

        return work(architecture, weights, kept, **options)

    monkeypatch.setattr(architectures, 'pretrain', seen)
    monkeypatch.setattr(pretraining, '_CHUNK', 50)
    result = _run(text, tmp_path, epochs=2)
    assert len(trained) == 10 and max(map(len, trained)) <= 50
    np.testing.assert_array_equal(np.concatenate(trained), np.tile(_tokens(text), (2, 1)))
    assert result.num_sentences == 240 and len(result.losses) == 60
    assert result.losses[-5:].mean() < result.losses[:5].mean()
    assert saved_models.load(str(result.output)).name == 'micro'
    few = _run(text, tmp_path, max_sentences=100)
    assert few.num_sentences == 100 and len(few.losses) == 100 // 8


@pytest.mark.parametrize('output', ['folder', 'folder/file', 'folder/..', '.'])
def test_nothing_but_a_saved_model_is_replaced(output, tmp_path, monkeypatch):
    monkeypatch.setattr(pretraining, '_public', lambda config: pytest.fail('read'))
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'folder').mkdir()
    (tmp_path / 'folder' / 'file').write_text('mine')
    with pytest.raises(ArgumentError, match='must be new, empty, or the folder of a SavedModel'):
        pretrain(_CONFIG, output)
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
    (tmp_path / 'file').write_text('')
    with pytest.raises(StorageError, match='file/model: '):
        _run(text, tmp_path / 'file')
    with pytest.raises(ArgumentError, match='public_clients=3: cannot be combined with public_te'):
        _run(text, tmp_path, public_clients=3)
