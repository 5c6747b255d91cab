"""The test of a final model: on whom, once, in which files, and what is refused."""

import json

import numpy as np
import pytest

from dpfl import learning
from dpfl.accounting.records import archive
from dpfl.errors import ArgumentError
from dpfl.simulation import public_copy
from dpfl.simulation.training import train
from dpfl.tasks.text.models import saved_models
from dpfl.tasks.text.synthetic_text import SyntheticText
from dpfl.tasks.text.tokenization import NUM_SPECIAL_TOKENS
from tests.repository import threat_model
from tests.simulation.training import small_config
from tests.tasks import sqlite_files

pytestmark = [pytest.mark.tff, pytest.mark.standard, pytest.mark.usefixtures('undrawn')]

_CONFIG = small_config.GAUSSIAN.with_values(
    {
        'rounds': 2,
        'population': 8,
        'min_separation': 2,
        'eval_clients': 3,
        'test_clients': 5,
    }
)


@pytest.fixture(name='tested')
def _tested():
    return small_config.finished(_CONFIG)


def _by_hand(weights, rows):
    """Loss, accuracy and counts over rows of token ids, without batches."""
    model = saved_models.build('micro', 44, 6, seed=0)
    targets = rows[:, 1:]
    logits = model.predict_on_batch((weights, ()), rows[:, :-1], training=False).numpy()
    logits = logits.astype(np.float64)
    log_probabilities = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    losses = -np.take_along_axis(log_probabilities, targets[..., None], axis=-1)[..., 0]
    is_word = targets >= NUM_SPECIAL_TOKENS
    return {
        'loss': losses[targets != 0].mean(),
        'accuracy': (logits.argmax(axis=-1) == targets)[is_word].mean(),
        'num_tokens': (targets != 0).sum(),
        'num_examples': len(rows),
    }


def test_the_final_model_is_measured_on_clients_of_their_own(tested):
    language = SyntheticText(vocabulary_size=40, sentence_length=6, seed=0)
    rows = np.concatenate([language.tokens(client, 'test') for client in range(5)])
    expected = _by_hand(tested.weights, rows)
    assert {name: tested.test_metrics[name] for name in expected} == pytest.approx(
        expected, rel=1e-5
    )
    stated = json.loads((tested.directory / 'test_metrics.json').read_text())
    assert stated == {'rounds': 2, 'metrics': tested.test_metrics}
    assert archive.TEST in archive.listed(tested.directory)
    assert not threat_model.shared_by_mistake(tested.directory)
    assert tested.summary()['test_loss'] == tested.test_metrics['loss']
    # The held-out metrics are those of others.
    assert tested.last['num_tokens'] != expected['num_tokens']
    others = [language.tokens(0), language.tokens(0, 'heldout')]
    assert not any(np.array_equal(language.tokens(0, 'test'), each) for each in others)


def test_a_run_that_fails_during_its_test_is_completed(tested, tmp_path, monkeypatch):
    def failing(*arguments):
        raise RuntimeError

    with monkeypatch.context() as changed:
        changed.setattr(learning, 'evaluate_once', failing)
        with pytest.raises(RuntimeError):
            train(_CONFIG, tmp_path / 'run')
    assert not (tmp_path / 'run' / archive.TEST).exists()
    found = train(_CONFIG, tmp_path / 'run', resume=True)
    for name in (archive.TEST, archive.MODEL):
        expected = (tested.directory / name).read_bytes()
        assert (tmp_path / 'run' / name).read_bytes() == expected
    assert found.test_metrics == tested.test_metrics
    assert archive.TEST in archive.listed(tmp_path / 'run')


def test_a_public_copy_does_not_have_it(tested, tmp_path):
    record = archive.read_plan(tested.directory)
    names = public_copy.write(tested.directory, tmp_path / 'copy', record)
    assert archive.TEST not in names and not (tmp_path / 'copy' / archive.TEST).exists()


@pytest.mark.parametrize(
    'splits, number, message',
    [
        (('train', 'heldout', 'test'), 11, 'test_clients=11: must be <= 10, the test clients'),
        (('train', 'heldout'), 1, 'test_clients=1: must be 0: the data have no test clients'),
    ],
)
def test_data_without_enough_test_clients_are_refused(splits, number, message, tmp_path):
    sentences = [sqlite_files.of_sentence('a word')] * 3
    clients = [(split, f'{split} {i}', sentences) for split in splits for i in range(10)]
    sqlite_files.write(tmp_path / 'data.sqlite', clients)
    (tmp_path / 'words').write_text('a\nword\n')
    config = _CONFIG.with_values(
        {
            'task': 'stackoverflow',
            'data_path': str(tmp_path / 'data.sqlite'),
            'vocabulary_file': str(tmp_path / 'words'),
            'vocabulary_size': None,
            'population': None,
            'test_clients': number,
        }
    )
    with pytest.raises(ArgumentError, match=f'^{message}'):
        train(config, tmp_path / 'run')
    assert not (tmp_path / 'run').exists()
