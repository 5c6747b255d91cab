"""Measures of hand-made images, and distances of sets of features."""

import numpy as np
import pytest

from experiments.studies.generators import drawn


def test_ink_inversion_and_contrast_by_hand():
    pixels = np.ones((4, 28, 28))
    pixels[0] = 0  # All ink.
    pixels[1, :7] = 0  # A quarter.
    found = drawn.measures(pixels)
    assert found['ink, share of the area'].value == pytest.approx(1.25 / 4)
    inverted = found['inverted: more ink than paper']
    assert (inverted.hits, inverted.count) == (1, 4)
    contrast = found['contrast: standard deviation of the pixels']
    assert contrast.value == pytest.approx(np.sqrt(0.25 * 0.75) / 4)


def test_class_mix_counts_every_class():
    mix = drawn.class_mix(np.array([0, 0, 10, 61]))
    assert len(mix) == 62 and sum(share.hits for share in mix.values()) == 4
    assert mix['0'].hits == 2 and mix['A'].hits == 1 and mix['z'].count == 4


def test_sets_of_images_are_apart_only_if_they_differ():
    rng = np.random.default_rng(4)
    first, second = rng.normal(size=(2, 120, 3))
    equal = drawn.apart(first, second, splits=19, seed=0)
    assert equal.p_value > 0.05 and equal.frechet < 4 * equal.floor
    moved = drawn.apart(first, second + 2, splits=19, seed=0)
    assert moved.p_value == 1 / 20
    assert moved.frechet == pytest.approx(12, rel=0.3)
    with pytest.raises(ValueError, match='number of images'):
        drawn.apart(first[:3], second, splits=19, seed=0)
