"""Counting predictors of a study, compared with Kneser-Ney in dictionaries."""

import collections
import itertools

import numpy as np
import pytest

from dpfl.tasks.config import DataConfig, TextConfig, TextTaskConfig
from dpfl.tasks.text import real_task
from dpfl.tasks.text.baselines import Counts, Predictors, pairs
from experiments.studies.shared.trigrams import BITS, MASK, KneserNey, of_pairs, trigrams
from tests import text_files
from tests.studies import scripts_of_studies

yardstick = scripts_of_studies.load('text_baselines')
PUBLIC, TRAINING = yardstick.PUBLIC, yardstick.TRAINING
YardstickConfig = yardstick.YardstickConfig

_PAD, _BOS, _EOS, _OOV = range(4)


@pytest.fixture(scope='module')
def data(tmp_path_factory):
    directory = tmp_path_factory.mktemp('text')
    text_files.write_clients(directory / 'a.jsonl', 30)
    text_files.write_clients(directory / 'public.jsonl', 5, seed=3)
    config = TextTaskConfig(
        task='user_text',
        data=DataConfig(data_path=str(directory / 'a.jsonl'), heldout_fraction=0.2),
        text=TextConfig(
            vocabulary_text=str(directory / 'public.jsonl'),
            vocabulary_size=20,
            sentence_length=8,
            client_max_tokens=50,
        ),
    )
    return real_task.load(config, lambda text: None)


@pytest.mark.parametrize('counted_on', [TRAINING, PUBLIC])
def test_it_counts_one_text_and_measures_on_the_clients_of_an_evaluation(data, counted_on):
    # As a run sees them: the batches of the clients.
    batches = [data.task.client_batches(client, 100) for client in range(24)]
    rows = [np.hstack([each['x'], each['y'][:, -1:]]) for client in batches for each in client]
    if counted_on == PUBLIC:
        rows = list(data.public_tokens())
    predictors = Predictors.of(Counts.of(map(pairs, rows)))
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
    model = KneserNey.of(Counts.of([trigrams(rows[:7]), trigrams(rows[7:])]), _TOKENS)
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
    model = KneserNey.of(Counts.of([]), _TOKENS)
    keys = np.array(
        [
            _key(_BOS, 4, 5),
            _key(_PAD, _BOS, _EOS),
        ]
    )
    np.testing.assert_allclose(model.log_probabilities(keys), -np.log(10))
    assert model.predictions(keys).tolist() == [4, 4]


def test_pairs_of_trigrams():
    rows = _text(1, 50)
    counts = Counts.of([trigrams(rows)])
    expected = collections.Counter()
    for row in rows.tolist():
        padded = [_PAD, *row]
        expected.update(
            _key(*padded[i : i + 3]) for i in range(len(row) - 1) if padded[i + 2] != _PAD
        )
    assert dict(zip(counts.keys.tolist(), counts.counts.tolist(), strict=True)) == expected
    for pair, number, different in zip(*of_pairs(counts), strict=True):
        same = {key: n for key, n in expected.items() if key & (1 << 2 * BITS) - 1 == pair}
        assert (sum(same.values()), len(same)) == (number, different)


def test_the_largest_token_id_fits():
    rows = np.array([[MASK, MASK, MASK]])
    assert trigrams(rows).tolist() == [_key(_PAD, MASK, MASK), _key(MASK, MASK, MASK)]
    counts = Counts.of([trigrams(rows)])
    assert KneserNey.of(counts, MASK + 1).predictions(trigrams(rows)).tolist() == [MASK, MASK]
    with pytest.raises(ValueError, match='vocabulary_size='):
        KneserNey.of(counts, MASK + 2)
