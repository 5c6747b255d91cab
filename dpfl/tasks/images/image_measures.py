"""What generated images are like, in numbers: inverted or not, how diverse, how far from real ones.

All are computed from images and a classifier that was trained on images without the bug. Those that
compare with real images need the clients' images: they can be computed in a simulation only, and no
guarantee covers them.
"""

from collections.abc import Callable

import numpy as np
from scipy import linalg
from scipy.spatial import distance

from dpfl import _validate

# Images whose pairs are measured: the mean distance changes little beyond.
_MAX_PAIRED = 500


def inverted_by_intensity(pixels: np.ndarray) -> np.ndarray:
    """Which images have more ink than paper: mean intensity below 1/2; bool [n].

    Args:
      pixels: float [n, 28, 28] in [0, 1], paper 1.
    """
    return pixels.mean(axis=(1, 2)) < 0.5


def inverted_by_classifier(
    probabilities: Callable[[np.ndarray], np.ndarray], pixels: np.ndarray
) -> np.ndarray:
    """Which images the classifier is surer of when they are inverted; bool [n].

    Args:
      probabilities: from pixels [n, 28, 28] to those of the classes, [n, classes].
      pixels: float [n, 28, 28] in [0, 1].
    """
    as_it_is, inverted = probabilities(pixels), probabilities(1 - pixels)
    return inverted.max(axis=1) > as_it_is.max(axis=1)


def effective_classes(classes: np.ndarray) -> float:
    """Exponential of the entropy of the classes that occur: as many as if all were equally common.

    Args:
      classes: int [n], not empty.
    """
    _validate.integer('number of images', len(classes), minimum=1)
    shares = np.unique(classes, return_counts=True)[1] / len(classes)
    return float(np.exp(-(shares * np.log(shares)).sum()))


def mean_distance(vectors: np.ndarray) -> float:
    """Mean Euclidean distance of two different images' vectors [n, d]; 0 for equal images.

    Raises:
      ValueError: if there are fewer than two.
    """
    _validate.integer('number of images', len(vectors), minimum=2)
    return float(distance.pdist(vectors[:_MAX_PAIRED].astype(np.float64)).mean())


def frechet_distance(first: np.ndarray, second: np.ndarray) -> float:
    """Squared 2-Wasserstein distance of Gaussians with the moments of two samples.

    |m1 - m2|^2 + trace(S1 + S2 - 2 (S1 S2)^(1/2)), for features of a classifier an analogue of the
    Frechet inception distance. Small samples make it too large: compare equally large ones.

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
    return frechet_distance_of_gaussians(*moments[0], *moments[1])


def frechet_distance_of_gaussians(
    mean1: np.ndarray, covariance1: np.ndarray, mean2: np.ndarray, covariance2: np.ndarray
) -> float:
    """Squared 2-Wasserstein distance of two Gaussians: means [d], covariances [d, d]."""
    # The trace of (S1 S2)^(1/2) is the nuclear norm of S1^(1/2) S2^(1/2): no root of a matrix that
    # is not symmetric, which would fail where a covariance is singular.
    roots = [_root(covariance) for covariance in (covariance1, covariance2)]
    cross = linalg.svdvals(roots[0] @ roots[1]).sum()
    squared = ((mean1 - mean2) ** 2).sum()
    return float(max(squared + np.trace(covariance1) + np.trace(covariance2) - 2 * cross, 0.0))


def _root(covariance: np.ndarray) -> np.ndarray:
    values, vectors = linalg.eigh(covariance)
    return (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
