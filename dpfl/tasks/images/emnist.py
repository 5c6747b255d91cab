"""Federated EMNIST: letters and digits by 3,400 writers ([Cohen17]; [Augenstein20], appendix C.1).

There are 62 classes. Images are 28 x 28, paper is 1 and ink is 0. Each writer's examples are split
in two: clients train on one split; the other, of the same writers, is for evaluation.
"""

import collections
import dataclasses
import functools

import numpy as np

from dpfl import _validate
from dpfl.errors import DataError
from dpfl.tasks.images import emnist_files, image_batches
from dpfl.tasks.images.faults import Faults

URL = 'https://storage.googleapis.com/tff-datasets-public/emnist_all.sqlite.lzma'
# SHA-256 of the compressed file of 170,507,172 bytes. The unpacked file has 4.7 GB.
SHA256 = 'c3aaf91b4cf4e69d53d81627ad119eccdc878ff906f68e66063ff10f67faad48'


@dataclasses.dataclass(frozen=True)
class Emnist:
    """The writers of a file as clients, in the order of their ids.

    Attributes:
      files: the files with the examples.
      faults: faults of the devices. Examples for evaluation do not have them.

    Raises:
      ValueError: if a parameter is outside its range; the message names it.
      DataError: if the file cannot be read, or has no writers.
    """

    files: emnist_files.EmnistFiles
    faults: Faults = Faults()

    def __post_init__(self):
        if not self.writers:
            raise DataError(f'{self.files.path}: has no writer of 62 classes')

    @functools.cached_property
    def writers(self) -> tuple[str, ...]:
        """Ids of the writers in the training split. A client is an index into them."""
        return self.files.writers('train')

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
        pixels, labels = self.files.read('train', self.writers[self.faults.source(client)])
        return self.faults.processed(client, pixels[:limit], labels[:limit])

    def heldout_clients(self, num_clients: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """Test examples of the first writers, without faults, as pixels and labels of each.

        Raises:
          ValueError: if the number is not a positive integer.
          DataError: if the file cannot be read, or has no such split.
        """
        _validate.integer('num_clients', num_clients, minimum=1)
        writers = self.files.writers('test')[:num_clients]
        if not writers:
            raise DataError(f'{self.files.path}: has no test split')
        return [self.files.read('test', writer) for writer in writers]

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
