"""Letters and digits of the fonts shipped with matplotlib, as distance fields.

A distance field gives the distance of each position to the outline of the glyph. It can be sampled
at any position and scale, and adding a constant makes strokes wider or narrower. So each glyph is
rendered only once, for all writers.
"""

import functools
import pathlib

import matplotlib
import numpy as np
from matplotlib import ft2font
from scipy import ndimage

# Classes in the order of federated EMNIST: digits, capital letters, small letters.
CLASSES = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'
NUM_DIGITS = 10

# Fonts with all classes and different letterforms. Weight and slant are those of the hand.
FONTS = (
    'DejaVuSans',
    'DejaVuSansMono',
    'DejaVuSerif',
    'DejaVuSerif-Italic',
    'DejaVuSans-Oblique',
    'STIXGeneral',
    'STIXGeneralItalic',
    'cmr10',
    'cmss10',
    'cmtt10',
)

# Side of a field, in heights of a capital letter. The glyph is in its middle.
EXTENT = 2.0
# Samples along each side of a field, and pixels of the rendered glyph per sample.
FIELD_SIZE = 64
_OVERSAMPLING = 2


@functools.cache
def distances() -> np.ndarray:
    """The distance fields of all fonts and classes.

    Returns:
      Distances to the outline in heights of a capital letter, positive inside the strokes;
      read-only float32 [fonts, 62, FIELD_SIZE, FIELD_SIZE], rows from top to bottom.
    """
    fields = np.stack([_font_distances(name) for name in FONTS])
    fields.setflags(write=False)
    return fields


def _font_distances(name: str) -> np.ndarray:
    path = pathlib.Path(matplotlib.get_data_path(), 'fonts', 'ttf', f'{name}.ttf')
    font = ft2font.FT2Font(str(path))
    height = int(FIELD_SIZE * _OVERSAMPLING / EXTENT)
    font.set_size(height, 72)
    font.set_size(height * height / _bitmap(font, 'H').shape[0], 72)
    return np.stack([_distance_field(_bitmap(font, glyph), height) for glyph in CLASSES])


def _bitmap(font: ft2font.FT2Font, glyph: str) -> np.ndarray:
    """The glyph as pixels without margins, bool [height, width]."""
    font.set_text(glyph, 0.0)
    font.draw_glyphs_to_bitmap(antialiased=False)
    inside = font.get_image() > 0
    rows, columns = np.flatnonzero(inside.any(axis=1)), np.flatnonzero(inside.any(axis=0))
    return inside[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]


def _distance_field(inside: np.ndarray, unit: int) -> np.ndarray:
    size = FIELD_SIZE * _OVERSAMPLING
    if max(inside.shape) > size:
        raise ValueError(f'glyph of shape {inside.shape}: must fit into {size} pixels')
    canvas = np.zeros([size, size], bool)
    top, left = (size - inside.shape[0]) // 2, (size - inside.shape[1]) // 2
    canvas[top : top + inside.shape[0], left : left + inside.shape[1]] = inside
    # The transform gives distances to the nearest pixel of the other kind. The outline is half a
    # pixel closer.
    to_edge = ndimage.distance_transform_edt
    signed = np.where(canvas, to_edge(canvas) - 0.5, 0.5 - to_edge(~canvas)) / unit
    fine = signed.reshape(FIELD_SIZE, _OVERSAMPLING, FIELD_SIZE, _OVERSAMPLING)
    return fine.mean(axis=(1, 3)).astype(np.float32)
