"""The conclusion follows from the numbers, and from nothing else."""

import numpy as np
import pytest

from experiments.debugging.text import findings

# Tokens: 0 padding, 2 end of sentence, 3 outside the vocabulary, from 4 on words.
_TOKENS = np.array([[3, 4, 2, 0], [5, 3, 3, 2], [3, 3, 4, 5]])


def _rates(first, others=700, count=10_000):
    return findings.PositionRates((first, others, others), (count, count, count // 2))


def test_rates_count_words_not_ends_or_padding():
    rates = findings.PositionRates.of(_TOKENS)
    assert rates.outside == (2, 2, 1, 0)
    assert rates.words == (3, 3, 2, 1)
    assert rates.rates == (2 / 3, 2 / 3, 1 / 2, 0)
    assert rates.overall == 5 / 9
    nothing = findings.PositionRates.of(np.zeros((2, 3), int))
    assert nothing.rates == (0, 0, 0) and nothing.overall == 0


def test_share_of_entries_of_two_words():
    assert findings.joined_share(['a b', 'ab', ' a', 'a ']) == 0.25
    assert findings.joined_share([]) == 0


@pytest.mark.parametrize(
    'first, clean, expected',
    [
        (1000, 50, (1,)),
        (249, 50, ()),  # 1.99 points: significant, but not clear.
        (250, 50, (1,)),
        (50, 1000, ()),
    ],
)
def test_higher_means_by_points_and_by_deviations(first, clean, expected):
    assert findings.clearly_higher(_rates(first), _rates(clean)) == expected


def test_few_samples_show_nothing():
    # 10 points, but of 60 sentences each: 2.8 standard deviations by hand.
    few, clean = (findings.PositionRates((n,), (60,)) for n in (7, 1))
    assert findings.clearly_higher(few, clean) == ()
    pooled = 8 / 120
    assert (6 / 60) / np.sqrt(pooled * (1 - pooled) * 2 / 60) < findings.CLEAR_DEVIATIONS
    assert findings.clearly_higher(findings.PositionRates((5,), (0,)), clean) == ()


_ONE, _TWO = ['ab', 'cd', 'ef', 'gh'], ['a b', 'c d', 'e f', 'gh']


@pytest.mark.parametrize(
    'first, words, clean_words, verdict, said',
    [
        (1000, _TWO, _ONE, 'found', 'joins the first two words'),
        (1000, _ONE, _ONE, 'suspected', 'do not show why'),
        (1000, _TWO, _TWO, 'suspected', 'do not show why'),
        (50, _TWO, _ONE, 'suspected', 'Words are joined'),
        (50, _ONE, _ONE, 'not seen', 'Nothing is conspicuous'),
        (50, _TWO[:2] + _ONE[:2], _ONE, 'not seen', '50% of the most probable'),
    ],
)
def test_verdicts(first, words, clean_words, verdict, said):
    conclusion = findings.conclude(_rates(first), _rates(50), words, clean_words)
    assert conclusion.verdict == verdict
    assert said in conclusion.text
    assert conclusion.first_rate == first / 10_000 and conclusion.clean_first_rate == 0.005
    assert conclusion.joined_share == findings.joined_share(words)


def test_a_difference_at_another_position_is_not_that_of_the_first():
    conclusion = findings.conclude(_rates(50, others=2000), _rates(50), _ONE, _ONE)
    assert conclusion.verdict == 'not seen' and conclusion.positions == (2, 3)
    assert 'at position 2, 3' in conclusion.text
