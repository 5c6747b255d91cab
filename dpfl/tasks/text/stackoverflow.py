"""StackOverflow as TFF keeps it: an SQLite file of serialised examples, read client by client.

The file has a table `client_metadata` (client_id, split_name) and a table `examples` (client_id,
split_name, serialized_example_proto); an example is a `tf.train.Example` whose feature `tokens` is
one sentence, its words separated by spaces. `tff.simulation.datasets.save_to_sql_client_data`
writes such files, `tff.simulation.datasets.stackoverflow` downloads one of 342,477 clients (split
`train`) and 38,758 others (split `heldout`).

Clients of the split `heldout` are held out. A file without it has a share of its clients held out,
those whose keys have the smallest digests: that does not depend on the order of the file. Other
clients are numbered in the order of their keys.
"""

import dataclasses
import functools
import hashlib
import os
import pathlib
import sqlite3
import threading
from collections.abc import Iterator

from google.protobuf import message

from dpfl import _files, errors
from dpfl.errors import DataError
from dpfl.tasks.text.word_clients import WordClients, share_of_heldout

URL = 'https://storage.googleapis.com/tff-datasets-public/stackoverflow.sqlite.lzma'
_COLUMNS = {
    'client_metadata': {'client_id', 'split_name'},
    'examples': {'client_id', 'split_name', 'serialized_example_proto'},
}
_FEATURE = 'tokens'
_MAGIC = b'SQLite format 3\0'


def open_clients(path, heldout_fraction: float) -> tuple[WordClients, WordClients, dict]:
    """Training clients, held-out clients, and what the file has.

    Args:
      path: of the SQLite file.
      heldout_fraction: share of the clients that are held out if the file does not say which.

    Raises:
      ValueError: if the file is not such a file, or not all of it; the message begins with
        `data_path`.
    """
    path = pathlib.Path(path)
    _check_size(path)
    try:
        file = _File(path)
        file.check_tables()
        training, heldout, splits = _split(file, heldout_fraction)
        file.check_example()
        _ = file.runs  # Reads the whole file if there is no index.
    except (sqlite3.Error, DataError) as error:
        raise errors.ArgumentError('data_path', path, f'{_reason(error)}') from None
    description = {
        'format': 'sqlite',
        'clients': {'training': len(training.keys), 'heldout': len(heldout.keys)},
        'splits': splits,
    }
    return training.clients(), heldout.clients(), description


def _check_size(path: pathlib.Path) -> None:
    """Raises ValueError if the file is shorter than its header says, or is of another kind."""
    try:
        with _files.open_regular(path) as file:
            header = file.read(100)
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise errors.ArgumentError(
            'data_path', path, f'cannot be read ({error.strerror})'
        ) from None
    if not header.startswith(_MAGIC) or len(header) < 100:
        raise errors.ArgumentError('data_path', path, 'must be an SQLite file')
    # The SQLite file format, section 1.3: the number of pages counts if the file was last written
    # by a version that keeps it.
    page = int.from_bytes(header[16:18], 'big')
    expected = (65536 if page == 1 else page) * int.from_bytes(header[28:32], 'big')
    if header[24:28] == header[92:96] and size < expected:
        raise errors.ArgumentError(
            'data_path', path, f'is incomplete, it has {size} of {expected} bytes'
        )


def _split(file: '_File', heldout_fraction: float) -> tuple['_Part', '_Part', dict[str, int]]:
    """Parts of the file to train on and to hold out, and the number of clients in each split."""
    members: dict[str, set] = {}
    for client, split in file.execute('SELECT client_id, split_name FROM client_metadata'):
        members.setdefault(split, set()).add(client)
    splits = {str(split): len(clients) for split, clients in members.items()}
    split = 'train' if 'train' in members else None
    clients = members['train'] if split else set().union(*members.values())
    if members.get('heldout') and split:
        others = members['heldout'] - clients
        if clients and others:
            return (
                _Part(file, _in_order(clients), split),
                _Part(file, _in_order(others), 'heldout'),
                splits,
            )
    by_digest = sorted(clients, key=lambda key: (_digest(key), str(key)))
    try:
        count = share_of_heldout(len(by_digest), heldout_fraction)
    except ValueError as error:
        if str(error).startswith('heldout_fraction'):
            raise
        raise DataError(f'has {len(by_digest)} clients to train on, must have at least 2') from None
    return (
        _Part(file, _in_order(by_digest[count:]), split),
        _Part(file, _in_order(by_digest[:count]), split),
        splits,
    )


