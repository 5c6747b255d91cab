"""Many small images as one picture to look at."""

import io
import pathlib

import numpy as np
from matplotlib import image

from dpfl import _storage

_GAP = 2
_GAP_PIXEL = 0.5


def tiled(pixels: np.ndarray, columns: int, scale: int = 2) -> np.ndarray:
    """Images side by side, row after row, with grey gaps.

    Args:
      pixels: float [n, height, width] within [0, 1], n > 0; 0 is black.
      columns: images in a row; places that are left over are grey.
      scale: pixels of the picture for a pixel of an image, along each axis.

    Returns:
      Pixels of the picture, uint8 [height, width].
    """
    number, height, width = pixels.shape
    rows = -(-number // columns)
    sheet = np.full((rows, height + _GAP, columns, width + _GAP), _GAP_PIXEL)
    for index, one in enumerate(pixels):
        row, column = divmod(index, columns)
        sheet[row, :height, column, :width] = one
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
