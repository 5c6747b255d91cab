"""Sheets of images, pixel by pixel."""

import io

import numpy as np
from matplotlib import image

from dpfl.reporting import contact_sheet


def test_images_stand_in_rows_with_grey_gaps():
    pixels = np.stack([np.full((3, 2), value) for value in (0.0, 0.25, 1.0)])
    sheet = contact_sheet.tiled(pixels, columns=2, scale=1)
    assert sheet.shape == (3 + 2 + 3, 2 + 2 + 2) and sheet.dtype == np.uint8
    assert (sheet[:3, :2] == 0).all() and (sheet[:3, 4:] == 64).all()
    assert (sheet[5:, :2] == 255).all()
    assert set(sheet[3:5].ravel()) | set(sheet[:, 2:4].ravel()) == {128}
    assert (sheet[5:, 4:] == 128).all()  # Left over.
    twice = contact_sheet.tiled(pixels, columns=2, scale=2)
    np.testing.assert_array_equal(twice[::2, ::2], sheet)
    np.testing.assert_array_equal(twice[1::2, 1::2], sheet)


def test_values_beyond_the_range_are_cut():
    assert contact_sheet.tiled(np.array([[[-1.0, 2.0]]]), 1, 1).tolist() == [[0, 255]]


def test_the_file_is_a_png_of_the_sheet():
    pixels = np.random.default_rng(0).uniform(size=(5, 4, 4))
    read = image.imread(io.BytesIO(contact_sheet.png(pixels, 3)), format='png')
    expected = contact_sheet.tiled(pixels, 3) / 255
    np.testing.assert_allclose(read[..., 0], expected, atol=1 / 255)
    assert contact_sheet.png(pixels, 3) == contact_sheet.png(pixels, 3)
