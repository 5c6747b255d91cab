"""What the two models of a setting are trained on."""

import numpy as np
import pytest

from dpfl.inspection.text import config, settings
from dpfl.tasks.text import encoding, sentence_batches
from dpfl.tasks.text.vocabulary import Vocabulary
from dpfl.tasks.text.word_clients import WordClients

_SENTENCES = [['good', 'day', 'to', 'käse'], ['xyz', 'good'], ['day']]
_CLIENTS = WordClients(4, lambda client: [words[:] for words in _SENTENCES])
_TEXT = settings.Text(_CLIENTS, _CLIENTS.slice(0, 2), Vocabulary(('good', 'day', 'to')))


def _task(kind, share, text=_TEXT, **changes):
    return settings.task(
        kind,
        text,
        config.Case('joined_words', share) if share else config.Case(),
        **{
            **dict(
                model='micro' if kind == 'word' else 'char_tiny',
                sentence_length=4,
                word_length=9,
                eval_clients=5,
                seed=0,
            ),
            **changes,
        },
    )


def test_the_word_model_sees_joined_words_as_one_outside_the_vocabulary():
    clean, faulty = _task('word', 0), _task('word', 1)
    assert clean.rows(1).tolist() == [[1, 4, 5, 6, 3], [1, 3, 4, 2, 0], [1, 5, 2, 0, 0]]
    assert faulty.rows(1).tolist() == [[1, 3, 6, 3, 2], [1, 3, 2, 0, 0], [1, 5, 2, 0, 0]]
    assert clean.num_tokens == 7 and clean.length == 4
    np.testing.assert_array_equal(clean.heldout, np.concatenate([clean.rows(0)] * 2))
    (batch, last) = sentence_batches.batches(clean.rows(1), 2)
    assert batch['x'].tolist() == [[1, 4, 5, 6], [1, 3, 4, 2]]
    assert last['y'].tolist() == [[5, 2, 0, 0]]


def test_the_character_model_sees_the_words_outside_the_vocabulary_only():
    def words(rate, **changes):
        task = _task('char', rate, **changes)
        assert task.num_tokens == encoding.NUM_BYTE_TOKENS
        return encoding.decode_words(task.rows(2)[:, 1:])

    assert words(0) == ['käse', 'xyz']
    assert words(1) == ['good day', 'käse', 'xyz good']
    assert words(1, word_length=4) == ['good', 'käs', 'xyz ']
    assert words(0, sentence_length=3) == ['xyz']


def test_a_client_without_such_words_has_no_examples():
    clients = WordClients(1, lambda client: [['good', 'day']])
    text = settings.Text(clients, _CLIENTS, _TEXT.vocabulary)
    assert _task('char', 0, text).rows(0).shape[0] == 0
    assert _task('char', 1, text).rows(0).shape[0] == 1


@pytest.mark.parametrize('kind', config.KINDS)
def test_a_client_gives_at_most_its_first_words(kind):
    text = settings.Text(_CLIENTS, _CLIENTS, _TEXT.vocabulary, max_tokens=5)
    rows = _task(kind, 0, text).rows(0)
    assert len(rows) == 2
    if kind == 'word':
        assert rows.tolist() == [[1, 4, 5, 6, 3], [1, 3, 2, 0, 0]]


def test_other_faults_damage_all_generators_alike():
    def rows(kind, fault):
        changes = dict(sentence_length=4, word_length=9, eval_clients=5, seed=0)
        model = 'micro' if kind == 'word' else 'char_tiny'
        case = config.Case(fault, 1.0)
        return settings.task(kind, _TEXT, case, model=model, **changes).rows(1)

    cut = rows('word', 'truncated')
    assert cut[0].tolist() == [1, 4, 3, 2, 0]  # good, and a part of day
    assert encoding.decode_words(rows('char', 'truncated')[:, 1:])[:1] == ['da']
