"""Measures of generated images: inverted or not, diversity, distance from real images.

They are computed from images and a classifier that was trained on images without the bug. Measures
that compare with real images compare with those of held-out clients.
"""

from collections.abc import Callable

import numpy as np
from scipy import linalg
from scipy.spatial import distance

from dpfl import _validate

# Number of images that `mean_distance` compares in pairs; more would hardly change the mean.
_MAX_PAIRED = 500


def inverted_by_intensity(pixels: np.ndarray) -> np.ndarray:
    """Which images have more ink than paper, that is a mean intensity below 1/2; bool [n].

    Args:
      pixels: float [n, 28, 28] in [0, 1]; paper is 1.
    """
    return pixels.mean(axis=(1, 2)) < 0.5


def inverted_by_classifier(
    probabilities: Callable[[np.ndarray], np.ndarray], pixels: np.ndarray
) -> np.ndarray:
    """Which images the classifier is more confident about when they are inverted; bool [n].

    Args:
      probabilities: maps pixels [n, 28, 28] to class probabilities [n, classes].
      pixels: float [n, 28, 28] in [0, 1].
    """
    as_it_is, inverted = probabilities(pixels), probabilities(1 - pixels)
    return inverted.max(axis=1) > as_it_is.max(axis=1)


def effective_classes(classes: np.ndarray) -> float:
    """Exponential of the entropy of the classes: the number of classes, if all are equally common.

    Args:
      classes: int [n], not empty.
    """
    _validate.integer('number of images', len(classes), minimum=1)
    shares = np.unique(classes, return_counts=True)[1] / len(classes)
    return float(np.exp(-(shares * np.log(shares)).sum()))


def mean_distance(vectors: np.ndarray) -> float:
    """Mean Euclidean distance between pairs of vectors [n, d]; 0 if all images are equal.

    Raises:
      ValueError: if there are fewer than two.
    """
    _validate.integer('number of images', len(vectors), minimum=2)
    return float(distance.pdist(vectors[:_MAX_PAIRED].astype(np.float64)).mean())


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
    return frechet_distance_of_gaussians(*moments[0], *moments[1])


def frechet_distance_of_gaussians(
    mean1: np.ndarray, covariance1: np.ndarray, mean2: np.ndarray, covariance2: np.ndarray
) -> float:
    """Squared 2-Wasserstein distance of two Gaussians with means [d] and covariances [d, d]."""
    # The trace of (S1 S2)^(1/2) is the nuclear norm of S1^(1/2) S2^(1/2). This avoids the root of a
    # matrix that is not symmetric, which would fail for singular covariances.
    roots = [_root(covariance) for covariance in (covariance1, covariance2)]
    cross = linalg.svdvals(roots[0] @ roots[1]).sum()
    squared = ((mean1 - mean2) ** 2).sum()
    return float(max(squared + np.trace(covariance1) + np.trace(covariance2) - 2 * cross, 0.0))


def _root(covariance: np.ndarray) -> np.ndarray:
    values, vectors = linalg.eigh(covariance)
    return (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
