"""What a generator of images has learned, and what faults do to public images."""

import numpy as np
import pytest

from dpfl.debugging.images import diagnosis, learned


def _strokes(seed, count=200):
    """An upright stroke of black at a random place on white paper."""
    rng = np.random.default_rng(seed)
    pixels = np.ones((count, 28, 28), np.float32)
    for image in pixels:
        left = rng.integers(6, 20)
        image[4:24, left : left + 3] = 0
    return pixels


def _infer(pixels):
    """Sure of everything; the features are the ink of rows and columns."""
    ink = 1 - pixels
    return np.ones((len(pixels), 1)), np.concatenate([ink.sum(axis=1), ink.sum(axis=2)], axis=1)


@pytest.mark.parametrize(
    'untrained',
    [
        np.ones((200, 28, 28), np.float32),
        np.full((200, 28, 28), 0.7, np.float32),
        np.random.default_rng(1).random((200, 28, 28)).astype(np.float32),
        np.broadcast_to(_strokes(0).mean(axis=0), (200, 28, 28)),
    ],
)
def test_images_without_shape_have_learned_nothing(untrained):
    found = learned.measure(np.ascontiguousarray(untrained), _strokes(0), _infer)
    assert found.share == 0 and 'without any shape' in found.reason


def test_images_like_real_ones_have_learned_them_also_if_inverted():
    for pixels in (_strokes(1), 1 - _strokes(1)):
        assert learned.measure(pixels, _strokes(0), _infer).share > 0.9


def test_effects_are_those_of_the_faults():
    found = learned.effects(_strokes(0), _strokes(0)[:4], _infer)
    assert set(found) == {each.fault for each in diagnosis.SIGNATURES}
    assert found['inverted'] == {'inverted': 1} and found['transposed']['lying'] > 0.5
    assert found['truncated'] == {'blank_half': 1} and found['duplicated_client']['variety'] < 0
