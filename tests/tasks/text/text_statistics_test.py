"""Coverage of vocabularies and predictors that count, compared with counting by hand."""

import numpy as np
import pytest

from dpfl.tasks.text import text_statistics
from dpfl.tasks.text.text_statistics import Predictors, coverage, pairs
from dpfl.tasks.text.vocabulary import Vocabulary

_PAD, _BOS, _EOS, _OOV = range(4)


def test_hits_of_words_and_pairs():
    counted = np.array([[_BOS, 4, 5, 6, _EOS], [_BOS, 4, 5, 4, _PAD], [_BOS, 6, _OOV, 5, _PAD]])
    counts = Predictors.of([pairs(counted)])
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
    assert found == {'unigram': 2, 'bigram': 4, 'words': 6, 'unknown': 1}


def _accuracies(own, others=()):
    """Baselines of clients with one sentence each, shortly named."""
    own, others = ([np.array([[_BOS, *words]]) for words in each] for each in (own, others))
    found = text_statistics.baselines(own, others)
    return {name.replace('_accuracy', ''): value for name, value in found.items()}


def test_unknown_words_are_misses_where_they_count():
    found = _accuracies([[4, 5, _OOV]] * 2)
    assert found['bigram'] == 1 and found['unigram'] == 1 / 2
    assert found['bigram_with_oov'] == pytest.approx(2 / 3)


def test_only_the_first_words_are_counted_for_a_run(monkeypatch):
    data = [[4, 4, 4]], [[4, 4, _OOV], [5, 5, 5]]
    assert _accuracies(*data)['unigram'] == 0
    monkeypatch.setattr(text_statistics, 'MOST_WORDS', 2)
    assert _accuracies(*data)['unigram'] == 1


def test_a_client_is_not_predicted_from_its_own_text():
    # Nobody else uses the client's word, so there is no hit.
    assert _accuracies([[word] * 3 for word in (4, 5, 6, 7)]) == {}
    same = [[4, 4, 5]]
    known = _accuracies(same * 3)
    assert known['unigram'] == known['bigram'] == pytest.approx(2 / 3)
    assert _accuracies(same) == _accuracies([], same * 3) == {}
    assert _accuracies(same, same)['unigram'] == pytest.approx(2 / 3)


def test_the_largest_token_id_fits():
    most = np.iinfo(np.int32).max
    assert pairs(np.array([[most, most, _PAD]])).tolist() == [most << 32 | most]


_KNOWN = Vocabulary(('the', 'cat'))


def test_tokens_are_counted_by_hand():
    clients = [[['the', 'cat', ','], ['the', 'dog']], [[','], []]]
    text, warning = coverage(clients, _KNOWN)
    # No word of fewer than five clients is shown.
    assert text == (
        'vocabulary: has 50.0% of the tokens of 2 held-out clients (exact; for the one who trains)'
    )
    assert warning.startswith('warning: 50% of the tokens are unknown')
    assert coverage([], _KNOWN)[0].startswith('vocabulary: has 100.0% of the tokens of 0 held-out')


def test_words_of_few_clients_are_not_shown_however_frequent():
    secret = ['hunter2'] * 100
    clients = [[[',', '!']]] * text_statistics.LEAST_CLIENTS + [[[','], secret]] * (
        text_statistics.LEAST_CLIENTS - 1
    )
    text, _ = coverage(clients, _KNOWN)
    assert text.endswith('used by 5 clients or more: , !') and 'hunter2' not in text


@pytest.mark.parametrize('unknown, lines', [(0, 1), (10, 1), (11, 2)])
def test_more_than_a_tenth_is_a_warning(unknown, lines):
    clients = [[['the'] * (100 - unknown), ['dog'] * unknown], *[[]] * 6]
    found = coverage(clients, _KNOWN)
    assert len(found) == lines
    assert found[0].startswith(f'vocabulary: has {100 - unknown}.0% of the tokens of 7 held-out')
    assert lines == 1 or found[1].startswith('warning: 11% of the tokens are unknown')
