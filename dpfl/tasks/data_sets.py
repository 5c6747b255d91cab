"""Data sets that TFF publishes: their downloads, and the SQLite files that hold their clients.

Downloads are verified, can be resumed, and appear atomically. A file gets its final name only when
it is complete; until then it is called `<name>.partial`. An interrupted download resumes where it
stopped if the server's file is unchanged (same ETag). Before the file is unpacked its digest is
checked: a SHA-256 given by the caller, or else the MD5 stated by the server (`x-goog-hash` of
Google Cloud Storage, or `Content-MD5`). A file with neither is refused.

The files of StackOverflow and federated EMNIST have a table `client_metadata` (client_id,
split_name, ...) and a table `examples` (client_id, split_name, serialized_example_proto) with a
serialised `tf.train.Example` in each row. `tff.simulation.datasets.save_to_sql_client_data` writes
them.
"""

import base64
import binascii
import contextlib
import functools
import hashlib
import http.client
import json
import lzma
import os
import pathlib
import sqlite3
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

from dpfl import _cache, _files, _progress, errors
from dpfl.errors import NOT_SHOWN, ArgumentError, DataError
from dpfl.tasks.config import DataConfig

_BLOCK = 1 << 20
_TIMEOUT = 60  # Seconds without a byte.

_COLUMNS = {
    'client_metadata': {'client_id', 'split_name'},
    'examples': {'client_id', 'split_name', 'serialized_example_proto'},
}
_MAGIC = b'SQLite format 3\0'
_HEADER = 100  # Bytes of the header of a database.
# Errors that sqlite3 raises for damaged files.
_DAMAGE = (sqlite3.Error, OSError, ValueError, TypeError, OverflowError, MemoryError)


def required(config: DataConfig, task: str) -> pathlib.Path:
    """The path of data that cannot be downloaded.

    Raises:
      ArgumentError: if it is not given, or a download is asked for.
    """
    if config.download:
        raise ArgumentError('download', NOT_SHOWN, f'task={task} has no data set to download')
    if not config.data_path:
        raise ArgumentError('data_path', NOT_SHOWN, f'must be given for task={task}')
    return pathlib.Path(config.data_path)


def downloadable(
    config: DataConfig, task: str, url: str, name: str, sha256: str | None = None
) -> pathlib.Path:
    """The path of a data set that TFF publishes, after its download if it is asked for.

    Args:
      config: where the data are.
      task: named in errors.
      url: address that TFF uses.
      name: of the file in the cache directory.
      sha256: of the compressed file, if it is known.

    Raises:
      ArgumentError: if there is neither a path nor a download.
      DataError: if the download fails.
    """
    path = config.data_path
    if not config.download:
        if not path:
            raise ArgumentError(
                'data_path', NOT_SHOWN, f'must be given for task={task}, or download'
            )
        return pathlib.Path(path)
    directory = _cache.directory()
    if not path and directory is None:
        raise ArgumentError(
            'data_path', NOT_SHOWN, 'must say where to download to; there is no cache directory'
        )
    return fetch_lzma(url, path or pathlib.Path(directory or '') / name, sha256)


def refuse(config: DataConfig, task: str) -> None:
    """Raises ArgumentError if a setting says where data are, for a task that makes its own."""
    for name in ('data_path', 'download'):
        if getattr(config, name):
            raise ArgumentError(name, NOT_SHOWN, f'task={task} makes its own data')


def fetch_lzma(url: str, path: str | os.PathLike[str], sha256: str | None = None) -> pathlib.Path:
    """Downloads and unpacks an LZMA or XZ file. Does nothing if the unpacked file exists.

    Progress is shown on standard error.

    Args:
      url: URL of the compressed file.
      path: path of the unpacked file.
      sha256: SHA-256 of the compressed file, in hexadecimal.

    Returns:
      The path of the unpacked file.

    Raises:
      DataError: if the file cannot be downloaded, has the wrong digest, or cannot be written. A
        partial download is kept for the next call unless its digest is wrong.
    """
    path = pathlib.Path(path)
    if path.exists():
        return path
    packed = path.with_name(path.name + '.lzma')
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not packed.exists():
            _download(url, packed, sha256)
        _unpack(packed, path)
    except OSError as error:
        raise DataError(f'{error.filename or path}: {error.strerror or error}') from None
    packed.unlink()
    return path


def _download(url: str, packed: pathlib.Path, sha256: str | None) -> None:
    partial = packed.with_name(packed.name + '.partial')
    try:
        headers = _append(url, partial)
    except urllib.error.HTTPError as error:
        raise DataError(f'{url}: the server says {error.code} {error.reason}') from None
    except (OSError, http.client.HTTPException) as error:
        if isinstance(error, OSError) and error.filename is not None:
            raise  # An error of the disk, not of the network.
        reason = getattr(error, 'reason', None) or getattr(error, 'strerror', None) or error
        shown = ' '.join(str(reason).split()) or type(error).__name__
        received = partial.stat().st_size if partial.exists() else 0
        raise DataError(
            f'{url}: cannot be downloaded ({shown}); {received} bytes are kept, the next attempt '
            'continues after them'
        ) from None
    _verify(url, partial, headers, sha256)
    os.replace(partial, packed)
    with contextlib.suppress(FileNotFoundError):
        _tag_path(partial).unlink()


