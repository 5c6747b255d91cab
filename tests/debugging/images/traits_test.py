"""Traits and measures of images: by hand, of signs with each fault, and dense oracles."""

import numpy as np
import pytest
from scipy import linalg

from dpfl.debugging.images import traits
from dpfl.tasks.images import image_clients
from dpfl.tasks.images.synthetic_glyphs import SyntheticGlyphs

_PIXELS, _ = SyntheticGlyphs(seed=1).heldout_examples(3)


def _image(rows, columns):
    """A black rectangle on paper."""
    pixels = np.ones([1, 28, 28], np.float32)
    pixels[0, rows, columns] = 0
    return pixels


def _infer(pixels):
    """Confidence is the mean of the image; the one feature is the mean of its first row."""
    means = pixels.mean(axis=(1, 2))
    return np.stack([means, 0 * means], axis=1), pixels[:, 0].mean(axis=1, keepdims=True)


def test_traits_by_hand():
    tall = _image(slice(6, 24), slice(12, 15))
    assert not traits.is_lying(tall) and traits.is_lying(np.swapaxes(tall, 1, 2))
    assert not traits.is_lying(_image(slice(6, 18), slice(0, 28)))  # A blot.
    assert not traits.has_blank_half(tall)
    assert traits.has_blank_half(_image(slice(2, 14), slice(5, 9)))
    # 1 of 11 rows is less than a tenth, 2 of 12 are not.
    assert traits.has_blank_half(_image(slice(4, 15), slice(5, 9)))
    assert not traits.has_blank_half(_image(slice(4, 16), slice(5, 9)))
    assert traits.is_combed(_image(slice(0, 28, 2), slice(5, 9))) and not traits.is_combed(tall)
    # Faint ink is the noise of a generator.
    faint = np.minimum(tall, 0.8)
    np.testing.assert_array_equal(traits.is_lying(faint), [False])
    np.testing.assert_array_equal(traits.upright(1 - tall), tall)
    np.testing.assert_array_equal(traits.upright(tall), tall)


@pytest.mark.parametrize(
    'name, trait',
    {
        'inverted': 'inverted',
        'truncated': 'blank_half',
        'transposed': 'lying',
        'encoding': 'combed',
    }.items(),
)
def test_a_fault_shows_in_its_own_trait_only(name, trait):
    clean = traits.measure(_PIXELS, _infer)
    damaged = traits.measure(image_clients.OF_PIXELS[name](_PIXELS), _infer)
    for each, most in dict(inverted=0, blank_half=0, combed=0, lying=0.15).items():
        assert clean[each].value <= most
        if each != trait:
            assert damaged[each].value <= max(most, 0.01)
    assert damaged[trait].value > (0.6 if trait == 'lying' else 0.98)


def test_inverted_images_are_turned_back_for_the_model():
    mixed = np.concatenate([_PIXELS[::2], 1 - _PIXELS[1::2]])
    straight = np.concatenate([_PIXELS[::2], _PIXELS[1::2]])
    values = [traits.measure(pixels, _infer)['confidence'].value for pixels in (mixed, straight)]
    assert values[0] == pytest.approx(values[1], rel=1e-5)


def test_frechet_distance_is_that_of_the_definition_by_a_matrix_root():
    rng = np.random.default_rng(1)
    first, second = rng.normal(size=(50, 6)) @ rng.normal(size=(6, 6)), rng.normal(size=(40, 6))
    covariances = [np.cov(sample, rowvar=False) for sample in (first, second)]
    root = linalg.sqrtm(covariances[0] @ covariances[1])
    assert np.abs(np.imag(root)).max() < 1e-8
    expected = ((first.mean(axis=0) - second.mean(axis=0)) ** 2).sum()
    expected += np.trace(sum(covariances) - 2 * root.real)
    assert traits.frechet_distance(first, second) == pytest.approx(expected)
    # As many vectors as features, or fewer: the covariance is singular.
    few = rng.normal(size=(3, 8))
    assert traits.frechet_distance(few, few[::-1]) == pytest.approx(0, abs=1e-9)


def test_variety_is_that_of_disjoint_pairs():
    values = np.array([[0.0], [1.0], [3.0], [7.0], [50.0]])
    assert traits.pair_distances(values).tolist() == [3, 6]
