"""Predictors that count, compared with counting by hand."""

import collections

import numpy as np
import pytest

from dpfl.tasks.config import DataConfig, TextConfig
from dpfl.tasks.text import baselines, real_task
from dpfl.tasks.text.baselines import Counts
from tests import text_files

_PAD, _BOS, _EOS, _OOV = range(4)


def test_hits_of_words_and_pairs():
    counted = np.array([[_BOS, 4, 5, 6, _EOS], [_BOS, 4, 5, 4, _PAD], [_BOS, 6, _OOV, 5, _PAD]])
    counts = Counts.of(counted, 8)
    # 4 and 5 are three each, and 4 is the first. After BOS mostly 4; after 4 always 5; after 5
    # 6 and 4 once each, so 4; after OOV 5.
    assert counts.best == 4
    assert dict(zip(counts.after.tolist(), counts.next.tolist(), strict=True)) == {
        _BOS: 4,
        _OOV: 5,
        4: 5,
        5: 4,
    }
    seen = np.array([[_BOS, 4, 5, 7, 4], [_BOS, 6, _OOV, 5, _EOS]])
    # By pairs: 4, 5 after 4, not 7 after 5, and 4 after the unknown 7; then not 6, but 5.
    assert counts.hits(seen) == (2, 4, 6)


def test_a_client_is_not_predicted_from_its_own_text():
    own = [np.array([[_BOS, word, word, word]]) for word in (4, 5, 6, 7)]
    found = baselines.accuracies(own, [], 8)
    assert found == {}  # Nobody else uses the client's word, so there is no hit.
    same = [np.array([[_BOS, 4, 4, 5]])] * 3
    assert baselines.accuracies(same, [], 8) == {
        'unigram_accuracy': pytest.approx(2 / 3),
        'bigram_accuracy': pytest.approx(2 / 3),
    }
    assert baselines.accuracies(same[:1], [], 8) == {}
    assert baselines.accuracies(same[:1], same[:1], 8)['unigram_accuracy'] == pytest.approx(2 / 3)
    assert baselines.accuracies([], same, 8) == {}


def test_accuracies_of_counting_are_those_of_brute_force(tmp_path):
    text_files.write_clients(tmp_path / 'a.jsonl', 40)
    text_files.write_words(tmp_path / 'words.txt')
    data = real_task.load(
        'user_text',
        DataConfig(data_path=str(tmp_path / 'a.jsonl'), heldout_fraction=0.5),
        TextConfig(vocabulary_file=str(tmp_path / 'words.txt'), sentence_length=10),
        lambda text: None,
    )
    clients = list(data.task.heldout_tokens(0))
    hits = np.zeros(3)
    for half in (0, 1):
        words, pairs = collections.Counter(), collections.Counter()
        for tokens in clients[1 - half :: 2]:
            for row in tokens.tolist():
                for before, word in zip(row, row[1:], strict=False):
                    if word > _OOV:
                        words[word] += 1
                        pairs[before, word] += 1
        for tokens in clients[half::2]:
            for row in tokens.tolist():
                for before, word in zip(row, row[1:], strict=False):
                    if word > _OOV:
                        after = {b: n for (a, b), n in pairs.items() if a == before} or words
                        top = max(after.values())
                        hits += [
                            word == min(w for w, n in words.items() if n == max(words.values())),
                            word == min(w for w, n in after.items() if n == top),
                            1,
                        ]
    found = data.baselines(len(clients))
    assert found['unigram_accuracy'] == pytest.approx(hits[0] / hits[2])
    assert found['bigram_accuracy'] == pytest.approx(hits[1] / hits[2])
    assert found['bigram_accuracy'] > 2 * found['unigram_accuracy']


def test_public_text_is_counted_too(tmp_path):
    text_files.write_clients(tmp_path / 'a.jsonl', 4)
    data = DataConfig(data_path=str(tmp_path / 'a.jsonl'), heldout_fraction=0.25)
    text_files.write_clients(tmp_path / 'public.jsonl', 30, seed=3)
    text = TextConfig(vocabulary_text=str(tmp_path / 'public.jsonl'), sentence_length=10)
    loaded = real_task.load('user_text', data, text, lambda text: None)
    # A single held-out client has nobody to be predicted from but the public text.
    assert loaded.baselines(1)['bigram_accuracy'] > 0.5
    assert loaded.with_model(None).baselines(1) == loaded.baselines(1)
