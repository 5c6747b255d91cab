"""Synthetic writers, and the ceilings of their language against all sentences of a tiny one."""

import collections
import dataclasses
import itertools

import numpy as np
import pytest

from dpfl.tasks.text import sentence_process
from dpfl.tasks.text.synthetic_text import SyntheticText
from dpfl.tasks.text.tokenization import BOS_ID, EOS_ID, OOV_ID, PAD_ID

_TASK = SyntheticText(vocabulary_size=100, seed=5, sentence_length=10, num_themes=6)
_PINNED_TOKENS = [
    [1, 5, 10, 15, 61, 58, 63, 11, 2, 0, 0],
    [1, 6, 12, 17, 64, 3, 17, 61, 64, 12, 17],
]
_PINNED_TEXT = ['co ei rt xi ta ow ti', 'iw ix wa ec txo wa xi ec ix wa']


def test_a_client_is_a_pure_function_of_seed_and_index():
    again = dataclasses.replace(_TASK)
    for client in (7, 0, 2**64 - 1):
        np.testing.assert_array_equal(_TASK.tokens(client), again.tokens(client))
        assert _TASK.text(client) == again.text(client)
    # Results that are stored or published must not change.
    assert _TASK.tokens(3)[:2].tolist() == _PINNED_TOKENS
    assert _TASK.text(3)[:2] == _PINNED_TEXT


def test_neighbouring_clients_and_seeds_differ():
    first = SyntheticText(vocabulary_size=100, seed=0, sentences_spread=0.0)
    second = dataclasses.replace(first, seed=1)
    seen = [task.tokens(client).tobytes() for task in (first, second) for client in range(50)]
    seen += [first.tokens(client, 'heldout').tobytes() for client in range(50)]
    assert len(set(seen)) == 150


def test_sentences_are_well_formed():
    tokens = np.concatenate([_TASK.tokens(client) for client in range(50)])
    assert tokens.dtype == np.int32 and tokens.shape[1] == 11
    assert (tokens[:, 0] == BOS_ID).all() and tokens.max() < _TASK.vocabulary_size + 4
    for row in tokens[:, 1:].tolist():
        words = [*itertools.takewhile(lambda token: token >= OOV_ID, row)]
        assert len(words) >= _TASK.min_words
        rest = row[len(words) :]
        assert rest == ([EOS_ID] + [PAD_ID] * len(rest))[: len(rest)]


def test_a_client_writes_by_its_own_themes():
    task = dataclasses.replace(_TASK, median_sentences=200.0, sentences_spread=0.0)
    client = int(np.argmax([task._client('text.train', client)[1][-1] for client in range(100)]))
    openers = task.tokens(client)[:, 1] - 4
    shares = np.bincount(openers, minlength=6) / len(openers)
    np.testing.assert_allclose(shares, task._client('text.train', client)[1], atol=0.15)
    assert shares[-1] > task.theme_prior[-1] + 0.3


def test_text_spells_the_tokens():
    vocabulary = _TASK.vocabulary
    assert len(set(vocabulary)) == 100
    ids = {word: number + 4 for number, word in enumerate(vocabulary)}
    for tokens, sentence in zip(_TASK.tokens(11), _TASK.text(11), strict=True):
        words = sentence.split(' ')
        expected = tokens[tokens >= OOV_ID]
        assert [ids.get(word, OOV_ID) for word in words] == expected.tolist()
    known = [[w if w in ids else 'UNK' for w in line.split(' ')] for line in _TASK.text(11)]
    assert _TASK.sentences(_TASK.tokens(11)) == known


_TINY = dict(
    vocabulary_size=9,
    sentence_length=4,
    seed=3,
    num_themes=2,
    num_class_pairs=1,
    function_share=0.3,
    zipf_exponent=1.3,
    theme_concentration=1.5,
    succession=0.7,
    agreement=0.45,
    following=0.25,
    oov_rate=0.1,
    min_words=2,
    end_rate=0.3,
)
_OUTSIDE = 'outside'

_LANGUAGES = {
    'all of it': {},
    'several pairs of classes': dict(num_class_pairs=2, vocabulary_size=11, sentence_length=3),
    'no agreement': dict(agreement=0.0),
    'no followers': dict(following=0.0, seed=4),
    'no words outside': dict(oov_rate=0.0),
    'sentences of one length': dict(end_rate=0.0, min_words=4),
    'only theme words and followers': dict(agreement=0.5, following=0.5),
    'one theme': dict(num_themes=1),
}


