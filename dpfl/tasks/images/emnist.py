"""Federated EMNIST: letters and digits by 3,400 writers, 62 classes (document 004, appendix C.1).

Images are 28 x 28, paper 1 and ink 0. Each writer's examples come in two splits: the clients train
on one; the other, of the same writers, serves for evaluation.
"""

import collections
import dataclasses
import functools

import numpy as np

from dpfl import _validate
from dpfl.tasks.images import emnist_files, image_batches, pixel_inversion

URL = 'https://storage.googleapis.com/tff-datasets-public/emnist_all.sqlite.lzma'
# Of the compressed file, 170,507,172 bytes; 4.7 GB without compression.
SHA256 = 'c3aaf91b4cf4e69d53d81627ad119eccdc878ff906f68e66063ff10f67faad48'


@dataclasses.dataclass(frozen=True)
class Emnist:
    """The writers of a file as clients, in the order of their ids.

    Attributes:
      files: where the examples are.
      inverted_share: share of the devices that invert all pixels, as in `SyntheticGlyphs`.
      seed: decides which devices those are.

    Raises:
      ValueError: if a parameter is outside its range; the message names it.
      DataError: if the file cannot be read, or has no writer; in one line.
    """

    files: emnist_files.EmnistFiles
    inverted_share: float = 0.0
    seed: int = 0

    def __post_init__(self):
        _ = self.inversion  # Checks the parameters.
        if not self.writers:
            raise emnist_files.DataError(f'{self.files.path}: has no writer of 62 classes')

    @functools.cached_property
    def writers(self) -> tuple[str, ...]:
        """Ids of the writers in the file; a client is an index of them."""
        return self.files.writers('train')

    @property
    def population(self) -> int:
        """Number of clients."""
        return len(self.writers)

    @property
    def inversion(self) -> pixel_inversion.PixelInversion:
        """The bug of the devices; examples for evaluation do not have it."""
        return pixel_inversion.PixelInversion(self.inverted_share, self.seed)

    def examples(self, client: int, limit: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The examples on a client's device, with its bug if it has one.

        Args:
          client: index in [0, population).
          limit: return the first `limit` of them only.

        Returns:
          Pixels float32 [n, 28, 28] in [0, 1] and labels int32 [n].

        Raises:
          ValueError: if the index is not such an integer, or the limit not a positive one.
          DataError: if the file cannot be read.
        """
        _validate.integer('client', client, minimum=0, maximum=self.population - 1)
        if limit is not None:
            _validate.integer('limit', limit, minimum=1)
        pixels, labels = self.files.read('train', self.writers[client])
        return self.inversion.processed(client, pixels[:limit]), labels[:limit]

    def heldout_examples(self, num_clients: int) -> tuple[np.ndarray, np.ndarray]:
        """The other split of the first writers, without the bug; as `examples`.

        Raises:
          ValueError: if the number is not a positive integer.
          DataError: if the file cannot be read, or has no such split.
        """
        _validate.integer('num_clients', num_clients, minimum=1)
        writers = self.files.writers('test')[:num_clients]
        if not writers:
            raise emnist_files.DataError(f'{self.files.path}: has no test split')
        parts = [self.files.read('test', writer) for writer in writers]
        pixels, labels = zip(*parts, strict=True)
        return np.concatenate(pixels), np.concatenate(labels)

    def client_batches(
        self, client: int, batch_size: int, epochs: int = 1, max_batches: int | None = None
    ) -> list[collections.OrderedDict]:
        """A client's examples in the order of the file, as `image_batches.batches`."""
        limit = image_batches.examples_needed(batch_size, max_batches)
        return image_batches.batches(*self.examples(client, limit), batch_size, epochs, max_batches)
