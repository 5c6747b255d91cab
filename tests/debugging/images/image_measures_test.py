"""Measures of generated images: closed forms, and dense oracles."""

import numpy as np
import pytest
from scipy import linalg

from dpfl.debugging.images import image_measures
from dpfl.tasks.images.synthetic_glyphs import SyntheticGlyphs


def test_frechet_distance_of_gaussians_in_closed_form():
    measure = image_measures.frechet_distance_of_gaussians
    # One dimension: (m1 - m2)^2 + (s1 - s2)^2.
    one = measure(np.array([1.0]), np.array([[4.0]]), np.array([3.0]), np.array([[9.0]]))
    assert one == pytest.approx(4 + 1)
    # Commuting covariances: the sum over their common axes.
    rotation = linalg.qr(np.random.default_rng(0).normal(size=(4, 4)))[0]
    variances = np.array([[1.0, 4, 9, 16], [4, 1, 25, 0]])
    covariances = [rotation @ np.diag(values) @ rotation.T for values in variances]
    mean = np.arange(4.0)
    expected = 4 * 0.5**2 + ((np.sqrt(variances[0]) - np.sqrt(variances[1])) ** 2).sum()
    assert measure(mean, covariances[0], mean + 0.5, covariances[1]) == pytest.approx(expected)


def test_frechet_distance_equals_the_definition_by_a_matrix_root():
    rng = np.random.default_rng(1)
    factors = rng.normal(size=(2, 6, 6))
    first, second = (factor @ factor.T for factor in factors)
    means = rng.normal(size=(2, 6))
    root = linalg.sqrtm(first @ second)
    assert np.abs(np.imag(root)).max() < 1e-8
    expected = ((means[0] - means[1]) ** 2).sum() + np.trace(first + second - 2 * root.real)
    actual = image_measures.frechet_distance_of_gaussians(means[0], first, means[1], second)
    assert actual == pytest.approx(expected)


def test_frechet_distance_of_samples():
    rng = np.random.default_rng(2)
    sample = rng.normal(size=(50, 3))
    assert image_measures.frechet_distance(sample, sample) == pytest.approx(0, abs=1e-9)
    assert image_measures.frechet_distance(sample, sample + [1, 2, 2]) == pytest.approx(9)
    assert image_measures.frechet_distance(sample, 3 * sample) == pytest.approx(
        4 * (sample.mean(axis=0) ** 2).sum() + 4 * np.trace(np.cov(sample, rowvar=False))
    )
    # As many vectors as features, or fewer: the covariance is singular.
    few = rng.normal(size=(3, 8))
    assert image_measures.frechet_distance(few, few[::-1]) == pytest.approx(0, abs=1e-9)


_CORNERS = np.array([[0.0, 0], [3, 0], [0, 4]])


@pytest.mark.parametrize(
    'measure, values, expected',
    [
        ('effective_classes', np.array([3, 3, 3]), 1),
        ('effective_classes', np.arange(62), 62),
        ('effective_classes', np.array([1, 1, 2, 3]), 2**1.5),  # An entropy of 1.5 bits.
        ('mean_distance', _CORNERS, (3 + 4 + 5) / 3),
        ('mean_distance', np.ones([5, 2]), 0),
    ],
)
def test_diversity_by_hand(measure, values, expected):
    assert getattr(image_measures, measure)(values) == pytest.approx(expected)


def test_inversion():
    pixels, _ = SyntheticGlyphs().heldout_examples(5)
    assert not image_measures.inverted_by_intensity(pixels).any()
    assert image_measures.inverted_by_intensity(1 - pixels).all()

    def probabilities(pixels):
        """The confidence in an image is its share of paper."""
        sure = pixels.mean(axis=(1, 2))
        return np.stack([sure, 0 * sure], axis=1)

    pixels = np.stack([np.full([28, 28], value) for value in (0.1, 0.4, 0.6, 0.9)])
    found = image_measures.inverted_by_classifier(probabilities, pixels)
    assert found.tolist() == [True, True, False, False]
