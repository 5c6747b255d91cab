"""The metrics against hand counts."""

import collections
import types

import numpy as np
import pytest

from dpfl.tasks import metrics

# Tokens: 0 pad, 1 begin, 2 end, 3 outside, 4 and 5 words.
_LABELS = np.array([[4, 5, 3, 2, 0], [5, 4, 4, 4, 5], [0, 0, 0, 0, 0]], np.int32)
_PREDICTED = np.array([[4, 4, 3, 2, 0], [5, 3, 4, 2, 5], [4, 4, 4, 4, 4]])


def _batch():
    logits = np.full((3, 5, 6), -1.0, np.float32)
    np.put_along_axis(logits, _PREDICTED[..., None], 2.0, axis=-1)
    return logits


def _reference_loss(logits, labels):
    """Mean over targets that are not padding, in float64."""
    logits = logits.astype(np.float64)
    log_probabilities = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    losses = -np.take_along_axis(log_probabilities, labels[..., None], axis=-1)[..., 0]
    return losses[labels != 0].mean()


def _update(state, logits, labels):
    output = types.SimpleNamespace(loss=metrics.mean_loss(logits, labels), predictions=logits)
    return metrics.update.python_function(state, labels, output)


def _finalize(state):
    return {name: value.numpy() for name, value in metrics.finalize(state).items()}


def test_hand_counted_batch():
    logits = _batch()
    state = _update(metrics.initialize(), logits, _LABELS)
    result = _finalize(state)
    # Words are 7 of the targets, 4 of them hit; one more target is outside the vocabulary.
    assert result['accuracy'] == pytest.approx(4 / 7)
    assert result['accuracy_with_oov'] == pytest.approx(4 / 8)
    assert result['num_tokens'] == 9
    assert result['num_examples'] == 2
    assert result['loss'] == pytest.approx(_reference_loss(logits, _LABELS), rel=1e-6)
    assert list(result) == ['loss', 'accuracy', 'accuracy_with_oov', 'num_tokens', 'num_examples']


def test_batches_and_clients_pool_exactly():
    logits = _batch()
    whole = _finalize(_update(metrics.initialize(), logits, _LABELS))
    parts = [_update(metrics.initialize(), logits[i : i + 1], _LABELS[i : i + 1]) for i in range(3)]
    added = collections.OrderedDict(
        (name, sum(part[name] for part in parts)) for name in parts[0]
    )
    for name, value in _finalize(added).items():
        assert value == pytest.approx(whole[name], rel=1e-6)


def test_nothing_but_padding_counts_as_nothing():
    labels = np.zeros((2, 3), np.int32)
    logits = np.ones((2, 3, 6), np.float32)
    assert metrics.mean_loss(logits, labels).numpy() == 0
    result = _finalize(_update(metrics.initialize(), logits, labels))
    assert set(result.values()) == {0}
