"""Rows of clients, against loops over tokens."""

import json

import numpy as np
import pytest

from dpfl.errors import ArgumentError
from dpfl.tasks import source
from dpfl.tasks.config import DataConfig, TaskConfig, TextConfig
from dpfl.tasks.text import synthetic_task, synthetic_text, word_clients
from dpfl.tasks.text.packing import Packing, windows
from dpfl.tasks.text.vocabulary import Vocabulary

_PAD, _BEGIN, _END = 0, 1, 2
_LENGTH = 8
_LANGUAGE = synthetic_text.SyntheticText(
    vocabulary_size=60, sentence_length=_LENGTH, num_themes=5, seed=4
)
_IDS = Vocabulary(tuple(_LANGUAGE.vocabulary)).ids


def _sentences(client):
    return [line.split() for line in _LANGUAGE.text(client)]


def _windows_by_hand(sentences, length, most=None):
    tokens = []
    for words in sentences:
        tokens += [_IDS.get(word, 3) for word in words] + [_END]
    tokens = [_BEGIN, *tokens[:most]]
    rows = []
    for first in range(0, len(tokens) - 1, length):
        row = tokens[first : first + length + 1]
        rows.append(row + [_PAD] * (length + 1 - len(row)))
    return rows


@pytest.mark.parametrize('length, most', [(8, None), (10, None), (3, 40), (10, 1600), (1, 7)])
def test_windows_of_token_rows_and_of_words_are_those_of_a_loop(length, most):
    packing = Packing('windows', length, most)
    clients = word_clients.WordClients(5, _sentences)
    vocabulary = Vocabulary(tuple(_LANGUAGE.vocabulary))
    task = word_clients.WordTask(clients, clients, vocabulary, packing)
    for client in range(5):
        expected = _windows_by_hand(_sentences(client), length, most)
        rows = packing.of_rows(_LANGUAGE.tokens(client))
        assert rows.dtype == np.int32 and rows.tolist() == expected
        (batch,) = task.client_batches(client, 10**6)
        np.testing.assert_array_equal(batch['x'], rows[:, :-1])
        np.testing.assert_array_equal(batch['y'], rows[:, 1:])


def test_no_words_are_no_windows():
    assert windows(np.zeros(0, np.int32), 4).shape == (0, 5)
    empty = np.zeros((0, 5), np.int32)
    assert Packing('windows', 4).of_rows(empty).shape == (0, 5)
    assert Packing('sentences', 4, 1).of_rows(empty).shape == (0, 5)


def test_1600_tokens_are_20_batches_of_8_windows_of_10():
    # [McMahan18], section 3: 80 tokens in a batch, 20 batches for the 1600 tokens of a user.
    words = [['w'] * 99] * 40
    clients = word_clients.WordClients(2, lambda client: words)
    packing = Packing('windows', 10, max_tokens=1600, min_tokens=1600)
    task = word_clients.WordTask(clients, clients, Vocabulary(('w',)), packing)
    batches = task.client_batches(0, 8)
    assert [batch['y'].shape for batch in batches] == [(8, 10)] * 20
    targets = np.concatenate([batch['y'] for batch in batches]).ravel()
    assert (targets != _PAD).all() and (targets == _END).sum() == 16


@pytest.mark.parametrize('most', [1, 5, 8, 9, 40, 10**6])
def test_rows_of_sentences_have_the_first_words_as_if_encoded_from_text(most):
    for client in range(5):
        rows = Packing('sentences', _LENGTH, most).of_rows(_LANGUAGE.tokens(client))
        expected = word_clients.encode(_sentences(client), _IDS, _LENGTH, most)
        assert rows.dtype == np.int32
        np.testing.assert_array_equal(rows, expected)


