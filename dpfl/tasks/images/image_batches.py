"""Clients with labelled images, and batches for the classifiers of `classifiers`."""

import abc
import collections
from typing import Any

import numpy as np

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
