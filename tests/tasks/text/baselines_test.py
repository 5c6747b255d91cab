"""Predictors that count, compared with counting by hand and with Kneser-Ney in dictionaries."""

import collections
import itertools

import numpy as np
import pytest

from dpfl.tasks.config import DataConfig, TextConfig
from dpfl.tasks.text import ngrams, real_task
from dpfl.tasks.text import ngrams as counts_lib
from dpfl.tasks.text.ngrams import BITS, MASK, KneserNey, Predictors, TrigramCounts, trigrams
from tests import text_files
from tests.studies import scripts_of_studies

yardstick = scripts_of_studies.load('text_baselines')
PUBLIC, TRAINING = yardstick.PUBLIC, yardstick.TRAINING
YardstickConfig = yardstick.YardstickConfig

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


def test_only_the_first_words_are_counted_for_a_run(monkeypatch):
    own = [np.array([[_BOS, 4, 4, 4]])]
    others = [np.array([[_BOS, 4, 4, _OOV]]), np.array([[_BOS, 5, 5, 5]])]
    assert ngrams.of_clients(own, others, 8)['unigram_accuracy'] == 0
    monkeypatch.setattr(ngrams, 'MOST_WORDS', 2)
    assert ngrams.of_clients(own, others, 8)['unigram_accuracy'] == 1


def test_a_client_is_not_predicted_from_its_own_text():
    own = [np.array([[_BOS, word, word, word]]) for word in (4, 5, 6, 7)]
    found = ngrams.of_clients(own, [], 8)
    assert found == {}  # Nobody else uses the client's word, so there is no hit.
    same = [np.array([[_BOS, 4, 4, 5]])] * 3
    known = ngrams.of_clients(same, [], 8)
    assert known['unigram_accuracy'] == known['bigram_accuracy'] == pytest.approx(2 / 3)
    assert ngrams.of_clients(same[:1], [], 8) == {}
    assert ngrams.of_clients(same[:1], same[:1], 8)['unigram_accuracy'] == pytest.approx(2 / 3)
    assert ngrams.of_clients([], same, 8) == {}


@pytest.fixture(scope='module')
def data(tmp_path_factory):
    directory = tmp_path_factory.mktemp('text')
    text_files.write_clients(directory / 'a.jsonl', 30)
    text_files.write_clients(directory / 'public.jsonl', 5, seed=3)
    return real_task.load(
        'user_text',
        DataConfig(data_path=str(directory / 'a.jsonl'), heldout_fraction=0.2),
        TextConfig(
            vocabulary_text=str(directory / 'public.jsonl'),
            vocabulary_size=20,
            sentence_length=8,
            client_max_tokens=50,
        ),
        lambda text: None,
    )


@pytest.mark.parametrize('counted_on', [TRAINING, PUBLIC])
def test_it_counts_one_text_and_measures_on_the_clients_of_an_evaluation(data, counted_on):
    # As a run sees them: the batches of the clients.
    batches = [data.task.client_batches(client, 100) for client in range(24)]
    rows = [np.hstack([each['x'], each['y'][:, -1:]]) for client in batches for each in client]
    if counted_on == PUBLIC:
        rows = list(data.public_tokens())
    predictors = Predictors.of(TrigramCounts.of(rows, 24))
    measures = predictors.measure(np.concatenate(list(data.task.heldout_tokens(0, 4))))
    found = yardstick.measure(data, YardstickConfig(counted_on=counted_on, eval_clients=4))
    assert measures.to_dict().items() <= found.items()
    assert found['words'] == measures.words > 100
    assert found['oov_share'] == measures.unknown / (measures.words + measures.unknown)
    assert found['counted_words'] == sum(int((row >= 4).sum()) for row in rows)
    assert found['not_covered'].startswith('Not private' if counted_on == TRAINING else 'The')
    assert found['unigram_accuracy'] < found['trigram_accuracy']


def test_the_words_that_are_counted_have_a_limit(data):
    found = yardstick.measure(data, YardstickConfig(most_words=100))
    assert 100 <= found['counted_words'] <= 150  # A client is counted as a whole.
    most = yardstick.measure(data, YardstickConfig(eval_clients=10_000))
    assert most['words'] > found['counted_words']


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
    ('sentences', 'first'),
    [
        (60, (_BOS,)),
        (400, (_BOS,)),
        (5, (_BOS,)),
        (60, (_BOS, 4, 5, _EOS)),
    ],
)
def test_it_is_kneser_ney(sentences, first):
    rows = _text(sentences, sentences, first)
    expected = _Dictionaries(rows)
    counts = TrigramCounts.of([rows[:7], rows[7:]], _TOKENS)
    model = KneserNey.of(counts)
    for u, v in itertools.product(
        (_PAD, _BOS, _OOV, 4, 5, 9, 11),
        (_BOS, _EOS, _OOV, 4, 5, 9, 11),
    ):
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


def test_without_text_it_is_uniform():
    model = KneserNey.of(TrigramCounts.of([], _TOKENS))
    keys = np.array(
        [
            _key(_BOS, 4, 5),
            _key(_PAD, _BOS, _EOS),
        ]
    )
    np.testing.assert_allclose(model.log_probabilities(keys), -np.log(10))
    assert model.predictions(keys).tolist() == [4, 4]


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
