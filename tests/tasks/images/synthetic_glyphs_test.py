"""Writers of glyphs: pure functions, similar to EMNIST, each with a hand of its own; the bug."""

import numpy as np
import pytest

from dpfl.tasks.images import image_clients, synthetic_glyphs
from dpfl.tasks.images.image_clients import Faults
from dpfl.tasks.images.synthetic_glyphs import SyntheticGlyphs

_TASK = SyntheticGlyphs(seed=3)


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


def test_a_writer_resembles_itself_more_than_others():
    """Means over a writer's sevens differ more between writers than halves of one writer do."""
    task = SyntheticGlyphs(digit_share=1, median_examples=200, examples_spread=0)
    within, between, before = [], [], None
    for client in range(12):
        pixels, labels = task.examples(client)
        sevens = pixels[labels == 7]
        halves = sevens[::2].mean(axis=0), sevens[1::2].mean(axis=0)
        within.append(np.linalg.norm(halves[0] - halves[1]))
        if before is not None:
            between.append(np.linalg.norm(halves[0] - before))
        before = halves[1]
    assert np.mean(between) > 1.5 * np.mean(within)


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


def _write(label, **changes):
    """A sign of a plain hand."""
    hand = dict(
        fonts=np.zeros(62, int),
        slant=0.0,
        rotation=0.0,
        size=16.0,
        aspect=1.0,
        weight=0.0,
        softness=1.0,
        messiness=0.0,
        noise=0.0,
        bend=np.zeros([2, synthetic_glyphs._NUM_WAVES]),
    )
    hand = synthetic_glyphs.Hand(**{**hand, **changes})
    draws = np.zeros([1, synthetic_glyphs.DRAWS_PER_SIGN])
    label = image_clients.CLASSES.index(label)
    return synthetic_glyphs.write(hand, np.array([label]), draws, np.random.default_rng(0))[0]


def test_size_width_and_weight_of_a_sign():
    ink = 1 - _write('H')
    assert ink.sum(axis=1).astype(bool).sum() == pytest.approx(16, abs=2)
    wide = 1 - _write('H', aspect=1.4)
    widths = [part.any(axis=0).sum() for part in (ink > 0.5, wide > 0.5)]
    assert widths[1] / widths[0] == pytest.approx(1.4, abs=0.15)
    assert (1 - _write('H', weight=0.5)).sum() > 1.2 * ink.sum()


def test_slant_and_rotation_of_a_sign():
    columns = np.arange(28)

    def lean(pixels):
        """Number of columns by which the top of the ink is to the right of its bottom."""
        ink = 1 - pixels
        rows = np.flatnonzero(ink.sum(axis=1) > 0.5)
        ends = ink[[rows[1], rows[-2]]]
        centres = (ends * columns).sum(axis=1) / ends.sum(axis=1)
        return centres[0] - centres[1]

    assert lean(_write('l')) == pytest.approx(0, abs=0.3)
    assert lean(_write('l', slant=0.3)) == pytest.approx(0.3 * 14, abs=0.8)
    # A positive angle turns clockwise, as v points down: the top goes right.
    assert lean(_write('l', rotation=0.3)) == pytest.approx(np.sin(0.3) * 14, abs=0.8)
