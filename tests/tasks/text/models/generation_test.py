"""Sampling, joint probabilities and rankings against all sequences of a tiny model."""

import collections
import itertools

import numpy as np
import pytest
import tensorflow as tf

from dpfl import errors
from dpfl.tasks.text import tokenization
from dpfl.tasks.text.models import generation, recurrent
from dpfl.tasks.text.tokenization import PAD_ID
from tests.tasks.text.models import reference

_SPECIAL = generation.SpecialTokens(begin=1, end=2)
_NUM_TOKENS, _LENGTH = 5, 3
_CELLS = [
    recurrent.StackedCifg(3, 4, 2, num_layers=2),
    recurrent.TiedLstm(3, 4),
    recurrent.DenseLstm(3, 4, 2),
]


def _weights(cell):
    return reference.random_weights(cell, _NUM_TOKENS, seed=2, scale=1.5)


def _enumerated(cell, weights, adjust=lambda p: p):
    """All sequences of at most `_LENGTH` tokens, padded, with their probabilities.

    The conditional probabilities are those of the training form of the model, in float64.
    """
    prefixes = [*itertools.product(range(_NUM_TOKENS), repeat=_LENGTH - 1)]
    tokens = tf.constant([[_SPECIAL.begin, *prefix] for prefix in prefixes], tf.int32)
    values = np.exp(reference.log_probabilities(cell.logits(weights, tokens)))
    conditional = {
        prefix[:n]: row[n] for prefix, row in zip(prefixes, values, strict=True) for n in range(3)
    }
    result = {}

    def extend(prefix, probability):
        if len(prefix) == _LENGTH or (prefix and prefix[-1] == _SPECIAL.end):
            result[prefix + (0,) * (_LENGTH - len(prefix))] = probability
            return
        values = adjust(conditional[prefix])
        for token in range(_NUM_TOKENS):
            if values[token] > 0:
                extend((*prefix, token), probability * values[token])

    extend((), 1.0)
    return result


def _without_padding(values):
    return np.where(np.arange(_NUM_TOKENS) == PAD_ID, 0, values)


def _only_writable(values):
    values = values.copy()
    values[[PAD_ID, _SPECIAL.begin]] = 0
    return values / values.sum()


@pytest.mark.parametrize('cell', _CELLS, ids=str)
def test_joint_probabilities_equal_the_product_of_conditional_ones(cell):
    weights = _weights(cell)
    expected = _enumerated(cell, weights, _without_padding)
    assert len(expected) == 1 + 3 + 9 * 4  # By the position of the end: 1, 2, and 3 or none.
    actual = generation.log_probabilities(cell, weights, _SPECIAL, np.array(list(expected)))
    np.testing.assert_allclose(np.exp(actual), list(expected.values()), rtol=1e-5)


def _deviations(observed, expected, count):
    """Pearson's statistic over the sequences that are expected often enough, standardised.

    Its mean is their number, its variance twice that.
    """
    frequent = {sequence: p * count for sequence, p in expected.items() if p * count >= 5}
    terms = [(observed.get(sequence, 0) - mean) ** 2 / mean for sequence, mean in frequent.items()]
    return (sum(terms) - len(terms)) / np.sqrt(2 * len(terms))


@pytest.mark.parametrize('cell', _CELLS, ids=str)
@pytest.mark.standard
def test_samples_follow_the_enumerated_distribution(cell):
    weights, count = _weights(cell), 20_000

    def adjusted(power):
        def adjust(values):
            values = _only_writable(values) ** power
            return values / values.sum()

        return _enumerated(cell, weights, adjust)

    tokens = generation.sample(cell, weights, _SPECIAL, seed=4, count=count, length=_LENGTH).tokens
    assert tokens.shape == (count, _LENGTH) and tokens.dtype == np.int32
    observed = collections.Counter(map(tuple, tokens.tolist()))
    expected = adjusted(1)
    # The seed is fixed, the test does not flake.
    assert set(observed) <= set(expected) and _deviations(observed, expected, count) < 6
    # Another distribution is found out.
    assert _deviations(observed, adjusted(0.5), count) > 100


