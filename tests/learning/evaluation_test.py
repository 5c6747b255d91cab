"""Evaluation on held-out data: quantiles over clients, and metrics of a GAN against NumPy."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import errors, learning
from dpfl.learning import evaluation
from dpfl.learning.evaluation import accuracy_quantiles
from dpfl.tasks.config import TextConfig
from dpfl.tasks.text import synthetic_text, text_task, vocabulary, word_clients
from dpfl.tasks.text.models import metrics, saved_models
from tests.learning import gan_models


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
    with pytest.raises(errors.ArgumentError, match='owners: must have one client'):
        accuracy_quantiles(owners[1:], right, targets)


_LANGUAGE = synthetic_text.SyntheticText(vocabulary_size=40, sentence_length=6, seed=1)
_NUM_TOKENS = 44
_TOKENS = [_LANGUAGE.tokens(client, 'heldout') for client in range(5)]


def _heldout(batch_size):
    """The sentences of five clients, and whose they are."""
    heldout = word_clients.WordClients(9, lambda client: _LANGUAGE.sentences(_TOKENS[client]))
    words = vocabulary.Vocabulary(tuple(_LANGUAGE.vocabulary))
    data = word_clients.TextData(heldout, heldout)
    task = text_task.WordTask(data, words, TextConfig(sentence_length=6))
    return task.heldout_dataset(5, batch_size), task.heldout_owners(5)


@pytest.mark.standard
def test_quantiles_of_a_language_model_are_those_of_each_client_alone():
    model = saved_models.build('lstm_256', _NUM_TOKENS, 6, 0)
    rng = np.random.default_rng(0)
    trainable, others = model.initial_weights
    weights = tuple(leaf + rng.normal(size=leaf.shape).astype('f') for leaf in trainable), others
    dataset, owners = _heldout(7)  # Batches that cross the ends of clients.
    evaluate = learning.build_evaluation(model, dataset, owners=owners, hits=metrics.hits)
    found = evaluate(weights)
    alone = []
    for own in _TOKENS:
        data = tf.data.Dataset.from_tensors({'x': own[:, :-1], 'y': own[:, 1:]})
        alone.append(learning.build_evaluation(model, data)(weights)['accuracy'])
    assert len(set(alone)) > 2
    for q in (10, 25, 50, 75, 90):
        assert found[f'accuracy_q{q}'] == pytest.approx(np.quantile(alone, q / 100), rel=1e-6)
    plain = learning.build_evaluation(model, dataset)(weights)
    assert plain == {name: value for name, value in found.items() if '_q' not in name}


@pytest.mark.standard
def test_large_batches_are_measured_in_parts(monkeypatch):
    model = saved_models.build('micro', _NUM_TOKENS, 6, 0)
    dataset, owners = _heldout(50)
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
    of_row = 6 * _NUM_TOKENS * 4
    monkeypatch.setattr(evaluation, '_PREDICTIONS', 3 * of_row + 1)
    found = learning.build_evaluation(model, dataset, owners=owners, hits=hits)(weights)
    assert whole > 3 and found == pytest.approx(expected, rel=1e-5)
    assert found['num_examples'] == len(owners)
    monkeypatch.setattr(evaluation, '_PREDICTIONS', 1)  # At least one row at a time.
    assert learning.build_evaluation(model, dataset)(weights)['num_tokens'] == found['num_tokens']


_MODEL = gan_models.linear_gan()


def test_metrics_are_what_they_say(monkeypatch):
    pixels = np.random.default_rng(0).uniform(size=(40, 2)).astype(np.float32)
    evaluate = learning.build_gan_evaluation(_MODEL, pixels, gradient_penalty=10.0, seed=0)
    others = (*gan_models.DISCRIMINATOR, np.int64(3))
    weights = tff.learning.models.ModelWeights(gan_models.GENERATOR, others)
    metrics = evaluate(weights)
    assert metrics == evaluate(weights)
    w, b = gan_models.DISCRIMINATOR
    real = (2 * pixels - 1) @ w + b
    # Images are not known here, but their mean score is.
    mean_generated = -metrics['generator_loss']
    assert metrics['critic_gap'] == pytest.approx(real.mean() - mean_generated, abs=1e-5)
    penalty = 10 * (np.linalg.norm(w) - 1) ** 2
    assert metrics['loss'] == pytest.approx(penalty - metrics['critic_gap'], abs=1e-5)
    assert 0 < metrics['accuracy'] < 1 and metrics['diversity'] > 0
    # The networks see a few pairs at a time; the measures are those of all together.
    monkeypatch.setattr(evaluation, '_IMAGES', 7)
    assert evaluate(weights) == pytest.approx(metrics, rel=1e-5)


def test_accuracy_counts_pairs_in_their_order():
    pixels = np.full((7, 2), 0.9, np.float32)
    evaluate = learning.build_gan_evaluation(_MODEL, pixels, gradient_penalty=0.0, seed=0)
    # A generator that only knows the image whose pixels are 0.1.
    generator = (np.zeros((2, 2), np.float32), np.full(2, -0.8, np.float32))
    for sign, accuracy in ((1, 1.0), (-1, 0.0), (0, 0.5)):
        others = (sign * np.ones(2, np.float32), np.float32(0), np.int64(0))
        metrics = evaluate(tff.learning.models.ModelWeights(generator, others))
        assert metrics['intensity'] == pytest.approx(0.1) and metrics['diversity'] < 1e-6
        assert metrics['accuracy'] == accuracy
    others = (np.full(2, np.nan, np.float32), np.float32(0), np.int64(0))
    assert np.isnan(evaluate(tff.learning.models.ModelWeights(generator, others))['accuracy'])
    # As by comparing all pairs.
    first, second = np.random.default_rng(1).integers(20, size=(2, 50)).astype(np.float32)
    above = np.sign(first[:, None] - second[None, :])
    assert evaluation._share_above(first, second) == pytest.approx((1 + above.mean()) / 2)


def test_samples_are_a_function_of_the_seed(monkeypatch):
    generator = gan_models.GENERATOR
    one, same, other = (learning.sample(_MODEL, generator, 4, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert one.shape == (4, 2) and (one != other).all()
    np.testing.assert_allclose(learning.sample(_MODEL, generator, 2, 1), one[:2])
    monkeypatch.setattr(evaluation, '_IMAGES', 3)
    np.testing.assert_allclose(learning.sample(_MODEL, generator, 4, 1), one)


@pytest.mark.parametrize('shape', [(0, 2), (3, 4)])
def test_images_of_another_shape_are_refused(shape):
    with pytest.raises(ValueError, match='pixels: must be images of shape .*, has shape'):
        learning.build_gan_evaluation(
            _MODEL, np.zeros(shape, np.float32), gradient_penalty=1.0, seed=0
        )
