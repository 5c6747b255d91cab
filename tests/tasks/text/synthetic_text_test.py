"""The population of synthetic writers: pure clients, well-formed sentences, spelling, data sets."""

import collections
import dataclasses
import itertools
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from dpfl import _random
from dpfl.tasks.text import spelling
from dpfl.tasks.text.synthetic_text import BOS_ID, EOS_ID, OOV_ID, PAD_ID, SyntheticText
from tests import paths

_TASK = SyntheticText(vocabulary_size=100, seed=5, sentence_length=10, num_themes=6)
_ROOT = paths.ROOT
_PINNED_TOKENS = [
    [1, 5, 10, 15, 61, 58, 63, 11, 2, 0, 0],
    [1, 6, 12, 17, 64, 3, 17, 61, 64, 12, 17],
]
_PINNED_TEXT = ['co ei rt xi ta ow ti', 'iw ix wa ec txo wa xi ec ix wa']


def _tokens(task, clients):
    return np.concatenate([task.tokens(client) for client in clients])


def test_a_client_is_a_pure_function_of_seed_and_index():
    again = dataclasses.replace(_TASK)
    for client in (7, 0, 2**64 - 1):
        np.testing.assert_array_equal(_TASK.tokens(client), again.tokens(client))
        assert _TASK.text(client) == again.text(client)
        np.testing.assert_array_equal(_TASK.theme_mixture(client), again.theme_mixture(client))


def test_clients_of_this_version_stay_the_same():
    """Results that are stored or published must not change."""
    assert _TASK.tokens(3)[:2].tolist() == _PINNED_TOKENS
    assert _TASK.text(3)[:2] == _PINNED_TEXT


def test_neighbouring_clients_and_seeds_differ():
    first = SyntheticText(vocabulary_size=100, seed=0, sentences_spread=0.0)
    second = dataclasses.replace(first, seed=1)
    seen = [task.tokens(client).tobytes() for task in (first, second) for client in range(50)]
    seen += [row.tobytes() for row in first.heldout_tokens(50).reshape(50, 30, -1)]
    assert len(set(seen)) == 150


def test_streams_do_not_collide():
    draws = {
        _random.generator(domain, *integers).random()
        for domain in ('a', 'b')
        for integers in ((0, 1), (1, 0), (0, 2**32), (2**32, 0), (0, 256), (1, 256))
    }
    assert len(draws) == 12


def test_sentences_are_well_formed():
    tokens = _tokens(_TASK, range(200))
    assert tokens.dtype == np.int32
    assert tokens.shape[1] == 11
    assert (tokens[:, 0] == BOS_ID).all()
    assert (tokens[:, 1:] != BOS_ID).all()
    assert tokens.min() == PAD_ID
    assert tokens.max() < _TASK.num_tokens
    for row in tokens:
        words = np.flatnonzero((row == OOV_ID) | (row > OOV_ID))
        assert words.tolist() == list(range(1, len(words) + 1))
        assert len(words) >= _TASK.min_words
        rest = row[len(words) + 1 :].tolist()
        assert rest == ([EOS_ID] + [PAD_ID] * len(rest))[: len(rest)]


def test_first_word_is_an_opener_and_no_other_is():
    tokens = _tokens(_TASK, range(100))
    is_opener = (tokens >= 4) & (tokens < 4 + _TASK.num_themes)
    assert is_opener[:, 1].all()
    assert not is_opener[:, 2:].any()


def test_share_of_words_outside_the_vocabulary():
    tokens = _tokens(_TASK, range(2_000))
    assert (tokens[tokens >= OOV_ID] == OOV_ID).mean() == pytest.approx(0.065, abs=0.002)


def test_clients_have_different_amounts_of_data_within_bounds():
    task = dataclasses.replace(_TASK, min_sentences=10, max_sentences=80)
    sizes = np.array([len(task.tokens(client)) for client in range(500)])
    assert sizes.min() == 10
    assert sizes.max() == 80
    assert np.median(sizes) == pytest.approx(30, abs=3)


def test_clients_have_their_own_themes():
    mixtures = np.array([_TASK.theme_mixture(client) for client in range(3_000)])
    np.testing.assert_allclose(mixtures.sum(axis=1), 1)
    np.testing.assert_allclose(mixtures.mean(axis=0), _TASK.process.theme_prior, atol=0.02)
    assert mixtures.max(axis=1).mean() > 0.55
    # What a client writes follows its mixture.
    client = int(mixtures[:, -1].argmax())
    task = dataclasses.replace(_TASK, median_sentences=200.0, sentences_spread=0.0)
    openers = task.tokens(client)[:, 1] - 4
    shares = np.bincount(openers, minlength=6) / len(openers)
    np.testing.assert_allclose(shares, task.theme_mixture(client), atol=0.15)


def test_extreme_concentrations_give_valid_mixtures():
    single = dataclasses.replace(_TASK, theme_concentration=1e-9)
    assert single.theme_mixture(0).max() == pytest.approx(1)
    alike = dataclasses.replace(_TASK, theme_concentration=1e4)
    np.testing.assert_allclose(alike.theme_mixture(0), alike.process.theme_prior, atol=0.03)


def test_text_spells_the_tokens():
    vocabulary = _TASK.vocabulary
    assert len(set(vocabulary)) == 100
    ids = {word: number + 4 for number, word in enumerate(vocabulary)}
    lexicon = set()
    for tokens, sentence in zip(_TASK.tokens(11), _TASK.text(11), strict=True):
        words = sentence.split(' ')
        expected = tokens[tokens >= OOV_ID]
        assert [ids.get(word, OOV_ID) for word in words] == expected.tolist()
        lexicon |= set(words) - set(vocabulary)
    assert 1 <= len(lexicon) <= _TASK.lexicon_size
    assert all(word.isalpha() and word.islower() for word in lexicon)


