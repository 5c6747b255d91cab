"""Token ids of sentences, rows and batches of clients, and how budgets cut them."""

import numpy as np
import pytest

from dpfl.tasks.config import TaskConfig, TextConfig
from dpfl.tasks.text import synthetic_text, text_task, word_clients
from dpfl.tasks.text.vocabulary import Vocabulary
from dpfl.tasks.text.word_clients import Packing

_IDS = {'a': 4, 'b': 5}
_SENTENCES = [['a', 'b'], [], ['b', 'x', 'a'], ['a', 'a', 'a', 'a'], ['b']]


def test_encode_by_hand():
    # Pad 0, begin 1, end 2, outside 3; a sentence that fills all positions has no end.
    expected = [[1, 4, 5, 2], [1, 5, 3, 4], [1, 4, 4, 4], [1, 5, 2, 0]]
    encoded = word_clients.encode(iter(_SENTENCES), _IDS, 3)
    assert encoded.dtype == np.int32
    np.testing.assert_array_equal(encoded, expected)
    np.testing.assert_array_equal(
        word_clients.encode(_SENTENCES, _IDS, 3, max_sentences=2), expected[:2]
    )
    assert word_clients.encode([], _IDS, 3).shape == (0, 4)


@pytest.mark.parametrize(
    'budget, words',
    [(1, [1]), (2, [2]), (4, [2, 2]), (8, [2, 3, 3]), (9, [2, 3, 3, 1]), (10**9, [2, 3, 3, 1])],
)
def test_the_budget_counts_the_words_that_are_used(budget, words):
    encoded = word_clients.encode(_SENTENCES, _IDS, 3, max_tokens=budget)
    assert (encoded >= 3).sum(axis=1).tolist() == words
    cut = word_clients.encode([['a', 'b', 'a']], _IDS, 5, max_tokens=2)
    np.testing.assert_array_equal(cut, [[1, 4, 5, 0, 0, 0]])  # No end: the sentence goes on.


def test_reading_stops_when_the_budget_is_used():
    def endless():
        while True:
            yield ['a', 'b']

    assert len(word_clients.encode(endless(), _IDS, 3, max_tokens=5)) == 3
    assert len(word_clients.encode(endless(), _IDS, 3, max_sentences=7)) == 7


def _task(kind='sentences', **kwargs):
    clients = word_clients.WordClients(5, lambda client: [['a'] * (i + 1) for i in range(client)])
    return word_clients.WordTask(
        clients.slice(1, 5), clients.slice(0, 1), Vocabulary(('a', 'b')), Packing(kind, 4, **kwargs)
    )


def test_batches_of_a_client():
    batches = _task().client_batches(2, batch_size=2, epochs=2)
    assert [len(batch['x']) for batch in batches] == [2, 1, 2, 1]
    np.testing.assert_array_equal(batches[0]['x'], [[1, 4, 2, 0], [1, 4, 4, 2]])
    np.testing.assert_array_equal(batches[0]['y'], [[4, 2, 0, 0], [4, 4, 2, 0]])
    assert [len(b['x']) for b in _task().client_batches(2, 2, 9, max_batches=3)] == [2, 1, 2]
    assert _task(max_tokens=1).client_batches(3, 2)[0]['x'].shape == (1, 4)


def test_windows_are_read_only_as_far_as_they_are_used():
    def endless(client):
        while True:
            yield ['a', 'b'] * 7

    clients = word_clients.WordClients(2, endless)
    packing = Packing('windows', 4, min_tokens=100, min_sentences=3)
    task = word_clients.WordTask(clients, clients, Vocabulary(('a', 'b')), packing)
    batches = task.client_batches(0, 3, epochs=2, max_batches=5)
    assert [batch['x'].shape for batch in batches] == [(3, 4)] * 5
    assert len(word_clients.encode_joined(endless(0), _IDS, 40)) == 40


def test_filters_are_for_training_clients_only():
    task = _task(min_sentences=3, min_tokens=6)
    assert [len(task.client_batches(client, 9)) for client in range(4)] == [0, 0, 1, 1]
    # Words beyond the length are not used, and do not count; with windows ends of sentences do.
    assert [len(_task(min_tokens=11).client_batches(c, 9)) for c in range(4)] == [0] * 4
    windows = _task('windows', min_tokens=14)
    assert [len(windows.client_batches(c, 9)) for c in range(4)] == [0, 0, 0, 1]
    clients = word_clients.WordClients(2, lambda client: [['a']])
    few = Packing('windows', 4, min_sentences=2)
    task = word_clients.WordTask(clients, clients, Vocabulary(('a',)), few)
    assert task.client_batches(0, 1) == []
    assert sum(len(batch['x']) for batch in task.heldout_dataset(2, 8)) == 2


