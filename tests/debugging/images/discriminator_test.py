"""The second discriminator: what can be told apart, and what cannot."""

import numpy as np
import pytest

from dpfl.debugging.images import discriminator


def _squares(number, rng, size):
    pixels = np.ones([number, 28, 28], np.float32)
    for image, (row, column) in zip(pixels, rng.integers(2, 14, [number, 2]), strict=True):
        image[row : row + size, column : column + size] = 0
    return pixels


@pytest.mark.standard
def test_squares_of_two_sizes_are_told_apart_and_equal_ones_are_not():
    rng = np.random.default_rng(0)
    first, second = _squares(120, rng, 10), _squares(120, rng, 5)
    # A tenth of the clients' images are like public ones.
    first[::10] = _squares(12, rng, 5)
    found = discriminator.compare(first, second, seed=0, steps=200)
    assert found.accuracy.count == 120 and found.accuracy.value > 0.85
    assert found.surest.shape == (24, 28, 28)
    assert ((1 - found.surest).sum(axis=(1, 2)) > 50).all()  # All of the larger size.
    control = discriminator.compare(_squares(120, rng, 5), second, seed=0, steps=200)
    low, high = control.accuracy.interval(1 - 1e-6)
    assert low < 0.5 < high
    beyond = discriminator.Comparisons(found, control).difference
    assert beyond.low > 0 and beyond.value == pytest.approx(
        found.accuracy.value - control.accuracy.value
    )
