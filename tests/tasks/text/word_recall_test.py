"""The shares of words that are found, against their definition."""

import collections

import numpy as np
import pytest

from dpfl.tasks.text import word_recall
from dpfl.tasks.text.private_words import WordCounts, WordRelease


def test_shares_by_hand(monkeypatch):
    clients = [{'a': 3, 'b': 1}, {'a': 1, 'c': 2}, {'b': 1, 'd': 2}]
    counts = WordCounts.of(clients, seed=0)
    monkeypatch.setattr(WordRelease, 'find', lambda *_: ['b', 'd', 'a'])
    config = word_recall.RecallConfig(epsilons=(2.0,), heads=(2, 3), repeats=2)
    exact, found = word_recall.measure(counts, config, seed=0)
    # By clients: a and b two each, c and d one each; by uses: a 4, b 2, c 2, d 2 of 10.
    assert exact == pytest.approx(
        {'epsilon': 0, 'words': 4, 'recall_2': 1, 'coverage_2': 0.6, 'recall_3': 1}
        | {'coverage_3': 0.8}
    )
    assert found == pytest.approx(
        {'epsilon': 2, 'words': 3, 'recall_2': 1, 'coverage_2': 0.4, 'recall_3': 2 / 3}
        | {'coverage_3': 0.8}
    )


def test_more_epsilon_finds_more_words_with_zipfs_law():
    counts = WordCounts.of(word_recall.zipf_clients(600, seed=1), seed=0)
    config = word_recall.RecallConfig(epsilons=(1.0, 8.0), heads=(20,), repeats=1)
    exact, low, high = word_recall.measure(counts, config, seed=0)
    assert low['words'] < high['words'] < exact['words']
    assert low['recall_20'] < 0.7 < 0.8 < high['recall_20']
    assert low['coverage_20'] < high['coverage_20'] <= exact['coverage_20']


def test_ranks_have_their_probabilities():
    uses = sum(
        map(collections.Counter, word_recall.zipf_clients(150, seed=2)), collections.Counter()
    )
    total = uses.total()
    expected = 1 / np.sum(1 / np.arange(1, 200_001))
    # More than six standard deviations of independent draws.
    for rank in (0, 1, 9):
        chance = expected / (rank + 1)
        assert abs(uses[f'w{rank}'] / total - chance) < 6 * np.sqrt(chance / total)
