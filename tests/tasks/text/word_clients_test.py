"""Token ids of sentences, rows and batches of clients, and how budgets cut them."""

import numpy as np
import pytest

from dpfl.tasks import federated_task
from dpfl.tasks.config import TaskConfig, TextConfig
from dpfl.tasks.text import synthetic_text, text_task, word_clients
from dpfl.tasks.text.vocabulary import Vocabulary
from dpfl.tasks.text.word_clients import TextData, WordClients

_IDS = {'a': 4, 'b': 5}
_SENTENCES = [['a', 'b'], [], ['b', 'x', 'a'], ['a', 'a', 'a', 'a'], ['b']]


def test_encode_by_hand():
    # Pad 0, begin 1, end 2, outside 3; a sentence that fills all positions has no end.
    expected = [[1, 4, 5, 2], [1, 5, 3, 4], [1, 4, 4, 4], [1, 5, 2, 0]]
    encoded = word_clients.encode(iter(_SENTENCES), _IDS, 3)
    assert encoded.dtype == np.int32 and encoded.tolist() == expected
    assert word_clients.encode([], _IDS, 3).shape == (0, 4)
    cut = word_clients.encode([['a', 'b', 'a']], _IDS, 5, max_tokens=2)
    assert cut.tolist() == [[1, 4, 5, 0, 0, 0]]  # No end: the sentence goes on.


@pytest.mark.parametrize(
    'limits, words',
    [
        (dict(max_tokens=1), [1]),
        (dict(max_tokens=2), [2]),
        (dict(max_tokens=4), [2, 2]),
        (dict(max_tokens=8), [2, 3, 3]),
        (dict(max_tokens=9), [2, 3, 3, 1]),
        (dict(max_sentences=2), [2, 3]),
    ],
)
def test_the_budget_counts_the_words_that_are_used_and_reading_stops_there(limits, words):
    def endless():
        yield from _SENTENCES
        while True:
            yield ['a', 'b']

    encoded = word_clients.encode(endless(), _IDS, 3, **limits)
    assert (encoded >= 3).sum(axis=1).tolist() == words


def _task(sentences, words=('a', 'b'), **text):
    """Five clients with these sentences, both to train on and held out."""
    clients = WordClients(5, sentences)
    config = TextConfig(**{'sentence_length': 4, 'client_max_tokens': 0, **text})
    return text_task.WordTask(TextData(clients, clients), Vocabulary(tuple(words)), config)


def _growing(client):
    """As many sentences as the id says, each a word longer."""
    return [['a'] * (i + 1) for i in range(client)]


def test_batches_of_a_client():
    task = _task(_growing)
    batches = task.client_batches(3, batch_size=2, epochs=2)
    assert [len(batch['x']) for batch in batches] == [2, 1, 2, 1]
    assert batches[0]['x'].tolist() == [[1, 4, 2, 0], [1, 4, 4, 2]]
    assert batches[0]['y'].tolist() == [[4, 2, 0, 0], [4, 4, 2, 0]]
    assert [len(b['x']) for b in task.client_batches(3, 2, 9, max_batches=3)] == [2, 1, 2]
    with pytest.raises(ValueError, match='^client=5: must be'):
        task.client_batches(5, 2)


def test_windows_are_read_only_as_far_as_they_are_used():
    def endless(client):
        while True:
            yield ['a', 'b'] * 7

    task = _task(endless, packing='windows', client_min_tokens=100)
    batches = task.client_batches(0, 3, epochs=2, max_batches=5)
    assert [batch['x'].shape for batch in batches] == [(3, 4)] * 5
    assert word_clients.encode_joined(endless(0), _IDS, 4, max_tokens=39).shape == (10, 5)


@pytest.mark.parametrize(
    'packing, rows',
    [
        (dict(client_min_tokens=6), [0, 0, 0, 3, 4]),
        # Words beyond the length are not used, and do not count; with windows ends of sentences do.
        (dict(client_min_tokens=11), [0] * 5),
        (dict(packing='windows', client_min_tokens=14), [0, 0, 0, 0, 4]),
        (dict(client_max_tokens=3), [0, 1, 2, 2, 2]),
    ],
)
def test_filters_are_for_training_clients_only(packing, rows):
    task = _task(_growing, **packing)
    assert [sum(len(b['x']) for b in task.client_batches(c, 9)) for c in range(5)] == rows
    # The one sentence of client 1.
    assert sum(len(batch['x']) for batch in task.heldout_dataset(2, 8)) == 1


