"""Evaluation on held-out data: quantiles over clients."""

import numpy as np
import pytest
import tensorflow as tf

from dpfl import errors, learning
from dpfl.learning import evaluation
from dpfl.learning.evaluation import accuracy_quantiles
from dpfl.tasks.text import packing, synthetic_task, synthetic_text
from dpfl.tasks.text.models import catalog, metrics


def test_quantiles_by_hand():
    # Accuracies 0, 1/2, 1/4, 1; client 3 has no target and does not count.
    owners = np.array([0, 1, 1, 2, 4, 3])
    right = np.array([0, 1, 0, 1, 3, 0])
    targets = np.array([2, 1, 1, 4, 3, 0])
    found = accuracy_quantiles(owners, right, targets)
    assert list(found) == [f'accuracy_q{q}' for q in (10, 25, 50, 75, 90)]
    expected = np.quantile([0, 0.25, 0.5, 1], [0.1, 0.25, 0.5, 0.75, 0.9])
    np.testing.assert_allclose(list(found.values()), expected)
    assert found['accuracy_q50'] == 0.375


def test_without_a_target_there_is_no_quantile():
    assert accuracy_quantiles(np.array([0, 1]), np.zeros(2), np.zeros(2)) == {}


def test_owners_of_other_data_are_refused():
    with pytest.raises(errors.ArgumentError, match='owners: must have one client'):
        accuracy_quantiles(np.zeros(3, int), np.zeros(2), np.zeros(2))


@pytest.fixture(scope='module', name='language')
def _language():
    return synthetic_text.SyntheticText(vocabulary_size=40, sentence_length=6, seed=1)


def _clients(language):
    return synthetic_task.SyntheticClients(language, packing.Packing('sentences', 6))


def test_quantiles_of_a_language_model_are_those_of_each_client_alone(language):
    model = catalog.build('lstm_256', language.num_tokens, 6, 0)
    rng = np.random.default_rng(0)
    trainable, others = model.initial_weights
    weights = tuple(leaf + rng.normal(size=leaf.shape).astype('f') for leaf in trainable), others
    owners = _clients(language).heldout_owners(5)
    dataset = language.heldout_dataset(5, 7)  # Batches that cross the ends of clients.
    evaluate = learning.build_evaluation(model, dataset, owners=owners, hits=metrics.hits)
    found = evaluate(weights)
    alone = []
    sentences = language.heldout_tokens(5)
    for client in range(5):
        own = sentences[owners == client]
        data = tf.data.Dataset.from_tensors({'x': own[:, :-1], 'y': own[:, 1:]})
        alone.append(learning.build_evaluation(model, data)(weights)['accuracy'])
    assert len(set(alone)) > 2
    for q in (10, 25, 50, 75, 90):
        assert found[f'accuracy_q{q}'] == pytest.approx(np.quantile(alone, q / 100), rel=1e-6)
    plain = learning.build_evaluation(model, dataset)(weights)
    assert plain == {name: value for name, value in found.items() if '_q' not in name}


def test_owners_are_those_of_the_sentences(language):
    owners = _clients(language).heldout_owners(4)
    assert len(owners) == len(language.heldout_tokens(4))
    sizes = [len(language.heldout_tokens(k)) for k in range(1, 5)]
    np.testing.assert_array_equal(np.cumsum(np.bincount(owners)), sizes)


def test_large_batches_are_measured_in_parts(language, monkeypatch):
    model = catalog.build('micro', language.num_tokens, 6, 0)
    owners = _clients(language).heldout_owners(5)
    dataset = language.heldout_dataset(5, 50)
    whole, *_ = (len(batch['x']) for batch in dataset)

    def hits(labels, logits):
        right, targets = metrics.hits(labels, logits)
        most = tf.debugging.Assert(tf.shape(labels)[0] <= 3, [tf.shape(labels)])
        with tf.control_dependencies([most]):
            return tf.identity(right), targets

    weights = model.initial_weights
    expected = learning.build_evaluation(model, dataset, owners=owners, hits=metrics.hits)(weights)
    at_once = learning.build_evaluation(model, dataset, owners=owners, hits=hits)
    with pytest.raises(tf.errors.InvalidArgumentError):
        at_once(weights)
    of_row = 6 * language.num_tokens * 4
    monkeypatch.setattr(evaluation, '_PREDICTIONS', 3 * of_row + 1)
    found = learning.build_evaluation(model, dataset, owners=owners, hits=hits)(weights)
    assert whole > 3 and found == pytest.approx(expected, rel=1e-5)
    assert found['num_examples'] == len(owners)
    monkeypatch.setattr(evaluation, '_PREDICTIONS', 1)  # At least one row at a time.
    assert learning.build_evaluation(model, dataset)(weights)['num_tokens'] == found['num_tokens']
