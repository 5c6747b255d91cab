"""The tokenisation bug, and words as bytes."""

import numpy as np
import pytest

from dpfl.tasks.text import encoding, tokenization_bugs
from dpfl.tasks.text.word_clients import WordClients

_CLIENTS = WordClients(3, lambda client: [['good', 'day', 'to', 'you'], ['yes'], ['so', 'so']] * 50)


def _joined(rate, client=1):
    return list(tokenization_bugs.join_first_words(_CLIENTS, rate, seed=7).sentences(client))


def test_the_fault_at_its_extremes():
    assert _joined(0) == list(_CLIENTS.sentences(1))
    assert _joined(1)[:3] == [['good day', 'to', 'you'], ['yes'], ['so so']]
    assert tokenization_bugs.join_first_words(_CLIENTS, 1, 7).count == 3


def test_settings_are_nested_and_clients_differ():
    def affected(rate, client):
        return {i for i, words in enumerate(_joined(rate, client)) if ' ' in words[0]}

    few, more = affected(0.1, 1), affected(0.5, 1)
    assert few < more and 1 not in more
    assert few != affected(0.1, 2)
    many = sum(len(affected(0.1, client)) for client in range(40))
    assert many == pytest.approx(0.1 * 100 * 40, abs=114)  # Six standard deviations.


@pytest.mark.parametrize(
    'rate, seed, message',
    [
        (float('nan'), 0, 'rate=nan: must be'),
        (1.5, 0, 'rate=1.5: must be'),
        (0.5, -1, 'seed=-1'),
    ],
)
def test_bad_arguments_are_named(rate, seed, message):
    with pytest.raises(ValueError, match=f'^{message}'):
        tokenization_bugs.join_first_words(_CLIENTS, rate, seed)


def test_words_as_bytes_and_back():
    words = ['a', 'good day', 'käse', '日本']
    tokens = encoding.encode_words(words, 12)
    assert tokens.shape == (4, 13) and tokens.dtype == np.int32
    assert tokens[0].tolist() == [256, 97, 257] + [0] * 10
    assert tokens[2, :7].tolist() == [256, 107, 195, 164, 115, 101, 257]
    assert encoding.decode_words(tokens[:, 1:]) == words
    assert tokens.max() < encoding.NUM_BYTE_TOKENS


def test_long_words_are_cut_and_have_no_end():
    tokens = encoding.encode_words(['abcdef', 'abc', 'ab'], 3)
    assert tokens.tolist() == [[256, 97, 98, 99], [256, 97, 98, 99], [256, 97, 98, 257]]
    assert encoding.decode_words(tokens[:, 1:]) == ['abc', 'abc', 'ab']
    assert encoding.decode_words(np.array([[0xE6, 257, 0]])) == ['�']


@pytest.mark.parametrize('word', ['', 'a\0b'])
def test_words_that_cannot_be_encoded_are_refused_but_not_quoted(word):
    with pytest.raises(ValueError, match='^words: must be non-empty words without zero bytes$'):
        encoding.encode_words([word], 4)


def test_sentences_as_text():
    tokens = np.array([[4, 3, 5, 2, 0], [3, 3, 1, 5, 5]])
    assert encoding.decode_sentences(tokens, ['so', 'what']) == [
        'so UNK what',
        'UNK UNK what what',
    ]
