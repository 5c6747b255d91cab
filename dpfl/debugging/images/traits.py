"""Traits of generated images by which faults show: ink, its place and shape, variety, certainty.

Each trait has one value per image, so that a set of images gives a share or a mean with a known
error. Images that are inverted count as such, and are turned back before the other traits are
measured. So one fault does not look like another.
"""

from collections.abc import Callable

import numpy as np

from dpfl.debugging.differences import Mean, Share
from dpfl.debugging.images import image_measures

# Less ink than this is taken for the noise of a generator.
_FAINT = 0.25
# The lower half counts as blank with less than this share of the ink, and the ink as lying if it
# extends further to the sides than up and down by this factor.
_BLANK, _LYING = 0.1, 1.1
# With more ink than this an image is a blot, which has no direction.
_BLOT = 0.3


def upright(pixels: np.ndarray) -> np.ndarray:
    """The images, float [n, h, w] within [0, 1] with paper 1; inverted ones are turned back."""
    dark = image_measures.inverted_by_intensity(pixels)
    return np.where(dark[:, None, None], 1 - pixels, pixels)


def has_blank_half(pixels: np.ndarray) -> np.ndarray:
    """Which images have less than a tenth of their ink in the lower half, bool [n].

    Args:
      pixels: upright images, float [n, h, w].
    """
    ink = _ink(pixels)
    lower = ink[:, pixels.shape[1] // 2 :].sum(axis=(1, 2))
    return lower < _BLANK * ink.sum(axis=(1, 2))


def is_lying(pixels: np.ndarray) -> np.ndarray:
    """Which images extend further to the sides than up and down, bool [n]; blots do not.

    Extents are standard deviations of the place of the ink.

    Args:
      pixels: upright images, float [n, h, w].
    """
    ink = _ink(pixels)
    vertical, horizontal = (_spread(ink.sum(axis=axis)) for axis in (2, 1))
    return (horizontal > _LYING * vertical) & (ink.mean(axis=(1, 2)) < _BLOT)


def is_combed(pixels: np.ndarray) -> np.ndarray:
    """Which images have rows that are less like the next row than like the one after it, bool [n].

    Args:
      pixels: upright images, float [n, h, w].
    """
    next_row = np.abs(np.diff(pixels, axis=1))[:, :-1].sum(axis=(1, 2))
    after_it = np.abs(pixels[:, 2:] - pixels[:, :-2]).sum(axis=(1, 2))
    return next_row > after_it


def pair_distances(vectors: np.ndarray) -> np.ndarray:
    """Distances of disjoint pairs, float64 [n // 2]: independent draws of how images vary.

    Args:
      vectors: of the images, float [n, d].
    """
    half = len(vectors) // 2
    vectors = np.asarray(vectors, np.float64)
    return np.linalg.norm(vectors[:half] - vectors[half : 2 * half], axis=1)


def measure(
    pixels: np.ndarray, infer: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
) -> dict[str, Share | Mean]:
    """The traits of a set of images by name.

    Args:
      pixels: values within [0, 1], paper is 1, float32 [n, 28, 28].
      infer: the primary model: maps images to probabilities [n, classes] and features [n, d].

    Returns:
      Shares `inverted`, `blank_half`, `lying` and `combed`, and means `confidence` (probability of
      the predicted class) and `variety` (distance of two images in the features).
    """
    turned = upright(pixels)
    probabilities, features = infer(turned)
    blank, combed = has_blank_half(turned), is_combed(turned)
    return {
        'inverted': Share.of(image_measures.inverted_by_intensity(pixels)),
        'blank_half': Share.of(blank),
        # Half an image, or one of twice the width, lies whatever it shows.
        'lying': Share.of(is_lying(turned) & ~blank & ~combed),
        'combed': Share.of(combed),
        'confidence': Mean.of(probabilities.max(axis=1)),
        'variety': Mean.of(pair_distances(features)),
    }


def _ink(pixels: np.ndarray) -> np.ndarray:
    ink = 1 - pixels
    return np.where(ink < _FAINT, 0.0, ink)


def _spread(weights: np.ndarray) -> np.ndarray:
    """Standard deviations of positions 0, 1, ... with these weights, float64 [n, length]."""
    weights = weights.astype(np.float64)
    total = np.maximum(weights.sum(axis=1), np.finfo(float).tiny)
    places = np.arange(weights.shape[1])
    mean = (weights * places).sum(axis=1) / total
    return np.sqrt((weights * (places - mean[:, None]) ** 2).sum(axis=1) / total)