def test_spelling_is_pronounceable_and_short_words_are_frequent():
    words = spelling.Spelling(0).vocabulary(5_000)
    assert len(set(words)) == 5_000
    assert [len(word) for word in words] == sorted(len(word) for word in words)
    assert {len(word) for word in words} <= set(range(2, 11))
    pairs = collections.Counter(
        (a in 'aeiou') != (b in 'aeiou') for word in words for a, b in itertools.pairwise(word)
    )
    assert pairs[True] / sum(pairs.values()) > 0.75
    assert spelling.Spelling(1).vocabulary(50) != words[:50]


def test_client_data_sets():
    tokens = _TASK.tokens(2)
    dataset = _TASK.client_dataset(2, batch_size=8)
    assert dataset.element_spec == _TASK.element_spec
    batches = list(dataset.as_numpy_iterator())
    assert all(len(batch['x']) == 8 for batch in batches[:-1])
    np.testing.assert_array_equal(np.concatenate([b['x'] for b in batches]), tokens[:, :-1])
    np.testing.assert_array_equal(np.concatenate([b['y'] for b in batches]), tokens[:, 1:])


@pytest.mark.parametrize('epochs', [1, 2, 3])
@pytest.mark.parametrize('max_batches', [None, 1, 4, 100])
def test_epochs_and_bound_on_batches(epochs, max_batches):
    tokens = _TASK.tokens(2)
    whole = [tokens[i : i + 16, 1:] for i in range(0, len(tokens), 16)] * epochs
    dataset = _TASK.client_dataset(2, 16, epochs=epochs, max_batches=max_batches)
    actual = [batch['y'] for batch in dataset.as_numpy_iterator()]
    expected = whole[:max_batches]
    assert [len(batch) for batch in actual] == [len(batch) for batch in expected]
    for left, right in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize('epochs, max_batches', [(1, None), (2, None), (3, 4), (1, 1)])
def test_batches_of_arrays_are_those_of_the_data_set(epochs, max_batches):
    dataset = _TASK.client_dataset(2, 16, epochs, max_batches)
    batches = _TASK.client_batches(2, 16, epochs, max_batches)
    for left, right in zip(dataset.as_numpy_iterator(), batches, strict=True):
        for name in ('x', 'y'):
            np.testing.assert_array_equal(left[name], right[name])
            assert left[name].dtype == right[name].dtype


def test_heldout_data_set_pools_other_clients():
    dataset = _TASK.heldout_dataset(num_clients=3, batch_size=16)
    assert dataset.element_spec == _TASK.element_spec
    rows = np.concatenate([batch['x'] for batch in dataset.as_numpy_iterator()])
    np.testing.assert_array_equal(rows, _TASK.heldout_tokens(3)[:, :-1])
    assert isinstance(dataset, tf.data.Dataset)


@pytest.mark.parametrize(
    'name, value',
    [
        ('vocabulary_size', 0),
        ('vocabulary_size', 19),
        ('vocabulary_size', 50.0),
        ('seed', -1),
        ('seed', 2**64),
        ('sentence_length', 1),
        ('min_sentences', 0),
        ('max_sentences', 3),
        ('median_sentences', 2),
        ('median_sentences', float('nan')),
        ('sentences_spread', -0.1),
        ('lexicon_size', 0),
        ('num_themes', 0),
        ('num_class_pairs', 0),
        ('function_share', 1.1),
        ('zipf_exponent', 0),
        ('theme_concentration', 0),
        ('succession', float('nan')),
        ('agreement', -0.5),
        ('following', 0.6),
        ('oov_rate', 0.95),
        ('min_words', 11),
        ('end_rate', 1),
    ],
)
def test_bad_parameters_are_named(name, value):
    with pytest.raises(ValueError, match=f'^{name}={value}: must be [^\n]+$'):
        dataclasses.replace(_TASK, **{name: value})


@pytest.mark.parametrize(
    'call, name',
    [
        (lambda: _TASK.tokens(-1), 'client=-1'),
        (lambda: _TASK.tokens(2**64), 'client='),
        (lambda: _TASK.client_dataset(0, 0), 'batch_size=0'),
        (lambda: _TASK.client_dataset(0, 1, epochs=0), 'epochs=0'),
        (lambda: _TASK.client_batches(0, 0), 'batch_size=0'),
        (lambda: _TASK.client_batches(0, 1, max_batches=0), 'max_batches=0'),
        (lambda: _TASK.client_dataset(0, 1, max_batches=0), 'max_batches=0'),
        (lambda: _TASK.heldout_dataset(0, 1), 'num_clients=0'),
        (lambda: _TASK.heldout_dataset(1, 0), 'batch_size=0'),
        (lambda: spelling.Spelling(-1), 'seed=-1'),
    ],
)
def test_bad_arguments_are_named(call, name):
    with pytest.raises(ValueError, match=f'^{name}'):
        call()


def test_generation_does_not_load_tensorflow():
    code = (
        'import sys\n'
        'from dpfl.tasks.text import synthetic_text\n'
        'task = synthetic_text.SyntheticText(vocabulary_size=100)\n'
        'task.tokens(0), task.text(0), task.ceilings, task.heldout_tokens(2)\n'
        'print([name for name in sys.modules if name.startswith("tensorflow")])'
    )
    done = subprocess.run(
        [sys.executable, '-c', code], cwd=_ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == '[]'
