"""Ranking against all words of up to two letters of a model of bytes."""

import itertools

import numpy as np
import pytest

from dpfl.tasks.text import encoding, oov_ranking
from dpfl.tasks.text.models import generation, stacked_cifg

_CELL = stacked_cifg.StackedCifg(4, 8, 4, num_layers=2)


def _weights(letters):
    """A random model that writes almost only the given letters and ends of words."""
    rng = np.random.default_rng(3)
    shapes = _CELL.weight_shapes(encoding.NUM_BYTE_TOKENS).values()
    weights = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    weights[-1] -= 60
    for token in [*letters.encode(), encoding.WORD_END_ID]:
        weights[-1][token] += 60
    return tuple(weights)


def test_the_most_probable_words_are_found_in_their_order():
    letters, length, top = 'abc ', 3, 8
    weights = _weights(letters)
    words = [''.join(word) for n in (1, 2) for word in itertools.product(letters, repeat=n)]
    tokens = encoding.encode_words(words, length)[:, 1:]
    scores = np.exp(generation.log_probabilities(_CELL, weights, oov_ranking.BYTES, tokens))
    expected = sorted(zip(scores, words, strict=True), reverse=True)[:top]

    ranking = oov_ranking.rank(_CELL, weights, samples=20_000, length=length, top=top, seed=1)
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


def test_samples_make_a_miss_improbable():
    def missing(samples):
        return oov_ranking.rank(
            _CELL, _weights('a'), samples=samples, length=4, top=2, seed=1
        ).missing

    assert missing(20_000) < 1e-6 < missing(20)


def test_a_ranking_that_is_too_short_may_miss_anything():
    ranking = oov_ranking.rank(_CELL, _weights('a'), samples=50, length=2, top=20, seed=1)
    assert len(ranking.words) < 20 and ranking.missing == 1


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match='^top=0: must be'):
        oov_ranking.rank(_CELL, _weights('a'), samples=5, length=2, top=0, seed=1)
    others = _CELL.initial_weights(100, seed=0)
    with pytest.raises(ValueError, match='^weights: must be of a model of 258 tokens'):
        oov_ranking.rank(_CELL, others, samples=5, length=2, top=1, seed=1)
