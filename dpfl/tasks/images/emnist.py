"""Federated EMNIST: letters and digits by 3,400 writers ([Cohen17]; [Augenstein20], appendix C.1).

There are 62 classes. Images are 28 x 28, paper is 1 and ink is 0. A share of the writers is held
out: none of them is a client, and only their images are looked at, evaluated on, or public.
"""

import collections
import dataclasses
import functools

import numpy as np

from dpfl import _validate
from dpfl.errors import DataError
from dpfl.tasks import held_out
from dpfl.tasks.images import emnist_files, image_batches
from dpfl.tasks.images.faults import Faults

URL = 'https://storage.googleapis.com/tff-datasets-public/emnist_all.sqlite.lzma'
# SHA-256 of the compressed file of 170,507,172 bytes. The unpacked file has 4.7 GB.
SHA256 = 'c3aaf91b4cf4e69d53d81627ad119eccdc878ff906f68e66063ff10f67faad48'


@dataclasses.dataclass(frozen=True)
class Emnist:
    """The writers of a file: most are clients, in the order of their ids; the others are held out.

    Attributes:
      files: the file with the examples.
      heldout_fraction: share of the writers to hold out, 340 of the 3,400 by default.
      faults: faults of the devices. Examples of held-out writers do not have them.

    Raises:
      ValueError: if a parameter is outside its range; the message names it.
      DataError: if the file has fewer than two writers.
    """

    files: emnist_files.EmnistFile
    heldout_fraction: float = 0.1
    faults: Faults = Faults()

    def __post_init__(self):
        if len(self.files.writers) < 2:
            raise DataError.of_file(
                self.files.path,
                f'has {len(self.files.writers)} writers of 62 classes; at least 2 are needed, one '
                'to train on and one held out',
            )
        _ = self._split  # Refuses a bad fraction.

    @functools.cached_property
    def _split(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return held_out.split(self.files.writers, self.heldout_fraction)

    @functools.cached_property
    def writers(self) -> tuple[str, ...]:
        """Ids of the writers who are clients. A client is an index into them."""
        return tuple(sorted(self._split[0]))

    @property
    def heldout_writers(self) -> tuple[str, ...]:
        """Ids of the held-out writers."""
        return self._split[1]

    @property
    def population(self) -> int:
        """Number of clients."""
        return len(self.writers)

    def examples(self, client: int, limit: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The examples on a client's device, with its faults.

        Args:
          client: index in [0, population).
          limit: return the first `limit` examples only.

        Returns:
          Pixels float32 [n, 28, 28] in [0, 1] and labels int32 [n].

        Raises:
          ValueError: if an argument is outside its range.
          DataError: if the file cannot be read.
        """
        _validate.integer('client', client, minimum=0, maximum=self.population - 1)
        if limit is not None:
            _validate.integer('limit', limit, minimum=1)
        pixels, labels = self.files.read(self.writers[self.faults.source(client)])
        return self.faults.processed(client, pixels[:limit], labels[:limit])

    def heldout_clients(self, num_clients: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """Pixels and labels of each of the first held-out writers, without faults.

        Args:
          num_clients: number of held-out writers; all of them if there are fewer.

        Raises:
          ValueError: if the number is not a positive integer.
          DataError: if the file cannot be read.
        """
        _validate.integer('num_clients', num_clients, minimum=1)
        return [self.files.read(writer) for writer in self.heldout_writers[:num_clients]]

    def heldout_examples(self, num_clients: int) -> tuple[np.ndarray, np.ndarray]:
        """The examples of `heldout_clients` together, as pixels and labels."""
        pixels, labels = zip(*self.heldout_clients(num_clients), strict=True)
        return np.concatenate(pixels), np.concatenate(labels)

    def client_batches(
        self, client: int, batch_size: int, epochs: int = 1, max_batches: int | None = None
    ) -> list[collections.OrderedDict]:
        """A client's examples in the order of the file, as `image_batches.batches`."""
        limit = image_batches.examples_needed(batch_size, max_batches)
        return image_batches.batches(*self.examples(client, limit), batch_size, epochs, max_batches)
