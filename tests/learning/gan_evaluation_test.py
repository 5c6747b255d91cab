"""Metrics of a GAN against NumPy, and its samples. Starts no TFF runtime."""

import numpy as np
import pytest
import tensorflow_federated as tff

from dpfl import learning
from tests.learning import gan_models

_MODEL = gan_models.linear_gan()


def _weights():
    return tff.learning.models.ModelWeights(
        gan_models.GENERATOR, (*gan_models.DISCRIMINATOR, np.int64(3))
    )


def test_metrics_are_what_they_say():
    pixels = np.random.default_rng(0).uniform(size=(40, 2)).astype(np.float32)
    evaluate = learning.build_gan_evaluation(_MODEL, pixels, gradient_penalty=10.0, seed=0)
    metrics = evaluate(_weights())
    assert metrics == evaluate(_weights())
    w, b = gan_models.DISCRIMINATOR
    real = (2 * pixels - 1) @ w + b
    # Images are not known here, but their mean score is.
    mean_generated = -metrics['generator_loss']
    assert metrics['critic_gap'] == pytest.approx(real.mean() - mean_generated, abs=1e-5)
    penalty = 10 * (np.linalg.norm(w) - 1) ** 2
    assert metrics['loss'] == pytest.approx(penalty - metrics['critic_gap'], abs=1e-5)
    assert 0 < metrics['accuracy'] < 1 and metrics['diversity'] > 0


def test_accuracy_counts_pairs_in_their_order():
    evaluate = learning.build_gan_evaluation(
        _MODEL, np.full((7, 2), 0.9, np.float32), gradient_penalty=0.0, seed=0
    )

    def accuracy(discriminator):
        # A generator that only knows the image whose pixels are 0.1.
        generator = (np.zeros((2, 2), np.float32), np.full(2, -0.8, np.float32))
        weights = tff.learning.models.ModelWeights(generator, (*discriminator, np.int64(0)))
        metrics = evaluate(weights)
        assert metrics['intensity'] == pytest.approx(0.1)
        assert metrics['diversity'] < 1e-6
        return metrics['accuracy']

    ones = np.ones(2, np.float32)
    assert [accuracy((sign * ones, np.float32(0))) for sign in (1, -1, 0)] == [1.0, 0.0, 0.5]


def test_samples_are_a_function_of_the_seed():
    generator = gan_models.GENERATOR
    one, same, other = (learning.sample(_MODEL, generator, 4, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert one.shape == (4, 2) and (one != other).all()
    np.testing.assert_allclose(learning.sample(_MODEL, generator, 2, 1), one[:2])


@pytest.mark.parametrize('shape', [(0, 2), (3, 4)])
def test_images_of_another_shape_are_refused(shape):
    with pytest.raises(ValueError, match='pixels: must be images of shape .*, has shape'):
        learning.build_gan_evaluation(
            _MODEL, np.zeros(shape, np.float32), gradient_penalty=1.0, seed=0
        )
