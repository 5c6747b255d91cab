"""Clients with labelled images, and batches for the classifiers of `classifiers`."""

import abc
import collections
import math
from collections.abc import Iterable
from typing import Any

import numpy as np

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


def initial_weights(
    rng: np.random.Generator, shapes: Iterable[tuple[int, ...]]
) -> tuple[np.ndarray, ...]:
    """Initial float32 weights of an image model: kernels within the Glorot bound, biases 0.

    Args:
      rng: source of the kernels.
      shapes: of the weights; a bias has one axis, the kernel of a convolution four.
    """
    weights = []
    for shape in shapes:
        if len(shape) == 1:
            weights.append(np.zeros(shape, np.float32))
            continue
        field = math.prod(shape[:-2])  # Receptive field of a convolution; 1 for a dense layer.
        bound = math.sqrt(6 / (field * (shape[-2] + shape[-1])))
        weights.append(rng.uniform(-bound, bound, shape).astype(np.float32))
    return tuple(weights)


def named(pixels: np.ndarray, labels: np.ndarray) -> federated_task.Examples:
    """Pixels, float32 [n, 28, 28], and labels, int32 [n], by the names of `element_spec()`."""
    return {'x': pixels.reshape(-1, *IMAGE_SHAPE), 'y': labels}


class ImageClients(federated_task.ClientData):
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

    def of_client(self, client: int, limit: int | None = None) -> federated_task.Examples:
        """As `examples`, by name."""
        return named(*self.examples(client, limit))

    def of_heldout(self, num_clients: int) -> list[federated_task.Examples]:
        """As `heldout_clients`, by name."""
        return [named(pixels, labels) for pixels, labels in self.heldout_clients(num_clients)]
