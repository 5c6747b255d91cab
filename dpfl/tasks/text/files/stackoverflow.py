"""Reads TFF's StackOverflow data: an SQLite file of serialised examples, read client by client.

The file has a table `client_metadata` (client_id, split_name) and a table `examples` (client_id,
split_name, serialized_example_proto). An example is a `tf.train.Example` whose feature `tokens` is
one sentence, its words separated by spaces. `tff.simulation.datasets.save_to_sql_client_data`
writes such files. The file that `tff.simulation.datasets.stackoverflow` downloads has 342,477
clients in the split `train`, 38,758 others in the split `heldout`, and 204,088 in the split `test`.

Clients of the split `heldout` are held out. If the file has no such split, a share of its clients
is held out: those whose keys have the smallest digests, whatever the order of the file. Test
clients are those of the split `test` that are in neither of the splits `train` and `heldout`: what
is measured on them has no noise, so they must not be training clients. Clients are numbered in the
order of their keys.
"""

import dataclasses
import functools
import os
import pathlib
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from google.protobuf import message

from dpfl import _files, errors
from dpfl.errors import DataError
from dpfl.tasks import held_out
from dpfl.tasks.text.word_clients import WordClients

URL = 'https://storage.googleapis.com/tff-datasets-public/stackoverflow.sqlite.lzma'
_COLUMNS = {
    'client_metadata': {'client_id', 'split_name'},
    'examples': {'client_id', 'split_name', 'serialized_example_proto'},
}
_FEATURE = 'tokens'
_MAGIC = b'SQLite format 3\0'


def open_clients(
    path: str | os.PathLike[str], heldout_fraction: float
) -> tuple[WordClients, WordClients, WordClients, dict[str, Any]]:
    """Opens the data.

    Args:
      path: path of the SQLite file.
      heldout_fraction: share of the clients to hold out if the file has no split `heldout`.

    Returns:
      Training clients, held-out clients, test clients (none if the file has no such split), and a
      description of the file as JSON values.

    Raises:
      ValueError: if the file has another format or is truncated (argument `data_path`), or the
        fraction is outside (0, 1).
    """
    path = pathlib.Path(path)
    _check_size(path)
    try:
        file = _File(path)
        file.check_tables()
        training, heldout, test, splits = _split(file, heldout_fraction)
        file.check_example()
        _ = file.runs  # Reads the whole file if it has no index.
    except (sqlite3.Error, DataError) as error:
        raise errors.ArgumentError('data_path', path, f'{_reason(error)}') from None
    description = {
        'format': 'sqlite',
        'clients': {'training': len(training.keys), 'heldout': len(heldout.keys)},
        'splits': splits,
    }
    return training.clients(), heldout.clients(), test.clients(), description


def _check_size(path: pathlib.Path) -> None:
    """Raises ValueError if the file is not SQLite, or shorter than its header says."""
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
    # SQLite file format, section 1.3: the page count in the header is valid only if the file was
    # last written by a version of SQLite that maintains it.
    page = int.from_bytes(header[16:18], 'big')
    expected = (65536 if page == 1 else page) * int.from_bytes(header[28:32], 'big')
    if header[24:28] == header[92:96] and size < expected:
        raise errors.ArgumentError(
            'data_path', path, f'is truncated, it has {size} of {expected} bytes'
        )


def _split(
    file: '_File', heldout_fraction: float
) -> tuple['_Part', '_Part', '_Part', dict[str, int]]:
    """Training, held-out and test parts of the file, and the number of clients of each split."""
    members: dict[str, set] = {}
    for client, split in file.execute('SELECT client_id, split_name FROM client_metadata'):
        members.setdefault(split, set()).add(client)
    splits = {str(split): len(clients) for split, clients in members.items()}
    split = 'train' if 'train' in members else None
    clients = members['train'] if split else set().union(*members.values())
    tested = members.get('test', set()) - clients - members.get('heldout', set())
    test = _Part(file, _in_order(tested), 'test')
    if members.get('heldout') and split:
        others = members['heldout'] - clients
        if clients and others:
            return (
                _Part(file, _in_order(clients), split),
                _Part(file, _in_order(others), 'heldout'),
                test,
                splits,
            )
    try:
        trained, held = held_out.split(clients, heldout_fraction)
    except errors.ArgumentError as error:
        if error.name != 'num_clients':
            raise
        raise DataError(f'has {len(clients)} clients to train on, must have at least 2') from None
    return _Part(file, _in_order(trained), split), _Part(file, _in_order(held), split), test, splits


def _in_order(keys: Iterable[Any]) -> tuple:
    return tuple(sorted(keys, key=str))


class _File:
    """The database, read-only, with a connection for each thread."""

    def __init__(self, path: pathlib.Path):
        self.path = path
        self._uri = path.resolve().as_uri() + '?mode=ro'
        self._local = threading.local()

    def __getstate__(self) -> dict[str, Any]:
        """Without the connections: another process makes its own."""
        return {name: value for name, value in vars(self).items() if name != '_local'}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _local=threading.local())

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
                raise DataError(f'has {table}, which is not an ordinary table')
            available = {row[1] for row in self.execute(f'PRAGMA table_info({table})')}
            if not available:
                raise DataError(f'has no table {table}')
            if missing := columns - available:
                raise DataError(f'table {table} has no column {sorted(missing)[0]}')

    def check_example(self) -> None:
        """Raises DataError unless the first example is a sentence."""
        row = self.execute('SELECT serialized_example_proto FROM examples LIMIT 1').fetchone()
        if row is None:
            raise DataError('has no examples')
        _sentence(row[0])

    @functools.cached_property
    def runs(self) -> dict | None:
        """Ranges of row ids by client, or None if the database has an index by client.

        Without an index every query for a client would read the whole file.
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
    """Clients of a file by key, with the examples of one split, or of all splits if it is None."""

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

    def _blobs(self, key: Any) -> Iterator[bytes]:
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
def _example_class() -> Any:
    import tensorflow as tf

    return tf.train.Example


def _sentence(blob: bytes) -> list[str]:
    """The words of a serialised example. Raises DataError if it is not such an example."""
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