@pytest.mark.parametrize('kind', ['sentences', 'windows'])
def test_a_client_with_too_little_text_has_no_rows(kind):
    for client in range(30):
        sentences = _sentences(client)
        tokens = sum(map(len, sentences)) + (len(sentences) if kind == 'windows' else 0)
        all_rows = Packing(kind, _LENGTH).of_rows(_LANGUAGE.tokens(client))
        for least, has in ((tokens, True), (tokens + 1, False)):
            packing = Packing(kind, _LENGTH, min_tokens=least)
            rows = packing.of_rows(_LANGUAGE.tokens(client))
            assert rows.tolist() == (all_rows.tolist() if has else [])
            assert bool(list(packing.of_long_enough(sentences))) == has
        for least, has in ((len(sentences), True), (len(sentences) + 1, False)):
            packing = Packing(kind, _LENGTH, min_sentences=least)
            rows = packing.of_rows(_LANGUAGE.tokens(client))
            assert rows.tolist() == (all_rows.tolist() if has else [])
            kept = list(packing.of_long_enough(iter([[], *sentences])))
            assert kept == (sentences if has else [])


def _task(**text):
    config = TaskConfig(
        model='micro', text=TextConfig(vocabulary_size=60, sentence_length=_LENGTH, **text)
    )
    return synthetic_task.SyntheticTextTask(config, seed=4).load()


def test_the_synthetic_task_has_the_rows_of_its_configuration():
    language = synthetic_text.SyntheticText(vocabulary_size=60, sentence_length=_LENGTH, seed=4)
    plain = _task().client_batches(3, 5, 2, 9)
    for batch, other in zip(plain, language.client_batches(3, 5, 2, 9), strict=True):
        np.testing.assert_array_equal(batch['x'], other['x'])
    task = _task(packing='windows', client_max_tokens=50, client_min_sentences=20)
    found = {client: task.client_batches(client, 99, 1, None) for client in range(20)}
    for client, batches in found.items():
        rows = language.tokens(client)
        expected = Packing('windows', _LENGTH, 50).of_rows(rows)
        assert len(batches) == (len(rows) >= 20)
        if batches:
            np.testing.assert_array_equal(batches[0]['y'], expected[:, 1:])
    assert 0 < sum(map(bool, found.values())) < 20
    # Held-out clients are not filtered.
    rows = np.concatenate([batch['x'].numpy() for batch in task.heldout(6, 64)])
    packed = [Packing('windows', _LENGTH, 50).of_rows(r) for r in language.heldout_clients(6)]
    np.testing.assert_array_equal(rows, np.concatenate(packed)[:, :-1])


@pytest.mark.parametrize(
    'text', [dict(packing='windows'), dict(client_min_tokens=5), dict(client_min_sentences=2)]
)
def test_images_have_no_rows_of_text(text):
    with pytest.raises(ArgumentError, match=f'{next(iter(text))}=.*: task=emnist has no text'):
        TaskConfig(task='emnist', text=TextConfig(**text))


def test_real_text_has_the_rows_of_its_configuration(tmp_path):
    texts = {f'client {i}': [f'w{j} b c d e f g h' for j in range(i + 1)] for i in range(6)}
    lines = [
        json.dumps(dict(client=client, text=text)) for client in texts for text in texts[client]
    ]
    (tmp_path / 'texts.jsonl').write_text('\n'.join(lines))
    (tmp_path / 'words').write_text('b\nc\nd\n')
    config = TaskConfig(
        task='user_text',
        model='micro',
        data=DataConfig(data_path=str(tmp_path / 'texts.jsonl')),
        text=TextConfig(
            vocabulary_file=str(tmp_path / 'words'),
            sentence_length=5,
            packing='windows',
            client_max_tokens=12,
            client_min_tokens=18,
        ),
    )
    task = source.open_task(config, 0, lambda text: None).load()
    found = [task.client_batches(client, 9, 1, None) for client in range(task.population)]
    sizes = sorted(len(batches) for batches in found)
    # One of six is held out; of 9 tokens a sentence, one or none of the others has fewer than 18.
    assert sizes in ([0, 1, 1, 1, 1], [1, 1, 1, 1, 1])
    (batch,) = found[-1]
    # The words e to h are dropped by sentences of 5 words, and are there in windows.
    np.testing.assert_array_equal(batch['y'][:2], [[3, 4, 5, 6, 3], [3, 3, 3, 2, 3]])
    assert batch['y'][2].tolist() == [4, 5, 0, 0, 0]
