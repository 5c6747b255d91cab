"""Traits of words and sentences by hand, and words that differ."""

import numpy as np
import pytest

from dpfl.debugging import differences
from dpfl.debugging.text import diagnosis, faults, traits
from dpfl.tasks.text import tokenization
from dpfl.tasks.text.word_clients import WordClients

# Tokens: 0 padding, 1 begin, 2 end, 3 unknown, then words.
_WORDS = ('fix', 'the', 'bug', '.', '(')
_SENTENCES = np.array(
    [
        [4, 5, 6, 7, 2],  # fix the bug .
        [3, 5, 5, 3, 2],  # UNK the the UNK
        [3, 2, 0, 0, 0],  # UNK
        [2, 0, 0, 0, 0],
        [4, 3, 6, 8, 5],  # fix UNK bug ( the, without an end
        [4, 5, 6, 7, 2],
        [5, 7, 2, 0, 0],  # the .
        [3, 3, 3, 3, 2],
        [4, 4, 7, 7, 2],  # fix fix . .
        [6, 2, 0, 0, 0],
    ]
)


def test_traits_of_sentences_by_hand():
    found = traits.of_sentences(_SENTENCES, _WORDS)
    assert set(found) == {trait.name for trait in traits.OF_SENTENCES}
    counts = {
        name: (measure.hits, measure.count)
        for name, measure in found.items()
        if isinstance(measure, differences.Share)
    }
    assert counts == {
        'first_unknown': (3, 9),
        'last_unknown': (2, 6),
        'short': (3, 9),
        'endless': (1, 10),
        'ends_punctuated': (4, 8),
        'repeated': (1, 1),  # Of the first half, one is long and has no unknown word.
    }
    assert found['length'].value == pytest.approx(29 / 10)
    assert found['later_unknown'].value == pytest.approx(3 / 13)
    assert found['punctuation'].value == pytest.approx(6 / 29)
    # "the the" and "fix fix"; neither unknown words nor punctuation count.
    assert found['doubled'].value == pytest.approx(2 / 20)


def test_unknown_by_position():
    found = traits.unknown_by_position(_SENTENCES)
    counts = [(share.hits, share.count) for share in found]
    assert counts == [(3, 9), (2, 7), (1, 6), (2, 6), (0, 1)]


def _of(words, length=24):
    return traits.of_words(tokenization.encode_words(words, length)[:, 1:])


@pytest.mark.parametrize(
    'word, expected',
    [
        ('plain', set()),
        ('fix the', {'inner_space'}),
        ('fix :', set()),
        ('bug.', {'punctuated'}),
        ('...', {'no_letters'}),
        ("don't", set()),
        ('a.b', {'inner_punctuation'}),
        ('käse', {'non_ascii'}),
        ('kã¤se', {'non_ascii', 'mis_decoded'}),
        ('ï»¿fix', {'non_ascii', 'mis_decoded'}),
        ('don&#39;t', {'mis_decoded', 'digits'}),
        ('ï»¿.', {'non_ascii', 'mis_decoded', 'no_letters'}),
        ('a&b', {'inner_punctuation'}),
        ('a\x01', {'noise'}),
        ('v2', {'digits'}),
        ('Fix', {'capitals'}),
        ('x' * 30, {'cut'}),
    ],
)
def test_traits_of_words_by_hand(word, expected):
    found = _of([word])
    assert set(found) == {trait.name for trait in traits.OF_WORDS}
    assert {name for name, each in found.items() if name != 'word_length' and each.hits} == expected


def test_words_are_counted_and_empty_ones_are_not():
    tokens = tokenization.encode_words(['ab', 'a b', 'abcd'], 6)[:, 1:]
    empty = np.array([[tokenization.WORD_END_ID, 0, 0, 0, 0, 0]])
    found = traits.of_words(np.concatenate([tokens, empty]))
    assert found['inner_space'] == differences.Share(1, 3)
    assert found['word_length'].value == 3


_TEXT = [
    ['fix', 'the', 'käse', '.'],
    ['add', 'it', '(', 'again', ')'],
    ['remove', 'all', 'of', 'these'],
] * 20


@pytest.mark.parametrize(
    'fault, trait',
    [
        ('joined_words', 'inner_space'),
        ('wrong_tokenizer', 'punctuated'),
        ('encoding', 'mis_decoded'),
    ],
)
def test_a_fault_raises_the_trait_that_names_it_and_not_those_of_others(fault, trait):
    clients = faults.inject(WordClients(1, lambda client: _TEXT), fault, 1.0, 0)
    found = _of([word for words in clients.sentences(0) for word in words])
    named = {'inner_space', 'punctuated', 'mis_decoded'}
    assert found[trait].hits > 0
    assert all(found[other].hits == 0 for other in named - {trait})


def test_the_allowance_is_one_of_log_odds_or_relative():
    share, mean = traits.ALL['first_unknown'], traits.ALL['length']
    # A difference of x in log odds is x / spread of its standard deviations.
    odds = np.log(0.4 / 0.6) - np.log(0.2 / 0.8)
    assert 0.2 / share.between(0.2, 0.4) == pytest.approx(odds / share.spread)
    assert share.between(0.3, 0.3) == pytest.approx(share.spread * 0.3 * 0.7)
    assert share.between(0.0, 0.0) > 0
    assert mean.between(9.0, 11.0) == pytest.approx(mean.spread * 10)
    assert share.between(float('nan'), 0.4) == 0


_THREE_WORDS = ('fix', 'the', 'bug')


def _sentences(count, of_bug, seed, of_fix=1.0):
    """Sentences of four words, of which shares have 'bug' and 'fix'; some have 'the' twice."""
    rng = np.random.default_rng(seed)
    tokens = np.full((count, 5), 5)
    tokens[:, 0] = np.where(rng.random(count) < of_fix, 4, 5)
    tokens[:, 3] = np.where(rng.random(count) < of_bug, 6, 3)
    tokens[:, 4] = 2
    return tokens


def test_words_are_counted_once_a_sentence_and_the_largest_difference_is_first():
    first, second = _sentences(2000, 0.8, 0, of_fix=0.8), _sentences(3000, 0.1, 1)
    found = diagnosis.words_that_differ(first, second, _THREE_WORDS, top=5)
    assert [each.name for each in found] == ['UNK', 'bug', 'fix']  # All sentences have 'the'.
    assert found[1].first == np.mean((first == 6).any(axis=1))
    assert found[1].low < 0.7 < found[1].high
    assert diagnosis.words_that_differ(first, second, _THREE_WORDS, top=1) == found[:1]


def test_equal_texts_and_what_trainings_explain_show_nothing():
    first, second = _sentences(2000, 0.3, 0), _sentences(2000, 0.3, 1)
    assert diagnosis.words_that_differ(first, second, _THREE_WORDS, top=5) == ()
    little = _sentences(20_000, 0.35, 2)
    assert diagnosis.words_that_differ(little, second, _THREE_WORDS, top=5) == ()
