"""Federated EMNIST: letters and digits by 3,400 writers ([Cohen17]; [Augenstein20], appendix C.1).

There are 62 classes. Images are 28 x 28, paper is 1 and ink is 0. A share of the writers is held
out: none of them is a client, and only their images are looked at, evaluated on, or public.

The data are read from the SQLite file that TFF 0.87 publishes, from its split `all_train`. The test
split has further images of the same writers. It is never read: whatever is measured without noise
has to be measured on images of writers who are no clients.
"""

import dataclasses
import functools
import os

import numpy as np

from dpfl import _validate, errors
from dpfl.tasks import federated_task
from dpfl.tasks.data_sets import ClientFile
from dpfl.tasks.images import image_clients
from dpfl.tasks.images.image_clients import Faults

URL = 'https://storage.googleapis.com/tff-datasets-public/emnist_all.sqlite.lzma'
# SHA-256 of the compressed file of 170,507,172 bytes. The unpacked file has 4.7 GB.
SHA256 = 'c3aaf91b4cf4e69d53d81627ad119eccdc878ff906f68e66063ff10f67faad48'
_IMAGE = (image_clients.IMAGE_SIZE, image_clients.IMAGE_SIZE)
_SPLIT = 'all_train'


class EmnistFile(ClientFile):
    """The writers of the training split of a file and their examples.

    Args:
      path: path of the file.

    Raises:
      DataError: if the file cannot be read, has another format, or is truncated.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path)
        query = (
            'SELECT client_id, num_examples FROM client_metadata WHERE split_name = ? '
            'ORDER BY client_id'
        )
        self._writers = dict(self.rows(query, (_SPLIT,)))

    @property
    def writers(self) -> tuple[str, ...]:
        """Sorted ids of the writers."""
        return tuple(self._writers)

    def read(self, writer: str) -> tuple[np.ndarray, np.ndarray]:
        """The examples of a writer.

        Returns:
          Pixels float32 [n, 28, 28] in [0, 1], labels int32 [n].

        Raises:
          DataError: if they cannot be read, or have other shapes or values.
        """
        rows, expected = [*self.examples(writer, _SPLIT)], self._writers[writer]
        if len(rows) != expected:
            raise self.refused(
                f'has {len(rows)} examples of a writer where its index has {errors.shown(expected)}'
            )
        import tensorflow as tf

        spec = {
            'pixels': tf.io.FixedLenFeature(_IMAGE, tf.float32),
            'label': tf.io.FixedLenFeature([], tf.int64),
        }
        try:
            parsed = tf.io.parse_example(tf.constant(rows, tf.string), spec)
        except (tf.errors.OpError, ValueError, TypeError) as error:
            reason = errors.shown(getattr(error, 'message', error))
            raise self.refused(f'cannot be read as federated EMNIST ({reason})') from None
        pixels, labels = parsed['pixels'].numpy(), parsed['label'].numpy()
        is_label = (labels >= 0) & (labels < image_clients.NUM_CLASSES)
        labels = labels.astype(np.int32)
        in_range = (pixels >= 0) & (pixels <= 1)
        if pixels.shape != (*labels.shape, *_IMAGE) or not (is_label.all() and in_range.all()):
            raise self.refused('has examples that are not images 28 x 28 in 62 classes')
        return pixels, labels


@dataclasses.dataclass(frozen=True)
class Emnist(image_clients.ImageClients):
    """The writers of a file: most are clients, in the order of their ids; the others are held out.

    Attributes:
      files: the file with the examples.
      heldout_fraction: share of the writers to hold out, 340 of the 3,400 by default.
      faults: faults of the devices. Examples of held-out writers do not have them.

    Raises:
      ValueError: if a parameter is outside its range; the message names it.
      DataError: if the file has fewer than two writers.
    """

    files: EmnistFile
    heldout_fraction: float = 0.1
    faults: Faults = Faults()

    def __post_init__(self):
        if len(self.files.writers) < 2:
            raise self.files.refused(
                f'has {len(self.files.writers)} writers of 62 classes; at least 2 are needed, one '
                'to train on and one held out'
            )
        _ = self._split  # Refuses a bad fraction.

    @functools.cached_property
    def _split(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return federated_task.hold_out(self.files.writers, self.heldout_fraction)

    @functools.cached_property
    def writers(self) -> tuple[str, ...]:
        """Ids of the writers who are clients. A client is an index into them."""
        return tuple(sorted(self._split[0], key=str))

    @property
    def heldout_writers(self) -> tuple[str, ...]:
        """Ids of the held-out writers."""
        return self._split[1]

    @property
    def population(self) -> int:
        """Number of clients."""
        return len(self.writers)

    def examples(self, client: int, limit: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """As in the base class; a client is an index in [0, population)."""
        _validate.integer('client', client, minimum=0, maximum=self.population - 1)
        if limit is not None:
            _validate.integer('limit', limit, minimum=1)
        pixels, labels = self.files.read(self.writers[self.faults.source(client)])
        return self.faults.processed(client, pixels[:limit], labels[:limit])

    def heldout_clients(self, num_clients: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """As in the base class."""
        _validate.integer('num_clients', num_clients, minimum=1)
        return [self.files.read(writer) for writer in self.heldout_writers[:num_clients]]
