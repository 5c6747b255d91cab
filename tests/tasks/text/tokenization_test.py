"""Tokenisation: by hand on small texts, and a property of all texts."""

import random
import unicodedata

import pytest

from dpfl.tasks.text import tokenization


@pytest.mark.parametrize(
    'text, words',
    [
        ('Hello, World!', ['hello', ',', 'world', '!']),
        ("Don't use well-known e-mail.", ["don't", 'use', 'well-known', 'e-mail', '.']),
        ('Don\u2019t', ["don't"]),
        ("'quoted' -- dash", ["'", 'quoted', "'", '-', '-', 'dash']),
        ('f(x) = a_b*2', ['f', '(', 'x', ')', '=', 'a_b', '*', '2']),
        ('Cafe\u0301', ['caf\u00e9']),
        (
            '\u0928\u092e\u0938\u094d\u0924\u0947\u0964',
            ['\u0928\u092e\u0938\u094d\u0924\u0947', '\u0964'],
        ),
        (
            '\u201cso\u201d\u2014he said\u2026',
            ['\u201c', 'so', '\u201d', '\u2014', 'he', 'said', '\u2026'],
        ),
        (' \t\n', []),
        ('', []),
    ],
)
def test_words(text, words):
    assert tokenization.words(text) == words


@pytest.mark.parametrize(
    'text, sentences',
    [
        ('One. Two! Three? four', [['one', '.'], ['two', '!'], ['three', '?'], ['four']]),
        ('a line\r\nanother\n\n', [['a', 'line'], ['another']]),
        ('version 1.5 stays', [['version', '1', '.', '5', 'stays']]),
        ('  \n ', []),
    ],
)
def test_sentences(text, sentences):
    assert list(tokenization.sentences(text)) == sentences


def test_every_character_that_is_not_white_space_is_in_one_token():
    rng = random.Random(0)
    alphabet = "ab'-. \n\u00e9\u0301\u2019\u200d\u3002\U0001f600_#\u0130\u00df"
    for _ in range(2000):
        text = ''.join(rng.choices(alphabet, k=rng.randrange(12)))
        expected = unicodedata.normalize('NFC', text).replace('\u2019', "'").lower()
        words = tokenization.words(text)
        assert ''.join(words) == ''.join(expected.split())
        assert bool(words) == bool(text.strip())
        assert [w for s in tokenization.sentences(text) for w in s] == words
