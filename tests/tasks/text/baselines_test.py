"""Predictors that count, compared with counting by hand."""

import collections

import numpy as np
import pytest

from dpfl.tasks.config import DataConfig, TextConfig
from dpfl.tasks.text import baselines, real_task
from dpfl.tasks.text.baselines import Predictors
from dpfl.tasks.text.ngrams.counts import BITS, TrigramCounts
from tests import text_files

_PAD, _BOS, _EOS, _OOV = range(4)


def test_hits_of_words_and_pairs():
    counted = np.array([[_BOS, 4, 5, 6, _EOS], [_BOS, 4, 5, 4, _PAD], [_BOS, 6, _OOV, 5, _PAD]])
    counts = Predictors.of(TrigramCounts.of([counted], 8))
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
    found = counts.measure(seen)
    assert (found.hits[:2], found.words, found.unknown, found.targets) == ((2, 4), 6, 1, 8)
    # By trigrams: after BOS 4, and 5 after that; 6 and 4 after 4 5, once each; 4 after BOS, not 6.
    keys = [(0, _BOS, 4), (_BOS, 4, 5), (0, _BOS, 6)]
    predicted = counts.trigrams.predictions(
        np.array([(u << BITS | v) << BITS | w for u, v, w in keys])
    )
    assert predicted.tolist() == [4, 5, 4]
    values = found.to_dict()
    assert values['bigram_accuracy'] == pytest.approx(4 / 6)
    assert values['bigram_accuracy_with_oov'] == pytest.approx(4 / 7)
    assert values['trigram_perplexity'] == pytest.approx(np.exp(found.loss / 8))
    assert values['trigram_loss'] == pytest.approx(found.loss / 8)


def test_without_words_there_is_nothing():
    assert Predictors.of(TrigramCounts.of([np.array([[_BOS, _OOV, _EOS]])], 8)) is None
    assert baselines.Measures(unknown=3, targets=4).to_dict() == {}


def test_only_the_first_words_are_counted_for_a_run(monkeypatch):
    own = [np.array([[_BOS, 4, 4, 4]])]
    others = [np.array([[_BOS, 4, 4, _OOV]]), np.array([[_BOS, 5, 5, 5]])]
    assert baselines.of_clients(own, others, 8)['unigram_accuracy'] == 0
    monkeypatch.setattr(baselines, 'MOST_WORDS', 2)
    assert baselines.of_clients(own, others, 8)['unigram_accuracy'] == 1


def test_a_client_is_not_predicted_from_its_own_text():
    own = [np.array([[_BOS, word, word, word]]) for word in (4, 5, 6, 7)]
    found = baselines.of_clients(own, [], 8)
    assert found == {}  # Nobody else uses the client's word, so there is no hit.
    same = [np.array([[_BOS, 4, 4, 5]])] * 3
    known = baselines.of_clients(same, [], 8)
    assert known['unigram_accuracy'] == known['bigram_accuracy'] == pytest.approx(2 / 3)
    assert baselines.of_clients(same[:1], [], 8) == {}
    assert baselines.of_clients(same[:1], same[:1], 8)['unigram_accuracy'] == pytest.approx(2 / 3)
    assert baselines.of_clients([], same, 8) == {}


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
    # A run compares accuracies with them.
    accuracies = loaded.with_model(None).baselines(1)
    assert loaded.baselines(1).items() > accuracies.items()
    assert {name.removesuffix('_with_oov') for name in accuracies} == {
        'unigram_accuracy',
        'bigram_accuracy',
        'trigram_accuracy',
    }
