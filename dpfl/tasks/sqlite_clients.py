"""Reads clients from SQLite files as TFF publishes them: StackOverflow and federated EMNIST.

Such a file has a table `client_metadata` (client_id, split_name, ...) and a table `examples`
(client_id, split_name, serialized_example_proto) with a serialised `tf.train.Example` in each row.
`tff.simulation.datasets.save_to_sql_client_data` writes them.
"""

import functools
import os
import pathlib
import sqlite3
import threading
from collections.abc import Iterator
from typing import Any

from dpfl import _files, errors
from dpfl.errors import DataError

_COLUMNS = {
    'client_metadata': {'client_id', 'split_name'},
    'examples': {'client_id', 'split_name', 'serialized_example_proto'},
}
_MAGIC = b'SQLite format 3\0'
_HEADER = 100  # Bytes of the header of a database.
# Errors that sqlite3 raises for damaged files.
_DAMAGE = (sqlite3.Error, OSError, ValueError, TypeError, OverflowError, MemoryError)


class ClientFile:
    """A database of clients, opened read-only, with a connection for each thread.

    Args:
      path: path of the file.

    Raises:
      DataError: if the file cannot be read, is no SQLite file, is shorter than its header says, or
        lacks a table or a column.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = pathlib.Path(path)
        self._check_size()
        self._uri = f'{self.path.resolve().as_uri()}?mode=ro'
        self._local = threading.local()
        self._check_tables()

    def __getstate__(self) -> dict[str, Any]:
        """Without the connections: another process makes its own."""
        return {name: value for name, value in vars(self).items() if name != '_local'}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _local=threading.local())

    def refused(self, reason: str) -> DataError:
        """The error that the file cannot be used, for this reason."""
        return DataError.of_file(self.path, reason)

    def rows(self, query: str, parameters: tuple = ()) -> Iterator[tuple]:
        """The rows of a query.

        Raises:
          DataError: if SQLite cannot read them.
        """
        try:
            if not hasattr(self._local, 'connection'):
                self._local.connection = sqlite3.connect(self._uri, uri=True)
            yield from self._local.connection.execute(query, parameters)
        except _DAMAGE as error:
            raise self.refused(
                f'is damaged or not an SQLite file ({errors.shown(error)})'
            ) from None

    def examples(self, client: Any, split: str | None) -> Iterator[bytes]:
        """The serialised examples of a client in the order of the file; of all splits for None.

        Raises:
          DataError: if they cannot be read.
        """
        query = 'SELECT serialized_example_proto FROM examples WHERE '
        of_split, splits = ('', ()) if split is None else (' AND split_name = ?', (split,))
        if self.runs is None:
            condition, parts = 'client_id = ?', [[client]]
        else:
            condition, parts = 'rowid BETWEEN ? AND ?', self.runs.get(client, [])
        for part in parts:
            rows = self.rows(f'{query}{condition}{of_split} ORDER BY rowid', (*part, *splits))
            yield from (example for (example,) in rows)

    @functools.cached_property
    def runs(self) -> dict[Any, list[list[int]]] | None:
        """Ranges of row ids by client, or None if the database has an index by client.

        Without an index every query for a client would read the whole file.
        """
        for index in [*self.rows('PRAGMA index_list(examples)')]:
            name = str(index[1]).replace('"', '""')
            columns = [row[2] for row in self.rows(f'PRAGMA index_info("{name}")')]
            if columns[:1] == ['client_id'] or columns[:2] == ['split_name', 'client_id']:
                return None
        runs: dict[Any, list[list[int]]] = {}
        previous: Any = object()  # A client's id may be NULL.
        for row, client in self.rows('SELECT rowid, client_id FROM examples ORDER BY rowid'):
            if client == previous:
                runs[client][-1][1] = row
            else:
                runs.setdefault(client, []).append([row, row])
            previous = client
        return runs

    def _check_size(self) -> None:
        """Compares the size of the file with the number of pages in its header.

        SQLite itself reports a missing page only when it reads that page, perhaps in the last round
        of a run.
        """
        try:
            with _files.open_regular(self.path) as file:
                header = file.read(_HEADER)
                size = os.fstat(file.fileno()).st_size
        except OSError as error:
            raise self.refused(f'cannot be read ({error.strerror})') from None
        if not header.startswith(_MAGIC) or len(header) < _HEADER:
            raise self.refused('must be an SQLite file')
        # SQLite file format, section 1.3: the page count in the header is valid only if the file
        # was last written by a version of SQLite that maintains it.
        page = int.from_bytes(header[16:18], 'big')
        expected = (65536 if page == 1 else page) * int.from_bytes(header[28:32], 'big')
        if header[24:28] == header[92:96] and size < expected:
            raise self.refused(f'is truncated, it has {size} of {expected} bytes')

    def _check_tables(self) -> None:
        for table, columns in _COLUMNS.items():
            # A view may be a query that never ends.
            kinds = self.rows('SELECT type, sql FROM sqlite_master WHERE name = ?', (table,))
            if any(
                kind != 'table' or not str(sql).upper().startswith('CREATE TABLE')
                for kind, sql in kinds
            ):
                raise self.refused(f'has {table}, which is not an ordinary table')
            available = {row[1] for row in self.rows(f'PRAGMA table_info({table})')}
            if not available:
                raise self.refused(f'has no table {table}')
            if missing := columns - available:
                raise self.refused(f'table {table} has no column {sorted(missing)[0]}')
