"""Words as bytes, and token ids as text."""

import numpy as np
import pytest

from dpfl.tasks.text import encoding


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
