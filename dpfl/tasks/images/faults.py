"""Faults of devices: their effects on labelled images, and the devices that have them.

`inverted` is the bug of [Augenstein20], section 6. The others are common, too: exchanged labels,
arrays with rows for columns, files of which the end is missing, and samples that are read with the
wrong number of bits.
"""

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np

from dpfl import _random, _validate, errors
from dpfl.tasks.config import IMAGE_FAULTS

# Domains of `_random.generator`. With that of `inverted` older runs have the devices they had.
_DOMAINS = {name: f'fault.{name[:9]}' for name in IMAGE_FAULTS} | {'inverted': 'image.inversion'}
# The client whose examples devices with `duplicated_client` have.
DUPLICATED = 0
_PAPER = 1.0


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

    Raises:
      ValueError: if a parameter is outside its range; the message names it.
    """

    names: tuple[str, ...] = ()
    share: float = 0.0
    seed: int = 0

    def __post_init__(self):
        for name in self.names:
            if name not in IMAGE_FAULTS:
                allowed = f'must be one of {", ".join(IMAGE_FAULTS)}'
                raise errors.ArgumentError('inject', name, allowed)
        _validate.number('inject_share', self.share, minimum=0, maximum=1)
        _random.check_seed('seed', self.seed)

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
        return DUPLICATED if 'duplicated_client' in self.of(client) else client

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
