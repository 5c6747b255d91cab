"""Clients with labelled images, and batches for the classifiers of `classifiers`.

Measures of generated images: inverted or not, diversity, distance from real images.

They are computed from images and a classifier that was trained on images without the bug. Measures
that compare with real images compare with those of held-out clients.
"""

import abc
import collections
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import linalg
from scipy.spatial import distance

from dpfl import _validate
from dpfl.tasks import federated_task

IMAGE_SIZE = 28
IMAGE_SHAPE = (IMAGE_SIZE, IMAGE_SIZE, 1)
# The 62 classes in the order of federated EMNIST: digits, capital letters, small letters.
CLASSES = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'
NUM_CLASSES = len(CLASSES)


def element_spec() -> Any:
    """Type of a batch: OrderedDict(x float32 [None, 28, 28, 1], y int32 [None])."""
    import tensorflow as tf

    return collections.OrderedDict(
        x=tf.TensorSpec([None, *IMAGE_SHAPE], tf.float32), y=tf.TensorSpec([None], tf.int32)
    )


def batches(
    pixels: np.ndarray,
    labels: np.ndarray,
    batch_size: int,
    epochs: int = 1,
    max_batches: int | None = None,
) -> list[collections.OrderedDict]:
    """Batches of images, as `federated_task.batches` cuts them.

    Args:
      pixels: float32 [n, 28, 28].
      labels: int32 [n].
      batch_size, epochs, max_batches: as there.

    Returns:
      Batches of type `element_spec()`, as NumPy arrays.
    """
    examples = {'x': pixels.reshape(-1, *IMAGE_SHAPE), 'y': labels}
    return federated_task.batches(examples, batch_size, epochs, max_batches)


def examples_needed(batch_size: int, max_batches: int | None) -> int | None:
    """Number of a client's examples that `batches` uses at most; None for no bound."""
    if max_batches is None:
        return None
    _validate.integer('batch_size', batch_size, minimum=1)
    return batch_size * _validate.integer('max_batches', max_batches, minimum=1)


class ImageClients(abc.ABC):
    """Clients with labelled images on their devices, and held-out clients."""

    @abc.abstractmethod
    def examples(self, client: int, limit: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The examples on a client's device, with its faults.

        Args:
          client: index of the client.
          limit: return the first `limit` examples only.

        Returns:
          Pixels float32 [n, 28, 28] in [0, 1] and labels int32 [n].

        Raises:
          ValueError: if an argument is outside its range.
          DataError: if a file cannot be read.
        """

    @abc.abstractmethod
    def heldout_clients(self, num_clients: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """Pixels and labels of each of the first held-out clients, without faults.

        Args:
          num_clients: number of held-out clients; all of them if there are fewer.

        Raises:
          ValueError: if the number is not a positive integer.
          DataError: if a file cannot be read.
        """

    def heldout_examples(self, num_clients: int) -> tuple[np.ndarray, np.ndarray]:
        """The examples of `heldout_clients` together, as pixels and labels."""
        pixels, labels = zip(*self.heldout_clients(num_clients), strict=True)
        return np.concatenate(pixels), np.concatenate(labels)

    def client_batches(
        self, client: int, batch_size: int, epochs: int = 1, max_batches: int | None = None
    ) -> list[collections.OrderedDict]:
        """A client's examples in their order, as `batches` cuts them."""
        limit = examples_needed(batch_size, max_batches)  # No more are read.
        return batches(*self.examples(client, limit), batch_size, epochs, max_batches)


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