@pytest.mark.parametrize('cell', _CELLS, ids=str)
def test_samples_come_with_their_joint_probability(cell):
    weights = _weights(cell)
    samples = generation.sample(cell, weights, _SPECIAL, count=300, length=_LENGTH, seed=1)
    expected = generation.log_probabilities(cell, weights, _SPECIAL, samples.tokens)
    np.testing.assert_allclose(samples.log_probabilities, expected, rtol=1e-4)
    ended = (samples.tokens == _SPECIAL.end).any(axis=1)
    assert ended.any() and not ended.all()


def test_a_model_that_diverged_draws_nothing():
    weights = [np.full_like(weight, np.nan) for weight in _weights(_CELLS[0])]
    with pytest.raises(errors.DataError, match='diverged'):
        generation.sample(_CELLS[0], weights, _SPECIAL, count=2, length=_LENGTH, seed=1)


@pytest.mark.standard
def test_samples_are_a_pure_function_of_the_seed_over_many_batches():
    cell, count = _CELLS[0], 2_500

    def draw(seed):
        return generation.sample(
            cell, _weights(cell), _SPECIAL, count=count, length=_LENGTH, seed=seed
        ).tokens

    first, again, other = map(draw, (7, 7, 8))
    np.testing.assert_array_equal(first, again)
    assert first.shape[0] == count and (first != other).any()
    # Batches are not repeats of each other.
    assert (first[:1024] != first[1024:2048]).any()


_CELL = recurrent.StackedCifg(4, 8, 4, num_layers=2)


def _weights_of_bytes(letters):
    """A random model that writes almost only the given letters and ends of words."""
    weights = [*reference.random_weights(_CELL, tokenization.NUM_BYTE_TOKENS, seed=3)]
    weights[-1] -= 60
    for token in [*letters.encode(), tokenization.WORD_END_ID]:
        weights[-1][token] += 60
    return tuple(weights)


@pytest.mark.standard
def test_the_most_probable_words_are_found_in_their_order():
    letters, length, top = 'abc ', 3, 8
    weights = _weights_of_bytes(letters)
    words = [''.join(word) for n in (1, 2) for word in itertools.product(letters, repeat=n)]
    tokens = tokenization.encode_words(words, length)[:, 1:]
    scores = np.exp(generation.log_probabilities(_CELL, weights, generation.BYTES, tokens))
    expected = sorted(zip(scores, words, strict=True), reverse=True)[:top]

    ranking = generation.rank_words(_CELL, weights, samples=20_000, length=length, top=top, seed=1)
    ranked = ranking.words
    assert [word.word for word in ranked] == [word for _, word in expected]
    np.testing.assert_allclose(
        [word.probability for word in ranked], [score for score, _ in expected], rtol=1e-4
    )
    for word in ranked:
        deviation = np.sqrt(20_000 * word.probability)
        assert abs(word.count - 20_000 * word.probability) < 6 * deviation
    least = ranked[-1].probability
    assert ranking.missing == pytest.approx(min(1, (1 - least) ** 20_000 / least))
    # The empty word, an end at once, is one that a model can write and no client has.
    assert all(word.word for word in ranked)


@pytest.mark.parametrize(
    'samples, length, top, is_missed',
    [pytest.param(20_000, 4, 2, False, marks=pytest.mark.standard), (50, 2, 20, True)],
)
def test_few_samples_may_miss_a_word(samples, length, top, is_missed):
    weights = _weights_of_bytes('a')
    ranking = generation.rank_words(_CELL, weights, samples=samples, length=length, top=top, seed=1)
    assert ranking.missing == 1 if is_missed else ranking.missing < 1e-6
    assert len(ranking.words) < top or not is_missed