def test_heldout_clients_are_pooled_up_to_those_that_there_are():
    sentences = [[['a'], ['b']], [], [['a', 'a']], [], []]
    task = _task(lambda client: sentences[client])
    rows = [batch['x'].numpy().tolist() for batch in task.heldout_dataset(99, 2)]
    assert rows == [[[1, 4, 2, 0], [1, 5, 2, 0]], [[1, 4, 4, 2]]]
    assert sum(len(batch['x']) for batch in task.heldout_dataset(2, 8)) == 2
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
    ids = [[_LANGUAGE_IDS.get(word, 3) for word in words] for words in sentences]
    return _joined(ids, length, most)


def _joined(sentences, length, most):
    """Windows of sentences of token ids."""
    tokens = [token for ids in sentences for token in [*ids, _END]]
    tokens = [_BEGIN, *tokens[:most]]
    rows = []
    for first in range(0, len(tokens) - 1, length):
        row = tokens[first : first + length + 1]
        rows.append(row + [_PAD] * (length + 1 - len(row)))
    return rows


@pytest.mark.parametrize('length, most', [(8, None), (10, None), (3, 40), (10, 1600), (1, 7)])
def test_windows_are_those_of_a_loop(length, most):
    text = dict(packing='windows', sentence_length=length, client_max_tokens=most or 0)
    task = _task(_sentences, _LANGUAGE.vocabulary, **text)
    for client in range(5):
        rows = task.of_client(client)
        assert rows['x'].dtype == np.int32
        found = np.concatenate([rows['x'][:, :1], rows['y']], axis=1).tolist()
        assert found == _windows_by_hand(_sentences(client), length, most)
        np.testing.assert_array_equal(rows['x'][:, 1:], rows['y'][:, :-1])


@pytest.mark.parametrize('kind', ['sentences', 'windows'])
def test_a_client_with_too_little_text_has_no_rows(kind):
    def rows(client, least):
        text = dict(packing=kind, sentence_length=_LENGTH, client_min_tokens=least)
        return _task(_sentences, _LANGUAGE.vocabulary, **text).of_client(client)['y']

    for client in range(5):
        sentences = _sentences(client)
        tokens = sum(map(len, sentences)) + (len(sentences) if kind == 'windows' else 0)
        np.testing.assert_array_equal(rows(client, tokens), rows(client, 0))
        assert rows(client, tokens).size and not rows(client, tokens + 1).size


def _synthetic_task(**text):
    config = TaskConfig(
        model='micro', text=TextConfig(vocabulary_size=60, sentence_length=_LENGTH, **text)
    )
    return text_task.TextTask(config, 4, print).load()


def test_the_synthetic_task_has_the_rows_of_its_configuration():
    language = synthetic_text.SyntheticText(vocabulary_size=60, sentence_length=_LENGTH, seed=4)
    plain = _synthetic_task()
    assert plain.population is plain.num_test_clients is None
    examples = word_clients.examples(language.tokens(3))
    np.testing.assert_equal(
        plain.client_batches(3, 5, 2, 9), federated_task.batches(examples, 5, 2, 9)
    )

    def windows(tokens):
        """The first 50 tokens of sentences, with ends of sentences, in windows."""
        words = [[*filter(lambda t: t > _END, row)] for row in tokens.tolist()]
        return np.array(_joined(words, _LENGTH, 50))

    task = _synthetic_task(packing='windows', client_max_tokens=50, client_min_tokens=150)
    found = {client: task.client_batches(client, 99, 1, None) for client in range(20)}
    for client, batches in found.items():
        tokens = language.tokens(client)
        is_long = (tokens > _END).sum() + len(tokens) >= 150
        expected = [windows(tokens)[:, 1:]] if is_long else []
        np.testing.assert_equal([batch['y'] for batch in batches], expected)
    assert 0 < sum(map(bool, found.values())) < 20
    # Held-out clients are not filtered.
    rows = np.concatenate([batch['x'].numpy() for batch in task.heldout(6, 64)])
    packed = [windows(language.tokens(client, 'heldout')) for client in range(6)]
    np.testing.assert_array_equal(rows, np.concatenate(packed)[:, :-1])
