"""Ranks and histograms of frequent words against a loop over positions."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from dpfl.tasks.text import head_words
from dpfl.tasks.text.models import architectures, catalog

ModelWeights = tff.learning.models.ModelWeights
_NUM_TOKENS = 24  # 20 words.


def _batches(seed):
    rng = np.random.default_rng(seed)
    for size in (3, 5):
        tokens = rng.integers(1, _NUM_TOKENS, (size, 7)).astype(np.int32)
        tokens[0, 4:] = 0  # Padding.
        yield collections.OrderedDict(x=tf.constant(tokens[:, :-1]), y=tf.constant(tokens[:, 1:]))


def test_the_rank_of_a_word_is_how_many_occur_more_often():
    targets = np.int32([[2, 7, 7, 0], [5, 7, 5, 3], [8, 4, 1, 0]])
    batches = [
        collections.OrderedDict(x=targets, y=targets[:1]),
        collections.OrderedDict(x=targets, y=targets[1:]),
    ]
    # 7 three times, 5 twice, 4 and 8 once, 6 and 9 never; special tokens are no words.
    ranks = head_words.ranked(batches, 6)
    assert dict(zip(range(4, 10), ranks, strict=True)) == {7: 0, 5: 1, 4: 2, 8: 3, 6: 4, 9: 5}


def test_histograms_equal_a_loop_over_positions():
    batches = list(_batches(1))
    cell = catalog.ALL['micro']
    rng = np.random.default_rng(2)
    weights = tuple(
        rng.normal(size=shape).astype('f') for shape in cell.weight_shapes(_NUM_TOKENS).values()
    )
    model = architectures.build(cell, _NUM_TOKENS, 6, seed=0)
    ranks = head_words.ranked(batches, 20)
    heads, top = (1, 4, 12), 5

    expected = np.zeros((3, top + 1), int)
    for batch in batches:
        logits = model.predict_on_batch((weights, ()), batch['x'], training=False).numpy()
        for row, targets in zip(logits, batch['y'].numpy(), strict=True):
            for scores, target in zip(row, targets, strict=True):
                if target == 0:
                    continue
                words = sorted(range(20), key=lambda word, s=scores: -s[4 + word])[:top]
                for i, head in enumerate(heads):
                    expected[i, sum(ranks[word] < head for word in words)] += 1

    count = head_words.build_histograms(model, ranks, heads=heads, top=top)
    actual = count(ModelWeights(weights, ()), batches)
    np.testing.assert_array_equal(actual, expected)
    present = sum(int((batch['y'].numpy() != 0).sum()) for batch in batches)
    assert actual.sum(axis=1).tolist() == [present] * 3
    assert (actual > 0).sum() > 6  # Not all alike.


def test_a_model_of_frequencies_alone_offers_only_frequent_words():
    batches = list(_batches(3))
    ranks = head_words.ranked(batches, 20)
    cell = catalog.ALL['micro']
    weights = [np.zeros(s, 'f') for s in cell.weight_shapes(_NUM_TOKENS).values()]
    weights[-1][4:] = -ranks
    weights[-1][:4] = 1  # Special tokens are no words, however probable.
    model = architectures.build(cell, _NUM_TOKENS, 6, seed=0)
    count = head_words.build_histograms(model, ranks, heads=(3, 10), top=5)
    counts = count(ModelWeights(weights, ()), batches)
    assert counts[0, 3] == counts[0].sum() > 0
    assert counts[1, 5] == counts[1].sum() > 0


@pytest.mark.parametrize(
    'changes, message',
    [
        (dict(top=21), 'top=21: must be an integer >= 1 and <= 20'),
        (dict(heads=(0,)), 'heads=0: must be an integer >= 1'),
    ],
)
def test_bad_arguments_are_named(changes, message):
    model = catalog.build('micro', _NUM_TOKENS, 6, seed=0)
    with pytest.raises(ValueError, match=f'^{message}'):
        head_words.build_histograms(model, np.arange(20, dtype=np.int32), **changes)
