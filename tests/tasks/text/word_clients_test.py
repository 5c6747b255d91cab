"""Token ids of sentences, their batches, and how budgets cut them."""

import numpy as np
import pytest

from dpfl.tasks.text import synthetic_text, word_clients
from dpfl.tasks.text.packing import Packing
from dpfl.tasks.text.vocabulary import Vocabulary

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


def test_it_encodes_the_text_of_the_synthetic_task_as_that_does():
    task = synthetic_text.SyntheticText(vocabulary_size=60, sentence_length=8, num_themes=5)
    ids = Vocabulary(tuple(task.vocabulary)).ids
    for client in range(5):
        sentences = [line.split() for line in task.text(client)]
        np.testing.assert_array_equal(word_clients.encode(sentences, ids, 8), task.tokens(client))


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


def test_windows_of_a_client():
    # Three sentences a, a a and a a a, an end (2) after each.
    (first, last) = _task('windows').client_batches(2, batch_size=2)
    np.testing.assert_array_equal(first['x'], [[1, 4, 2, 4], [4, 2, 4, 4]])
    np.testing.assert_array_equal(first['y'], [[4, 2, 4, 4], [2, 4, 4, 4]])
    np.testing.assert_array_equal(last['y'], [[2, 0, 0, 0]])
    (cut,) = _task('windows', max_tokens=6).client_batches(2, batch_size=2)
    np.testing.assert_array_equal(cut['y'], [[4, 2, 4, 4], [2, 4, 0, 0]])


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


def test_a_client_without_sentences_has_no_batches():
    none = word_clients.WordClients(1, lambda client: [])
    task = word_clients.WordTask(none, none, Vocabulary(('a',)), Packing('sentences', 4))
    assert task.client_batches(0, 2) == []


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


def test_what_is_refused():
    with pytest.raises(ValueError, match='client_max_tokens=0: must be'):
        _task(max_tokens=0)
    with pytest.raises(ValueError, match='client_min_tokens=-1: must be'):
        _task(min_tokens=-1)
    with pytest.raises(ValueError, match='packing=pages: must be one of sentences, windows'):
        _task('pages')
    with pytest.raises(ValueError, match='client=4: must be'):
        _task().client_batches(4, 2)