def test_heldout_clients_are_pooled_up_to_those_that_there_are():
    clients = word_clients.WordClients(3, lambda client: [['a'] * (client + 1)])
    task = word_clients.WordTask(clients, clients, Vocabulary(('a',)), Packing('sentences', 4))
    rows = [batch['x'].numpy() for batch in task.heldout_dataset(99, 2)]
    assert [len(part) for part in rows] == [2, 1]
    expected = word_clients.encode([['a'] * n for n in (1, 2, 3)], {'a': 4}, 4)[:, :4]
    np.testing.assert_array_equal(np.concatenate(rows), expected)
    assert sum(len(batch['x']) for batch in task.heldout_dataset(2, 8)) == 2


def test_owners_of_heldout_sentences():
    sentences = [[['a'], ['b']], [], [['a']]]
    clients = word_clients.WordClients(3, lambda client: sentences[client])
    task = word_clients.WordTask(clients, clients, Vocabulary(('a',)), Packing('sentences', 4))
    assert task.heldout_owners(99).tolist() == [0, 0, 2]
    assert task.heldout_owners(2).tolist() == [0, 0]


_PAD, _BEGIN, _END = 0, 1, 2
_LENGTH = 8
_LANGUAGE = synthetic_text.SyntheticText(
    vocabulary_size=60, sentence_length=_LENGTH, num_themes=5, seed=4
)
_LANGUAGE_IDS = Vocabulary(tuple(_LANGUAGE.vocabulary)).ids


def _sentences(client):
    return [line.split() for line in _LANGUAGE.text(client)]


def _windows_by_hand(sentences, length, most=None):
    tokens = []
    for words in sentences:
        tokens += [_LANGUAGE_IDS.get(word, 3) for word in words] + [_END]
    tokens = [_BEGIN, *tokens[:most]]
    rows = []
    for first in range(0, len(tokens) - 1, length):
        row = tokens[first : first + length + 1]
        rows.append(row + [_PAD] * (length + 1 - len(row)))
    return rows


@pytest.mark.parametrize('length, most', [(8, None), (10, None), (3, 40), (10, 1600), (1, 7)])
def test_windows_are_those_of_a_loop(length, most):
    packing = Packing('windows', length, most)
    clients = word_clients.WordClients(5, _sentences)
    vocabulary = Vocabulary(tuple(_LANGUAGE.vocabulary))
    task = word_clients.WordTask(clients, clients, vocabulary, packing)
    for client in range(5):
        rows = task.training_tokens(client)
        expected = _windows_by_hand(_sentences(client), length, most)
        assert rows.dtype == np.int32 and rows.tolist() == expected


@pytest.mark.parametrize('kind', ['sentences', 'windows'])
def test_a_client_with_too_little_text_has_no_rows(kind):
    for client in range(30):
        sentences = _sentences(client)
        tokens = sum(map(len, sentences)) + (len(sentences) if kind == 'windows' else 0)
        for least, has in ((tokens, True), (tokens + 1, False)):
            packing = Packing(kind, _LENGTH, min_tokens=least)
            assert bool(list(packing.of_long_enough(sentences))) == has
        for least, has in ((len(sentences), True), (len(sentences) + 1, False)):
            packing = Packing(kind, _LENGTH, min_sentences=least)
            kept = list(packing.of_long_enough(iter([[], *sentences])))
            assert kept == (sentences if has else [])


def _synthetic_task(**text):
    config = TaskConfig(
        model='micro', text=TextConfig(vocabulary_size=60, sentence_length=_LENGTH, **text)
    )
    return text_task.SyntheticTextTask(config, seed=4).load()


def _windows(rows):
    """The first 50 tokens of sentences, with ends of sentences, in windows."""
    joined = [token for row in rows.tolist() for token in [*filter(lambda t: t > _END, row), _END]]
    return word_clients.windows(np.array(joined[:50]), _LENGTH)


def test_the_synthetic_task_has_the_rows_of_its_configuration():
    language = synthetic_text.SyntheticText(vocabulary_size=60, sentence_length=_LENGTH, seed=4)
    plain = _synthetic_task()
    assert plain.population is plain.num_test_clients is None
    rows = language.tokens(3)
    for batch, other in zip(
        plain.client_batches(3, 5, 2, 9), word_clients.batches(rows, 5, 2, 9), strict=True
    ):
        np.testing.assert_array_equal(batch['x'], other['x'])
        np.testing.assert_array_equal(batch['y'], other['y'])
    task = _synthetic_task(packing='windows', client_max_tokens=50, client_min_sentences=20)
    found = {client: task.client_batches(client, 99, 1, None) for client in range(20)}
    for client, batches in found.items():
        rows = language.tokens(client)
        assert len(batches) == (len(rows) >= 20)
        if batches:
            np.testing.assert_array_equal(batches[0]['y'], _windows(rows)[:, 1:])
    assert 0 < sum(map(bool, found.values())) < 20
    # Held-out clients are not filtered.
    rows = np.concatenate([batch['x'].numpy() for batch in task.heldout(6, 64)])
    packed = [_windows(language.heldout_tokens(client)) for client in range(6)]
    np.testing.assert_array_equal(rows, np.concatenate(packed)[:, :-1])
