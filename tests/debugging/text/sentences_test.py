"""Measures of sentences by hand."""

import numpy as np
import pytest

from dpfl.debugging.text import sentences

# Token 4 is the first word; 0 pads, 2 ends, 3 is unknown.
_FIRST = np.array([[4, 3, 2, 0], [4, 4, 5, 2], [5, 4, 3, 4], [2, 0, 0, 0]])
_SECOND = np.array([[5, 2, 0, 0], [5, 6, 2, 0], [5, 4, 2, 0]])


def test_lengths_ends_and_unknown_words():
    assert sentences.lengths(_FIRST).tolist() == [2, 3, 4, 0]
    assert sentences.is_cut(_FIRST).tolist() == [False, False, True, False]
    found = sentences.unknown(_FIRST)
    assert found.value == pytest.approx(2 / 9) and found.count == 4


def test_frequent_words_have_the_ranks_and_shares_of_both_sides():
    # First: word 4 five times, unknown and 5 twice, of 9; second: 5 three times, 4 and 6, of 5.
    found = sentences.frequent(_FIRST, _SECOND, num_words=3, top=2)
    assert [(each.token, each.first_rank, each.second_rank) for each in found] == [
        (4, 1, 2),
        (3, 2, 4),
        (5, 3, 1),
    ]
    assert found[0].first.value == pytest.approx(5 / 9)
    assert found[2].second.value == pytest.approx(3 / 5)