def _in_order(keys) -> tuple:
    return tuple(sorted(keys, key=str))


def _digest(key) -> bytes:
    return hashlib.sha256(str(key).encode('utf-8', 'surrogatepass')).digest()


class _File:
    """The database, open for reading in as many threads as ask."""

    def __init__(self, path: pathlib.Path):
        self.path = path
        self._uri = path.resolve().as_uri() + '?mode=ro'
        self._local = threading.local()

    def execute(self, query: str, parameters: tuple = ()) -> sqlite3.Cursor:
        if not hasattr(self._local, 'connection'):
            self._local.connection = sqlite3.connect(self._uri, uri=True)
        return self._local.connection.execute(query, parameters)

    def check_tables(self) -> None:
        """Raises DataError if a table or a column is missing."""
        for table, columns in _COLUMNS.items():
            # A view may be a query that never ends.
            kinds = self.execute('SELECT type, sql FROM sqlite_master WHERE name = ?', (table,))
            if any(
                kind != 'table' or not str(sql).upper().startswith('CREATE TABLE')
                for kind, sql in kinds.fetchall()
            ):
                raise DataError(f'has {table}, which is not a table of rows')
            there = {row[1] for row in self.execute(f'PRAGMA table_info({table})')}
            if not there:
                raise DataError(f'has no table {table}')
            if missing := columns - there:
                raise DataError(f'table {table} has no column {sorted(missing)[0]}')

    def check_example(self) -> None:
        """Raises DataError if the first example is not one of sentences."""
        row = self.execute('SELECT serialized_example_proto FROM examples LIMIT 1').fetchone()
        if row is None:
            raise DataError('has no examples')
        _sentence(row[0])

    @functools.cached_property
    def runs(self) -> dict | None:
        """Where each client's rows are if the database has no index: runs of row ids by client.

        Without one, a query for a client would read the whole file, every time.
        """
        for index in self.execute('PRAGMA index_list(examples)').fetchall():
            name = str(index[1]).replace('"', '""')
            columns = [row[2] for row in self.execute(f'PRAGMA index_info("{name}")')]
            if columns[:1] == ['client_id'] or columns[:2] == ['split_name', 'client_id']:
                return None
        runs: dict = {}
        previous = object()  # A client's id may be NULL.
        for row, client in self.execute('SELECT rowid, client_id FROM examples ORDER BY rowid'):
            if client == previous:
                runs[client][-1][1] = row
            else:
                runs.setdefault(client, []).append([row, row])
            previous = client
        return runs


@dataclasses.dataclass(frozen=True)
class _Part:
    """Clients of a file by their keys; of one split, or of all if that is None."""

    file: _File
    keys: tuple
    split: str | None

    def clients(self) -> WordClients:
        return WordClients(len(self.keys), self._sentences)

    def _sentences(self, client: int) -> Iterator[list[str]]:
        try:
            for blob in self._blobs(self.keys[client]):
                yield _sentence(blob)
        except sqlite3.Error as error:
            raise DataError(f'{self.file.path}: {_reason(error)}') from None
        except DataError as error:
            raise DataError(f'{self.file.path}: {error}') from None

    def _blobs(self, key) -> Iterator[bytes]:
        query = 'SELECT serialized_example_proto FROM examples WHERE '
        split, of_split = ('', ()) if self.split is None else (' AND split_name = ?', (self.split,))
        if self.file.runs is None:
            order = ' ORDER BY rowid'
            rows = self.file.execute(f'{query}client_id = ?{split}{order}', (key, *of_split))
            yield from (blob for (blob,) in rows)
            return
        for first, last in self.file.runs.get(key, ()):
            rows = self.file.execute(
                f'{query}rowid BETWEEN ? AND ?{split} ORDER BY rowid', (first, last, *of_split)
            )
            yield from (blob for (blob,) in rows)


@functools.cache
def _example_class():
    import tensorflow as tf

    return tf.train.Example


def _sentence(blob: bytes) -> list[str]:
    """The words of a serialised example; raises DataError if it has none of the kind."""
    try:
        features = _example_class().FromString(blob).features.feature
    except (message.DecodeError, TypeError):
        raise DataError('has an example that is not a tf.train.Example') from None
    if _FEATURE not in features:
        raise DataError(f'has an example without the feature {_FEATURE}')
    return b' '.join(features[_FEATURE].bytes_list.value).decode('utf-8', 'replace').split()


def _reason(error: Exception) -> str:
    if isinstance(error, sqlite3.Error):
        return f'is damaged or not an SQLite file ({errors.shown(error)})'
    return errors.shown(error)