def _append(url: str, partial: pathlib.Path) -> dict[str, str]:
    """Downloads the rest of the partial file. Returns the response headers, names in lower case.

    Raises:
      OSError, HTTPException: if the connection is lost or ends before the announced length.
    """
    have = partial.stat().st_size if partial.exists() else 0
    try:
        request = urllib.request.Request(url)
    except ValueError as error:
        raise DataError(f'{url}: must be a URL ({error})') from None
    tag: Any = None
    with contextlib.suppress(OSError, ValueError):
        tag = json.loads(_tag_path(partial).read_text())
    # A weak ETag does not allow ranges.
    if have and isinstance(tag, str) and tag.startswith('"'):
        request.add_header('Range', f'bytes={have}-')
        request.add_header('If-Range', tag)
    try:
        response = urllib.request.urlopen(request, timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code != 416:  # Range not satisfiable: the partial file is complete or too long.
            raise
        partial.unlink()
        return _append(url, partial)
    with response:
        headers = {
            name.lower(): ','.join(response.headers.get_all(name)) for name in response.headers
        }
        if response.status != 206:
            have = 0  # The file has changed, or the server does not support ranges.
        total = None if response.length is None else have + response.length
        _tag_path(partial).write_text(json.dumps(headers.get('etag')))
        with (
            open(partial, 'ab' if have else 'wb') as file,
            _progress.bar(
                total=total, initial=have, desc='download', unit='B', unit_scale=True, delay=2
            ) as bar,
        ):
            while block := response.read(_BLOCK):
                file.write(block)
                bar.update(len(block))
            file.flush()
            os.fsync(file.fileno())
            if total is not None and file.tell() != total:
                raise ConnectionError(f'received {file.tell()} of {total} bytes')
    return headers


def _tag_path(partial: pathlib.Path) -> pathlib.Path:
    return partial.with_name(partial.name + '.etag')


def _verify(url: str, partial: pathlib.Path, headers: dict[str, str], sha256: str | None) -> None:
    """Checks the digest of a complete download; deletes the file if the digest is wrong."""
    name, expected = 'sha256', (sha256 or '').lower()
    if not expected:  # The MD5 that the server states, if it does.
        parts = [part.strip() for part in headers.get('x-goog-hash', '').split(',')]
        encoded = [part.removeprefix('md5=') for part in parts if part.startswith('md5=')]
        encoded += [headers['content-md5']] if 'content-md5' in headers else []
        with contextlib.suppress(IndexError, binascii.Error):
            name, expected = 'md5', base64.b64decode(encoded[0], validate=True).hex()
        if len(expected) != 32:
            raise DataError(
                f'{url}: cannot be verified: the server states no MD5 and no SHA-256 was given'
            )
    with open(partial, 'rb') as file:
        digest = hashlib.file_digest(file, lambda: hashlib.new(name, usedforsecurity=False))
    if digest.hexdigest() != expected:
        partial.unlink()
        raise DataError(
            f'{url}: has the {name.upper()} {digest.hexdigest()}, must have {expected}; deleted'
        )


def _unpack(packed: pathlib.Path, path: pathlib.Path) -> None:
    """Unpacks a file. The unpacked file gets its name only when it is complete."""
    partial = path.with_name(path.name + '.partial')
    decompressor = lzma.LZMADecompressor()
    try:
        with (
            open(packed, 'rb') as source,
            open(partial, 'wb') as file,
            _progress.bar(
                total=packed.stat().st_size, desc='unpack', unit='B', unit_scale=True, delay=2
            ) as bar,
        ):
            while not decompressor.eof and (block := source.read(_BLOCK)):
                file.write(decompressor.decompress(block))
                bar.update(len(block))
            if not decompressor.eof or decompressor.unused_data or source.read(1):
                raise lzma.LZMAError('it is truncated, or has data after its end')
            file.flush()
            os.fsync(file.fileno())
    except lzma.LZMAError as error:
        partial.unlink()
        raise DataError(f'{packed}: cannot be unpacked ({error})') from None
    os.replace(partial, path)


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
            reason = errors.shown(str(error).split(' with text ')[0])  # The text may be an id.
            raise self.refused(f'is damaged or not an SQLite file ({reason})') from None

    def examples(self, client: Any, split: str | None) -> Iterator[bytes]:
        """The serialised examples of a client in the order of the file; of all splits for None.

        Raises:
          DataError: if they cannot be read.
        """
        query = 'SELECT client_id, serialized_example_proto FROM examples WHERE '
        of_split, splits = ('', ()) if split is None else (' AND split_name = ?', (split,))
        if self.runs is None:
            condition, parts = 'client_id = ?', [[client]]
        else:
            condition, parts = 'rowid BETWEEN ? AND ?', self.runs.get(client, [])
        for part in parts:
            rows = self.rows(f'{query}{condition}{of_split} ORDER BY rowid', (*part, *splits))
            # By its collation or type, a column may take the ids of two clients for equal.
            yield from (example for owner, example in rows if owner == client)

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
            query = 'SELECT type, sql FROM sqlite_master WHERE name = ? COLLATE NOCASE'
            kinds = self.rows(query, (table,))
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
