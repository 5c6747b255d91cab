"""Federated EMNIST: letters and digits by 3,400 writers ([Cohen17]; [Augenstein20], appendix C.1).

There are 62 classes. Images are 28 x 28, paper is 1 and ink is 0. A share of the writers is held
out: none of them is a client, and only their images are looked at, evaluated on, or public.

Reads federated EMNIST in the two file formats that TFF has published.

* SQLite (TFF 0.87): one file with the tables `client_metadata` and `examples`. An example is a
  serialised `tf.train.Example`. The split `all_train` is read.
* HDF5 (earlier): `fed_emnist_train.h5`. The group `examples` has a group for each client with the
  data sets `pixels` and `label`.

The test split has further images of the same writers. It is never read: whatever is measured
without noise has to be measured on images of writers who are no clients.

Files are opened read-only for every read, so reading is safe in any thread.
"""

import abc
import collections
import contextlib
import dataclasses
import functools
import os
import pathlib
import sqlite3
from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np

from dpfl import _files, _validate, errors
from dpfl.errors import DataError
from dpfl.tasks import held_out
from dpfl.tasks.images import image_batches
from dpfl.tasks.images.faults import Faults

_IMAGE = (image_batches.IMAGE_SIZE, image_batches.IMAGE_SIZE)
_SQLITE_MAGIC = b'SQLite format 3\x00'
_HDF5_MAGIC = b'\x89HDF\r\n\x1a\n'
_SPLIT = 'all_train'
# Most examples of a writer, since a damaged file may claim any number. Real writers have hundreds.
_MOST_EXAMPLES = 50_000
# Errors that SQLite, HDF5 and their readers raise for damaged files.
_UNREADABLE = (
    OSError,
    sqlite3.Error,
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    RuntimeError,
    OverflowError,
    MemoryError,
)


