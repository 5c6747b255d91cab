"""Faults of devices: what each does by hand, and which devices have it."""

import numpy as np
import pytest

from dpfl.tasks.config import IMAGE_FAULTS
from dpfl.tasks.images import faults

_PIXELS = np.arange(16, dtype=np.float32).reshape(1, 4, 4) / 16


def test_pixels_by_hand():
    np.testing.assert_array_equal(faults.inverted(_PIXELS), 1 - _PIXELS)
    np.testing.assert_array_equal(faults.transposed(_PIXELS)[0], _PIXELS[0].T)
    cut = faults.truncated(_PIXELS)
    np.testing.assert_array_equal(cut[0, :2], _PIXELS[0, :2])
    assert (cut[0, 2:] == 1).all() and (_PIXELS[0, 2:] < 1).all()


def test_samples_of_16_bits_read_as_bytes():
    # 0x0100 is two bytes, 0 and 1; 0xffff is 255 twice.
    pixels = np.array([[[0x0100, 0xFFFF], [0x1234, 0]]], np.float32) / 0xFFFF
    read = faults.encoding(pixels)
    assert read.dtype == np.float32
    np.testing.assert_allclose(read[0] * 255, [[0, 1], [255, 255]], atol=1e-4)
    # Black and white stay: the upper half, each half row as a row of twice the width.
    sharp = (np.arange(28 * 28).reshape(1, 28, 28) % 3 == 0).astype(np.float32)
    damaged = faults.encoding(sharp)[0]
    for row in range(28):
        half = sharp[0, row // 2, 14 * (row % 2) : 14 * (row % 2) + 14]
        np.testing.assert_array_equal(damaged[row], np.repeat(half, 2))


def test_labels_are_exchanged_in_pairs():
    labels = np.arange(62, dtype=np.int32)
    swapped = faults.swapped_labels(labels)
    assert swapped[:4].tolist() == [1, 0, 3, 2] and swapped.dtype == np.int32
    np.testing.assert_array_equal(faults.swapped_labels(swapped), labels)
    assert sorted(swapped) == labels.tolist()


@pytest.mark.parametrize('name', IMAGE_FAULTS)
def test_devices_with_a_fault_keep_it_as_its_share_grows(name):
    shares = [faults.Faults((name,), share, 1) for share in (0, 0.2, 0.7, 1)]
    affected = [{client for client in range(300) if each.of(client)} for each in shares]
    assert affected[0] == set() and affected[3] == set(range(300))
    assert affected[1] < affected[2]
    # Five standard deviations.
    assert len(affected[2]) == pytest.approx(210, abs=40)


def test_faults_are_drawn_one_by_one_and_applied_in_order():
    both = faults.Faults(('inverted', 'truncated'), 0.5, 2)
    found = [both.of(client) for client in range(200)]
    assert set(found) == {(), ('truncated',), ('inverted',), ('truncated', 'inverted')}
    for name in ('truncated', 'inverted'):
        alone = faults.Faults((name,), 0.5, 2)
        assert [bool(alone.of(client)) for client in range(200)] == [name in each for each in found]
    client = found.index(('truncated', 'inverted'))
    pixels, labels = both.processed(client, _PIXELS, np.array([3]))
    assert (pixels[0, 2:] == 0).all() and labels == [3]
    _, labels = faults.Faults(('swapped_labels',), 1.0).processed(7, _PIXELS, np.array([3]))
    assert labels == [2]


def test_devices_of_older_versions_have_the_bug():
    """Which of the first devices have it was recorded before there were other faults."""
    bug = faults.Faults(('inverted',), 0.5, 3)
    affected = [client for client in range(24) if bug.of(client)]
    assert affected == [1, 8, 11, 12, 13, 16, 17, 18, 23]
