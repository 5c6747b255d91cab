"""Measures of generated images: ink, its place and shape, variety, certainty, Frechet distance.

A trait, by which faults show, has one value per image, so that a set of images gives a share or a
mean with a known error. Images that are inverted count as such, and are turned back before the
other traits are measured. So one fault does not look like another. The Frechet distance describes a
set as a whole.
"""

import functools
from collections.abc import Callable

import numpy as np
import scipy

from dpfl import _validate
from dpfl.debugging.diagnosis import Trait
from dpfl.debugging.differences import Mean, Share

# Maps images float32 [n, 28, 28] to probabilities [n, classes] and features [n, d].
Infer = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]

# Less ink than this is taken for the noise of a generator.
_FAINT = 0.25
# The lower half counts as blank with less than this share of the ink, and the ink as lying if it
# extends further to the sides than up and down by this factor.
_BLANK, _LYING = 0.1, 1.1
# With more ink than this an image is a blot, which has no direction.
_BLOT = 0.3


# The spreads were measured on data without a fault (docs/debug_images.md).
_trait = functools.partial(Trait, is_absolute=True)
ALL = {
    trait.name: trait
    for trait in (
        _trait('inverted', 'more ink than paper', 0.05, 0.2),
        _trait('blank_half', 'lower half blank', 0.05, 0.2),
        _trait('lying', 'wider than high', 0.065, 0.3),
        _trait('combed', 'rows alternate', 0.05, 0.2),
        _trait('confidence', 'confidence of the model', 0.09, 0.0),
        _trait('variety', 'distance of two images', 7.0, 0.35, unit='', is_least_relative=True),
        _trait('accuracy', 'accuracy of the model on real images', 0.0, 0.15),
    )
}


def is_inverted(pixels: np.ndarray) -> np.ndarray:
    """Which images have more ink than paper, that is a mean intensity below 1/2; bool [n].

    Args:
      pixels: float [n, 28, 28] in [0, 1]; paper is 1.
    """
    return pixels.mean(axis=(1, 2)) < 0.5


def upright(pixels: np.ndarray) -> np.ndarray:
    """The images, float [n, h, w] within [0, 1] with paper 1; inverted ones are turned back."""
    dark = is_inverted(pixels)
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


def measure(pixels: np.ndarray, infer: Infer) -> dict[str, Share | Mean]:
    """The traits of a set of images by name.

    Args:
      pixels: values within [0, 1], paper is 1, float32 [n, 28, 28].
      infer: the primary model.

    Returns:
      Shares `inverted`, `blank_half`, `lying` and `combed`, and means `confidence` (probability of
      the predicted class) and `variety` (distance of two images in the features).
    """
    turned = upright(pixels)
    probabilities, features = infer(turned)
    blank, combed = has_blank_half(turned), is_combed(turned)
    return {
        'inverted': Share.of(is_inverted(pixels)),
        'blank_half': Share.of(blank),
        # Half an image, or one of twice the width, lies whatever it shows.
        'lying': Share.of(is_lying(turned) & ~blank & ~combed),
        'combed': Share.of(combed),
        'confidence': Mean.of(probabilities.max(axis=1)),
        'variety': Mean.of(pair_distances(features)),
    }


def frechet_distance(first: np.ndarray, second: np.ndarray) -> float:
    """Squared 2-Wasserstein distance of Gaussians with the moments of two samples.

    The distance is |m1 - m2|^2 + trace(S1 + S2 - 2 (S1 S2)^(1/2)). For features of a classifier it
    is an analogue of the Frechet inception distance. Small samples overestimate it, so compare
    samples of equal size only.

    Args:
      first, second: vectors [n, d].

    Raises:
      ValueError: if a sample has fewer than two vectors.
    """
    moments = []
    for vectors in (first, second):
        _validate.integer('number of images', len(vectors), minimum=2)
        vectors = np.asarray(vectors, np.float64)
        moments.append((vectors.mean(axis=0), np.atleast_2d(np.cov(vectors, rowvar=False))))
    (mean1, covariance1), (mean2, covariance2) = moments
    # The trace of (S1 S2)^(1/2) is the nuclear norm of S1^(1/2) S2^(1/2). This avoids the root of a
    # matrix that is not symmetric, which would fail for singular covariances.
    roots = [_root(covariance) for covariance in (covariance1, covariance2)]
    cross = scipy.linalg.svdvals(roots[0] @ roots[1]).sum()
    squared = ((mean1 - mean2) ** 2).sum()
    return float(max(squared + np.trace(covariance1) + np.trace(covariance2) - 2 * cross, 0.0))


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


def _root(covariance: np.ndarray) -> np.ndarray:
    values, vectors = scipy.linalg.eigh(covariance)
    return (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