class EmnistFiles(abc.ABC):
    """The writers of the training split of a file and their examples.

    Args:
      path: path of the file.

    Raises:
      DataError: if the file cannot be read.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        with self._naming():
            self._writers = self._index()

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
        with self._naming():
            pixels, labels = self._read(writer)
        is_label = (labels >= 0) & (labels < image_batches.NUM_CLASSES)
        labels = labels.astype(np.int32)
        in_range = (pixels >= 0) & (pixels <= 1)
        if pixels.shape != (*labels.shape, *_IMAGE) or not (is_label.all() and in_range.all()):
            raise DataError.of_file(
                self.path, 'has examples that are not images 28 x 28 in 62 classes'
            )
        return pixels, labels

    @abc.abstractmethod
    def _index(self) -> dict[str, int | None]:
        """Sorted ids of the writers, each with its number of examples if the file states it."""

    @abc.abstractmethod
    def _read(self, writer: str) -> tuple[np.ndarray, np.ndarray]:
        """As `read`, without checks of the values."""

    @contextlib.contextmanager
    def _naming(self) -> Iterator[None]:
        """Turns errors of damaged files into a `DataError` that names the file."""
        try:
            yield
        except DataError:
            raise
        except _UNREADABLE as error:
            reason = errors.shown(error)
            raise DataError.of_file(
                self.path, f'cannot be read as federated EMNIST ({reason})'
            ) from None


def open_files(path: str | os.PathLike[str]) -> EmnistFiles:
    """Opens a file of either format.

    Args:
      path: path of the SQLite file, or of the HDF5 file of the training split.

    Raises:
      DataError: if the file cannot be read, has another format, or is truncated.
    """
    path = pathlib.Path(path)
    try:
        with _files.open_regular(path) as file:
            start = file.read(32)
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise DataError.of_file(path, f'cannot be read ({error.strerror})') from None
    if start.startswith(_SQLITE_MAGIC):
        _check_sqlite_size(path, start, size)
        return _Sqlite(path)
    if start.startswith(_HDF5_MAGIC):
        return _Hdf5(path)
    raise DataError.of_file(path, 'is neither an SQLite file nor an HDF5 file')


def _check_sqlite_size(path: pathlib.Path, header: bytes, size: int) -> None:
    """Compares the size of the file with the number of pages in its header.

    SQLite itself reports a missing page only when it reads that page, perhaps in the last round.
    """
    page_size = int.from_bytes(header[16:18], 'big')
    page_size = 65_536 if page_size == 1 else page_size
    pages = int.from_bytes(header[28:32], 'big')
    if size < pages * page_size:
        raise DataError.of_file(path, f'is truncated, has {size} of {pages * page_size} bytes')


class _Sqlite(EmnistFiles):
    @contextlib.contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        with contextlib.closing(
            sqlite3.connect(f'{self.path.resolve().as_uri()}?mode=ro', uri=True)
        ) as connection:
            yield connection

    def _index(self) -> dict[str, int | None]:
        with self._connection() as connection:
            for table in ('client_metadata', 'examples'):
                # A view may be a query that never ends.
                kinds = connection.execute(
                    'SELECT type, sql FROM sqlite_master WHERE name = ?', (table,)
                ).fetchall()
                if any(
                    kind != 'table' or not str(sql).upper().startswith('CREATE TABLE')
                    for kind, sql in kinds
                ):
                    raise ValueError(f'{table} is not an ordinary table')
            return dict(
                connection.execute(
                    'SELECT client_id, num_examples FROM client_metadata WHERE split_name = ? '
                    'ORDER BY client_id',
                    (_SPLIT,),
                )
            )

    def _read(self, writer: str) -> tuple[np.ndarray, np.ndarray]:
        with self._connection() as connection:
            rows = connection.execute(
                'SELECT serialized_example_proto FROM examples '
                'WHERE client_id = ? AND split_name = ? ORDER BY rowid',
                (writer, _SPLIT),
            ).fetchall()
        expected = self._writers[writer]
        if len(rows) != expected:
            raise DataError.of_file(
                self.path,
                f'has {len(rows)} examples of a writer where its index has '
                f'{errors.shown(expected)}',
            )
        return _parse([row[0] for row in rows])


def _parse(serialized: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    import tensorflow as tf

    spec = {
        'pixels': tf.io.FixedLenFeature(_IMAGE, tf.float32),
        'label': tf.io.FixedLenFeature([], tf.int64),
    }
    try:
        parsed = tf.io.parse_example(serialized, spec)
    except tf.errors.OpError as error:
        raise ValueError(error.message) from None
    return parsed['pixels'].numpy(), parsed['label'].numpy()


class _Hdf5(EmnistFiles):
    def _index(self) -> dict[str, int | None]:
        with h5py.File(self.path, 'r') as file:
            return dict.fromkeys(sorted(_inside(file, 'examples', h5py.Group)))

    def _read(self, writer: str) -> tuple[np.ndarray, np.ndarray]:
        with h5py.File(self.path, 'r') as file:
            group = _inside(_inside(file, 'examples', h5py.Group), writer, h5py.Group)
            return (
                _array(group, 'pixels', 'fiu', _IMAGE).astype(np.float32),
                _array(group, 'label', 'iu', ()),
            )


def _inside(group: Any, name: str, kind: type) -> Any:
    """A group or data set in the file itself. Links are refused: they may lead to any file."""
    if not isinstance(group.get(name, getlink=True), h5py.HardLink):
        raise ValueError(f'{errors.shown(name)} is missing or a link')
    found = group[name]
    if not isinstance(found, kind):
        raise ValueError(f'{errors.shown(name)} is not a {kind.__name__}')
    return found


def _array(group: Any, name: str, kinds: str, shape: tuple[int, ...]) -> np.ndarray:
    """A data set [examples, *shape] of numbers, checked before memory is allocated for it."""
    data = _inside(group, name, h5py.Dataset)
    if data.is_virtual or data.external:
        raise ValueError(f'{name} is in another file')
    if (
        data.dtype.kind not in kinds
        or data.shape is None
        or data.shape[1:] != shape
        or not 1 <= data.ndim <= 1 + len(shape)
        or data.shape[0] > _MOST_EXAMPLES
    ):
        raise ValueError(f'{name} is {data.dtype} of shape {data.shape}')
    return data[()]


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

    files: EmnistFiles
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
