"""Contact sheets: many small images in one picture."""

import io
import pathlib

import numpy as np
from matplotlib import image

from dpfl import _storage

_GAP = 2  # Width of the gaps, in pixels of the images.
_GAP_PIXEL = 0.5  # Grey.


def tiled(pixels: np.ndarray, columns: int, scale: int = 2) -> np.ndarray:
    """Arranges images in rows, with grey gaps.

    Args:
      pixels: float [n, height, width] in [0, 1] with n > 0; 0 is black.
      columns: images per row; the rest of the last row is grey.
      scale: factor by which the picture is enlarged along each axis.

    Returns:
      The picture, uint8 [height, width].
    """
    number, height, width = pixels.shape
    rows = -(-number // columns)
    sheet = np.full((rows, height + _GAP, columns, width + _GAP), _GAP_PIXEL)
    for index, picture in enumerate(pixels):
        row, column = divmod(index, columns)
        sheet[row, :height, column, :width] = picture
    sheet = sheet.reshape(rows * (height + _GAP), columns * (width + _GAP))[:-_GAP, :-_GAP]
    levels = np.round(255 * np.clip(sheet, 0, 1)).astype(np.uint8)
    return levels.repeat(scale, axis=0).repeat(scale, axis=1)


def png(pixels: np.ndarray, columns: int, scale: int = 2) -> bytes:
    """The picture of `tiled` as a PNG file."""
    file = io.BytesIO()
    image.imsave(file, tiled(pixels, columns, scale), format='png', cmap='gray', vmin=0, vmax=255)
    return file.getvalue()


def write(path: pathlib.Path, pixels: np.ndarray, columns: int = 12) -> None:
    """Writes the picture of `tiled` as a PNG file; makes the directory if need be.

    Raises:
      StorageError: if that fails.
    """
    with _storage.naming(path):
        path.parent.mkdir(exist_ok=True)
    picture = png(pixels, columns)
    _storage.write_atomically(path, lambda file: file.write(picture))
