"""Clients with labelled images of letters and digits, and the faults of their devices.

`inverted` is the bug of [Augenstein20], section 6. The other faults are common, too: exchanged
labels, arrays with rows for columns, files of which the end is missing, and samples that are read
with the wrong number of bits.
"""

import abc
import collections
import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from dpfl import _random
from dpfl.tasks import federated_task
from dpfl.tasks.config import IMAGE_FAULTS

IMAGE_SIZE = 28
IMAGE_SHAPE = (IMAGE_SIZE, IMAGE_SIZE, 1)
# The 62 classes in the order of federated EMNIST: digits, capital letters, small letters.
CLASSES = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'
NUM_CLASSES = len(CLASSES)
# Domains of `_random.generator`. With that of `inverted` older runs have the devices they had.
_DOMAINS = {name: f'fault.{name[:9]}' for name in IMAGE_FAULTS} | {'inverted': 'image.inversion'}
# The client whose examples devices with `duplicated_client` have.
_DUPLICATED = 0
_PAPER = 1.0


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


def inverted(pixels: np.ndarray) -> np.ndarray:
    """Black for white: pixels within [0, 1], float32 [n, height, width]."""
    return 1 - pixels


def transposed(pixels: np.ndarray) -> np.ndarray:
    """Rows for columns, float32 [n, side, side]."""
    return np.swapaxes(pixels, 1, 2)


def truncated(pixels: np.ndarray) -> np.ndarray:
    """The lower half of the rows is blank, float32 [n, height, width]."""
    cut = pixels.copy()
    cut[:, pixels.shape[1] // 2 :] = _PAPER
    return cut


def encoding(pixels: np.ndarray) -> np.ndarray:
    """Samples of 16 bits, the low byte first, read as bytes: the upper half at twice the width.

    An image takes twice the bytes that the reader expects. So it gets the first half of the rows,
    each as two rows, the first of which shows the left half.

    Args:
      pixels: values within [0, 1], float32 [n, height, width].
    """
    words = np.round(pixels.reshape(len(pixels), -1) * (2**16 - 1)).astype('<u2')
    as_bytes = words.view(np.uint8)[:, : words.shape[1]]
    return (as_bytes / np.float32(255)).astype(np.float32).reshape(pixels.shape)


def swapped_labels(labels: np.ndarray) -> np.ndarray:
    """Labels int [n] in which classes 2k and 2k + 1 are exchanged."""
    return labels ^ 1


# Functions from pixels to those of a device with the fault.
OF_PIXELS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    'transposed': transposed,
    'encoding': encoding,
    'truncated': truncated,
    'inverted': inverted,
}


@dataclasses.dataclass(frozen=True)
class Faults:
    """Which devices have which faults: a pure function of (seed, client).

    A device that has a fault at some share has it at every larger share, as in a gradual roll-out.

    Attributes:
      names: names of faults, some of `IMAGE_FAULTS`.
      share: expected share of devices with a fault, in [0, 1]; each fault is drawn by itself.
      seed: integer in [0, 2**64).
    """

    names: tuple[str, ...] = ()
    share: float = 0.0
    seed: int = 0

    def of(self, client: int) -> tuple[str, ...]:
        """The faults of the device of a client, an index in [0, 2**64), in order."""
        return tuple(
            name
            for name in IMAGE_FAULTS
            if name in self.names
            and _random.generator(_DOMAINS[name], self.seed, client).random() < self.share
        )

    def source(self, client: int) -> int:
        """The client whose examples a client's device has: its own, unless it is a duplicate."""
        return _DUPLICATED if 'duplicated_client' in self.of(client) else client

    def processed(
        self, client: int, pixels: np.ndarray, labels: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Examples as the device of a client reports them.

        Args:
          client: index of the client.
          pixels: values within [0, 1], float32 [n, height, width], of the examples of `source`.
          labels: their labels, int [n].
        """
        for name in self.of(client):
            if name in OF_PIXELS:
                pixels = OF_PIXELS[name](pixels)
            elif name == 'swapped_labels':
                labels = swapped_labels(labels)
        return pixels, labels