def _next_word(process, theme, previous):
    """Distribution of the word after `previous`, straight from the description of the process."""
    words = {}
    outside = process.oov_rate * process.survival.sum() / (process.survival.sum() - 1)
    row = process.vocabulary_size if previous == _OUTSIDE else previous
    num_classes = 2 * process.num_class_pairs
    for number in range(num_classes):
        if previous == _OUTSIDE:
            chance = 1 / num_classes
        else:
            chance = (1 - process.succession) / num_classes
            starts = process.class_starts
            is_opener = previous < process.num_themes
            current = -1 if is_opener else int(np.searchsorted(starts, previous, 'right')) - 1
            chance += process.succession * (number == (current + 1) % num_classes)
        members = range(process.class_starts[number], process.class_starts[number + 1])
        weights = [(rank + 1.0) ** -process.zipf_exponent for rank in range(len(members))]
        agreement = process.agreement if number % 2 else 0.0
        for word, weight in zip(members, weights, strict=True):
            value = (1 - agreement - process.following) * weight / sum(weights)
            value += agreement * (word == process.class_starts[number] + theme)
            value += process.following * (word == process.followers[row, number])
            words[word] = words.get(word, 0) + (1 - outside) * chance * value
    words[_OUTSIDE] = outside
    return words


def _sentences(process):
    """Yields (theme, words, probability) for every possible sentence."""
    prior = np.arange(1.0, process.num_themes + 1) ** -process.zipf_exponent
    prior /= prior.sum()
    tables = {}
    alphabet = [*range(process.num_themes, process.vocabulary_size), _OUTSIDE]
    for theme in range(process.num_themes):
        for length in range(process.min_words, process.sentence_length + 1):
            ending = (1 - process.end_rate) ** (length - process.min_words)
            ending *= process.end_rate if length < process.sentence_length else 1
            for later in itertools.product(alphabet, repeat=length - 1):
                probability = prior[theme] * ending
                for previous, word in itertools.pairwise((theme, *later)):
                    if (theme, previous) not in tables:
                        tables[theme, previous] = _next_word(process, theme, previous)
                    probability *= tables[theme, previous].get(word, 0)
                if probability > 0:
                    yield theme, (theme, *later), probability


def _enumerated(process):
    """Ceilings by counting over all sentences; `best` without the first word."""
    counts = {name: collections.defaultdict(collections.Counter) for name in ('bigram', 'state')}
    unigram = collections.Counter()
    for theme, words, probability in _sentences(process):
        for position, word in enumerate(words):
            if word == _OUTSIDE:
                continue
            unigram[word] += probability
            previous = words[position - 1] if position else 'begin'
            counts['bigram'][previous][word] += probability
            # A first word is predicted without the theme, every other one knows the whole prefix.
            state = (theme, words[:position]) if position else 'begin'
            counts['state'][state][word] += probability
    total = sum(unigram.values())
    hits = {name: sum(max(row.values()) for row in rows.values()) for name, rows in counts.items()}
    return max(unigram.values()) / total, hits['bigram'] / total, hits['state'] / total, total


@pytest.mark.parametrize('changes', _LANGUAGES.values(), ids=_LANGUAGES)
def test_ceilings_equal_an_enumeration_of_all_sentences(changes):
    process = sentence_process.TextProcess(**{**_TINY, **changes})
    ceilings = sentence_process.compute(process)
    found = [ceilings.unigram, ceilings.bigram, ceilings.without_client]
    assert found == pytest.approx([*_enumerated(process)[:3]], abs=1e-12)


def test_client_knowledge_helps_with_the_first_word_only():
    process = sentence_process.TextProcess(**_TINY)
    ceilings = sentence_process.compute(process)
    concentrations = process.theme_concentration * process.theme_prior
    shares = np.random.default_rng(0).dirichlet(concentrations, 200_000).max(axis=1)
    gain = (shares.mean() - process.theme_prior.max()) / _enumerated(process)[3]
    assert ceilings.best - ceilings.without_client == pytest.approx(gain, abs=2e-3)


@pytest.mark.parametrize('size', [1, 2, 3, 10])
def test_largest_share_of_a_uniform_dirichlet(size):
    # Broken-stick lengths: the expected longest of K pieces is (1 + 1/2 + ... + 1/K) / K.
    expected = sum(1 / k for k in range(1, size + 1)) / size
    found = sentence_process.expected_largest_share(np.ones(size))
    assert found == pytest.approx(expected, abs=1e-9)


@pytest.mark.standard
def test_sampled_sentences_have_the_enumerated_probabilities():
    process = sentence_process.TextProcess(**_TINY)
    probabilities = collections.Counter()
    for _, words, probability in _sentences(process):
        probabilities[words] += probability
    assert sum(probabilities.values()) == pytest.approx(1)

    count = 400_000
    tokens = process.sample(np.random.default_rng(1), process.theme_prior, count)
    seen = collections.Counter(
        tuple(_OUTSIDE if token == OOV_ID else token - 4 for token in row if token >= OOV_ID)
        for row in tokens[:, 1:].tolist()
    )
    assert set(seen) <= set(probabilities)
    expected = np.array(list(probabilities.values())) * count
    actual = np.array([seen[words] for words in probabilities])
    # Chi-square over the sentences that are common enough; 6 standard deviations of it.
    common = expected > 10
    statistic = ((actual - expected)[common] ** 2 / expected[common]).sum()
    assert abs(statistic - common.sum()) < 6 * np.sqrt(2 * common.sum())
