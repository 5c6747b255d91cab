"""The metrics against hand counts, and histograms of frequent words against a loop."""

import collections
import types

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from dpfl.tasks.text.models import architectures, metrics, saved_models
from tests.studies import scripts_of_studies
from tests.tasks.text.models import reference

head_words = scripts_of_studies.load('compare_head_words')

# Tokens: 0 pad, 1 begin, 2 end, 3 outside, 4 and 5 words.
_LABELS = np.array([[4, 5, 3, 2, 0], [5, 4, 4, 4, 5], [0, 0, 0, 0, 0]], np.int32)
_PREDICTED = np.array([[4, 4, 3, 2, 0], [5, 3, 4, 2, 5], [4, 4, 4, 4, 4]])


def _batch():
    logits = np.full((3, 5, 6), -1.0, np.float32)
    np.put_along_axis(logits, _PREDICTED[..., None], 2.0, axis=-1)
    return logits


def _update(state, logits, labels):
    output = types.SimpleNamespace(loss=metrics.mean_loss(logits, labels), predictions=logits)
    return metrics.update.python_function(state, labels, output)


def _finalize(state):
    return {name: value.numpy() for name, value in metrics.finalize(state).items()}


def test_hand_counted_batch():
    logits = _batch()
    result = _finalize(_update(metrics.initialize(), logits, _LABELS))
    # Words are 7 of the targets, 4 of them hit; one more target is outside the vocabulary.
    loss = reference.mean_loss(logits, _LABELS)
    by_hand = {'accuracy': 4 / 7, 'accuracy_with_oov': 4 / 8, 'num_tokens': 9, 'num_examples': 2}
    by_hand |= {'loss': loss, 'perplexity': np.exp(loss)}
    assert {name: result[name] for name in by_hand} == pytest.approx(by_hand, rel=1e-6)
    # Of the sentences 1 of 2 words, 3 of 5, none of none.
    right, targets = (value.numpy() for value in metrics.hits(_LABELS, tf.constant(logits)))
    assert right.tolist() == [1, 3, 0] and targets.tolist() == [2, 5, 0]
    # Batches and clients are pooled exactly.
    parts = [_update(metrics.initialize(), logits[i : i + 1], _LABELS[i : i + 1]) for i in range(3)]
    added = collections.OrderedDict((name, sum(part[name] for part in parts)) for name in parts[0])
    assert _finalize(added) == pytest.approx(result, rel=1e-6)


def _top_by_hand(logits, labels, k):
    """Hits among the k best tokens, words as targets and targets outside, by sorting."""
    best = np.argsort(-logits, axis=-1, kind='stable')[..., :k]
    hit = (best == labels[..., None]).any(axis=-1)
    return (hit & (labels > 3)).sum(), (labels > 3).sum(), (labels == 3).sum()


def test_top_accuracies_are_those_of_sorting():
    rng = np.random.default_rng(2)
    logits = rng.normal(size=(30, 7, 12)).astype(np.float32)
    logits[..., 3] += 2  # The unknown word is often the best guess.
    labels = rng.integers(0, 12, size=(30, 7)).astype(np.int32)
    result = _finalize(_update(metrics.initialize(), logits, labels))
    for k, name in ((1, 'accuracy'), (3, 'accuracy_top3'), (5, 'accuracy_top5')):
        hit, words, outside = _top_by_hand(logits, labels, k)
        assert 0 < hit < words
        assert result[name] == pytest.approx(hit / words)
        assert result[f'{name}_with_oov'] == pytest.approx(hit / (words + outside))
    # The accuracy of known words never predicts the unknown one.
    logits[..., 3] = -np.inf
    hit, words, _ = _top_by_hand(logits, labels, 1)
    assert result['accuracy_known'] == pytest.approx(hit / words)
    assert result['accuracy_known'] > 1.5 * result['accuracy'] > 0


@pytest.mark.parametrize('value', [0.0, np.nan, np.inf])
def test_a_model_that_prefers_nothing_hits_nothing(value):
    labels = np.full((2, 3), 5, np.int32)
    result = _finalize(_update(metrics.initialize(), np.full((2, 3, 9), value, 'f'), labels))
    assert result['accuracy_top3'] == result['accuracy_top5'] == result['accuracy_known'] == 0


@pytest.mark.parametrize('compiled', [False, True])
def test_gradient_is_that_of_the_definition(compiled):
    logits = np.random.default_rng(0).normal(size=(3, 5, 6)).astype(np.float32)

    def loss_and_gradients(logits, labels):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(logits)
            loss = metrics.mean_loss(logits, labels)
        # Twice: it changes a tensor in place, which must be none that others have.
        gradients = [tape.gradient(loss, logits) for _ in range(2)]
        return gradients, loss, logits

    function = tf.function(loss_and_gradients) if compiled else loss_and_gradients
    gradients, loss, after = function(tf.constant(logits), tf.constant(_LABELS))
    softmax = np.exp(reference.log_probabilities(logits))
    expected = (softmax - np.eye(6)[_LABELS]) * (_LABELS != 0)[..., None] / (_LABELS != 0).sum()
    for gradient in gradients:
        np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-7)
    assert loss.numpy() == pytest.approx(reference.mean_loss(logits, _LABELS), rel=1e-6)
    np.testing.assert_array_equal(after, logits)


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
    cell = saved_models.ALL['micro']
    weights = reference.random_weights(cell, _NUM_TOKENS, seed=2)
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
