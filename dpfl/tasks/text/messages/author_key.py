"""The key of the names of authors: without it nobody finds the address that a name stands for.

The key is 32 bytes from the operating system. It is kept in the cache directory, so that a run that
is resumed, and another data set, have the same names for the same authors.
"""

import contextlib
import hashlib
import os
import pathlib
import tempfile

from dpfl import _files, _storage, errors
from dpfl.mechanisms.optimize import cache

_NAME = 'authors.key'
_BYTES = 32


def load() -> bytes:
    """The kept key; makes it if there is none.

    Raises:
      ArgumentError: if there is no cache directory; it names `data_path`.
      StorageError: if the key cannot be read or written.
    """
    path = directory() / _NAME
    with _storage.naming(path):
        with contextlib.suppress(FileNotFoundError):
            return _read(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, partial = tempfile.mkstemp(dir=path.parent, prefix='.unfinished-')  # Mode 0600.
        try:
            with os.fdopen(handle, 'wb') as file:
                file.write(os.urandom(_BYTES))
                file.flush()
                os.fsync(file.fileno())
            # If another process has made a key meanwhile, that one stays.
            with contextlib.suppress(FileExistsError):
                os.link(partial, path)
        finally:
            os.unlink(partial)
        return _read(path)


def directory() -> pathlib.Path:
    """The cache directory.

    Raises:
      ArgumentError: if there is none.
    """
    found = cache.cache_directory()
    if found is None:
        raise errors.ArgumentError(
            'data_path',
            errors.NOT_SHOWN,
            'needs a cache directory for the key of the names of authors; DPFL_CACHE_DIR is empty',
        )
    return found


def client(key: bytes, author: str) -> str:
    """The name of an author as a client: 128 bits of a keyed BLAKE2b (RFC 7693)."""
    data = author.encode('utf-8', 'surrogatepass')
    return hashlib.blake2b(data, key=key, digest_size=16, person=b'author').hexdigest()


def _read(path: pathlib.Path) -> bytes:
    with _files.open_regular(path) as file:
        key = file.read(_BYTES + 1)
    if len(key) != _BYTES:
        raise errors.StorageError(f'{path}: must have {_BYTES} bytes; remove it for a new key')
    return key
