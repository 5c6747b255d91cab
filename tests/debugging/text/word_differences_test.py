"""Words that one generator writes more often than another."""

import numpy as np

from dpfl.debugging.text import word_differences

_WORDS = ('fix', 'the', 'bug')


def _sentences(count, of_bug, seed):
    """Sentences of four words, of which a share has the word 'bug'; some have 'the' twice."""
    rng = np.random.default_rng(seed)
    tokens = np.full((count, 5), 5)
    tokens[:, 0] = 4
    tokens[:, 3] = np.where(rng.random(count) < of_bug, 6, 3)
    tokens[:, 4] = 2
    return tokens


def test_words_are_counted_once_a_sentence_and_the_largest_difference_is_first():
    first, second = _sentences(2000, 0.8, 0), _sentences(3000, 0.1, 1)
    found = word_differences.compare(first, second, _WORDS, alpha=0.01, top=5)
    assert {each.name for each in found} == {'bug', 'UNK'}  # All sentences have 'fix' and 'the'.
    by_name = {each.name: each for each in found}
    assert by_name['bug'].first == np.mean((first == 6).any(axis=1))
    assert by_name['bug'].low < 0.7 < by_name['bug'].high
    assert abs(found[0].value) >= abs(found[1].value)
    assert len(word_differences.compare(first, second, _WORDS, alpha=0.01, top=1)) == 1


def test_equal_texts_and_what_trainings_explain_show_nothing():
    first, second = _sentences(2000, 0.3, 0), _sentences(2000, 0.3, 1)
    assert word_differences.compare(first, second, _WORDS, alpha=0.01, top=5) == ()
    little = _sentences(20_000, 0.35, 2)
    assert word_differences.compare(little, second, _WORDS, alpha=0.01, top=5) == ()
