"""The smoothed trigram model, compared with Kneser-Ney in dictionaries."""

import collections
import itertools

import numpy as np
import pytest

from dpfl.errors import ArgumentError
from dpfl.tasks.text.ngrams import counts as counts_lib
from dpfl.tasks.text.ngrams.counts import BITS, MASK, TrigramCounts, trigrams
from dpfl.tasks.text.ngrams.kneser_ney import KneserNey

_PAD, _BOS, _EOS, _OOV = range(4)
_TOKENS = 12


def _text(seed, sentences, first=(_BOS,)):
    """Random sentences of which many have the same words; rows with begin and padding."""
    random = np.random.default_rng(seed)
    rows = np.full((sentences, 9), _PAD)
    for row in rows:
        length = random.integers(1, 8)
        words = 3 + np.minimum(random.geometric(0.35, length), _TOKENS - 4) - 1
        row[: length + 2] = [random.choice(first), *words, _EOS]
    return rows


class _Dictionaries:
    """Interpolated, modified Kneser-Ney by its definition."""

    def __init__(self, rows):
        self.targets = [_EOS, _OOV, *range(4, _TOKENS)]
        before = collections.defaultdict(set)
        raw = collections.Counter()
        trigram = collections.Counter()
        for row in rows.tolist():
            for place, word in enumerate(row[1:], 1):
                if word == _PAD:
                    continue
                raw[row[place - 1], word] += 1
                if place > 1:
                    trigram[tuple(row[place - 2 : place]), word] += 1
                before[row[place - 1], word].add(row[place - 2] if place > 1 else None)
        pairs = {
            ((v,), w): raw[v, w] if v == _BOS else len(tokens) for (v, w), tokens in before.items()
        }
        words = collections.Counter(((), w) for _, w in pairs)
        self.orders = [self._with_discounts(table) for table in (words, pairs, trigram)]

    @staticmethod
    def _with_discounts(table):
        n = [sum(count == i for count in table.values()) for i in range(5)]
        discounts = [0, 0.5, 1, 1.5]
        if all(n[1:]):
            y = n[1] / (n[1] + 2 * n[2])
            found = [i - (i + 1) * y * n[i + 1] / n[i] for i in (1, 2, 3)]
            if all(0 <= d <= i for i, d in enumerate(found, 1)):
                discounts = [0, *found]
        return table, discounts

    def probability(self, context, word):
        if context is None:
            return 1 / len(self.targets)
        table, discounts = self.orders[len(context)]
        followers = {w: count for (c, w), count in table.items() if c == context}
        lower = self.probability(context[1:] if context else None, word)
        if not followers:
            return lower
        total = sum(followers.values())
        count = followers.get(word, 0)
        weight = sum(discounts[min(c, 3)] for c in followers.values()) / total
        return (count - discounts[min(count, 3)]) / total + weight * lower


def _key(first, second, word):
    return (first << BITS | second) << BITS | word


@pytest.mark.parametrize(
    ('sentences', 'first'), [(60, (_BOS,)), (400, (_BOS,)), (5, (_BOS,)), (60, (_BOS, 4, 5, _EOS))]
)
def test_it_is_kneser_ney(sentences, first):
    rows = _text(sentences, sentences, first)
    expected = _Dictionaries(rows)
    counts = TrigramCounts.of([rows[:7], rows[7:]], _TOKENS)
    model = KneserNey.of(counts)
    for u, v in itertools.product((_PAD, _BOS, _OOV, 4, 5, 9, 11), (_BOS, _EOS, _OOV, 4, 5, 9, 11)):
        keys = np.array([_key(u, v, word) for word in expected.targets])
        found = np.exp(model.log_probabilities(keys))
        assert found.sum() == pytest.approx(1, abs=1e-12)
        context = (v,) if u == _PAD else (u, v)
        truth = [expected.probability(context, word) for word in expected.targets]
        np.testing.assert_allclose(found, truth, rtol=0, atol=1e-12)
        words = truth[2:]  # Neither end of sentence nor an unknown word is predicted.
        predicted = model.predictions(keys)
        assert (predicted == predicted[0]).all()
        assert words[predicted[0] - 4] >= max(words) - 1e-12


def test_discounts_are_estimated_from_large_text_only():
    tables = {
        sentences: _Dictionaries(_text(sentences, sentences)).orders[2][1] for sentences in (5, 400)
    }
    assert tables[5] == [0, 0.5, 1, 1.5] != tables[400]  # So the test above has both cases.


def test_without_text_it_is_uniform():
    model = KneserNey.of(TrigramCounts.of([], _TOKENS))
    keys = np.array([_key(_BOS, 4, 5), _key(_PAD, _BOS, _EOS)])
    np.testing.assert_allclose(model.log_probabilities(keys), -np.log(10))
    assert model.predictions(keys).tolist() == [4, 4]


def test_only_unknown_words_leave_a_word_to_predict():
    model = KneserNey.of(TrigramCounts.of([np.array([[_BOS, _OOV, _OOV, _EOS]])], _TOKENS))
    assert model.predictions(np.array([_key(_BOS, _OOV, 5), _key(_PAD, _BOS, 5)])).min() >= 4


def test_trigrams_are_counted_in_parts(monkeypatch):
    monkeypatch.setattr(counts_lib, '_COLLECTED', 10)
    rows = _text(1, 50)
    counts = TrigramCounts.of(np.split(rows, 10), _TOKENS)
    expected = collections.Counter()
    for row in rows.tolist():
        padded = [_PAD, *row]
        expected.update(
            _key(*padded[i : i + 3]) for i in range(len(row) - 1) if padded[i + 2] != _PAD
        )
    assert dict(zip(counts.keys.tolist(), counts.counts.tolist(), strict=True)) == expected
    assert (np.diff(counts.keys) > 0).all()
    assert counts.num_words == (rows >= 4).sum()
    pairs, occurrences, before = counts.pairs()
    for pair, number, different in zip(pairs, occurrences, before, strict=True):
        same = {key: n for key, n in expected.items() if key & (1 << 2 * BITS) - 1 == pair}
        assert (sum(same.values()), len(same)) == (number, different)


def test_the_largest_token_id_fits():
    rows = np.array([[MASK, MASK, MASK]])
    assert trigrams(rows).tolist() == [_key(_PAD, MASK, MASK), _key(MASK, MASK, MASK)]
    assert TrigramCounts.of([rows], MASK + 1).num_words == 2
    with pytest.raises(ArgumentError, match='vocabulary_size'):
        TrigramCounts.of([rows], MASK + 2)
