"""Writers of glyphs: pure functions, similar to EMNIST, each with a hand of its own; the bug."""

import numpy as np
import pytest

from dpfl.tasks.images import synthetic_glyphs
from dpfl.tasks.images.image_clients import Faults
from dpfl.tasks.images.synthetic_glyphs import SyntheticGlyphs

_TASK = SyntheticGlyphs(seed=3)
_PINNED = [
    (94.016, 11.608, 12.201, 135.43),
    (143.323, 13.943, 13.39, 184.312),
    (87.84, 12.478, 13.033, 162.454),
]


def test_examples_are_a_pure_function_of_seed_client_and_faults():
    for client in (0, 7, 2**64 - 1):
        np.testing.assert_equal(_TASK.examples(client), SyntheticGlyphs(seed=3).examples(client))
    pixels = [_TASK.examples(0)[0], _TASK.examples(1)[0], SyntheticGlyphs(seed=4).examples(0)[0]]
    assert len({part[:8].tobytes() for part in pixels}) == 3
    pixels, labels = _TASK.examples(5)
    for limit in (1, 31, 32, 33, 10_000):
        np.testing.assert_equal(_TASK.examples(5, limit), (pixels[:limit], labels[:limit]))
    buggy = SyntheticGlyphs(seed=3, faults=Faults(('inverted',), 0.5, 3))
    affected = [client for client in range(60) if buggy.faults.of(client)]
    for client in (affected[0], min(set(range(60)) - set(affected))):
        pixels, labels = _TASK.examples(client)
        seen = 1 - pixels if client in affected else pixels
        np.testing.assert_equal(buggy.examples(client), (seen, labels))
    np.testing.assert_equal(buggy.heldout_examples(5), _TASK.heldout_examples(5))
    copied = SyntheticGlyphs(seed=3, faults=Faults(('duplicated_client',), 1.0, 3))
    np.testing.assert_equal(copied.examples(9), _TASK.examples(0))


def test_results_that_are_stored_do_not_change():
    """Ink of three signs, its mean column and row, and the mean of their product."""
    pixels, labels = _TASK.examples(0, 3)
    assert labels.tolist() == [25, 6, 8]
    rows, columns = np.mgrid[:28, :28]
    for ink, (total, *means) in zip(1 - pixels, _PINNED, strict=True):
        assert ink.sum() == pytest.approx(total, rel=1e-4)
        found = [np.average(each, weights=ink) for each in (columns, rows, columns * rows)]
        assert found == pytest.approx(means, rel=1e-4)


def test_images_are_like_those_of_emnist():
    pixels, labels = _TASK.heldout_examples(60)
    assert pixels.dtype == np.float32 and pixels.shape[1:] == (28, 28) and labels.dtype == np.int32
    assert pixels.min() >= 0 and pixels.max() <= 1
    # Paper is 1, and most of an image; the border is paper.
    assert 0.8 < pixels.mean() < 0.95
    assert pixels[:, [0, -1]].mean() > 0.95
    assert set(labels) == set(range(62))
    assert (labels < 10).mean() == pytest.approx(0.5, abs=0.03)


def test_numbers_of_examples():
    task = SyntheticGlyphs(min_examples=3, median_examples=20, max_examples=40, examples_spread=1)
    numbers = [len(task.examples(client)[1]) for client in range(200)]
    assert min(numbers) >= 3 and max(numbers) == 40
    assert np.median(numbers) == pytest.approx(20, rel=0.2)


def test_all_fonts_have_all_classes():
    fields = synthetic_glyphs.distances()
    assert fields.shape[:2] == (len(synthetic_glyphs.FONTS), 62)
    # Every glyph has ink in the field, and none at its border.
    assert (fields.max(axis=(2, 3)) > 0.02).all()
    border = fields.copy()
    border[:, :, 1:-1, 1:-1] = -1
    assert (border.max(axis=(2, 3)) < 0).all()
    # Different glyphs: no font shows a box for what it does not have.
    flat = fields.reshape(len(fields), 62, -1)
    assert all(len(np.unique(font, axis=0)) >= 60 for font in flat)
