"""Cache of long computations on disk: a second call with equal arguments is instant.

The directory is `DPFL_CACHE_DIR` if that is set, else `dpfl` within `XDG_CACHE_HOME` or
`~/.cache`. If `DPFL_CACHE_DIR` is empty, nothing is cached.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import tempfile
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from dpfl import _files

_T = TypeVar('_T')


def directory() -> pathlib.Path | None:
    """Directory of the cache, or None if nothing is cached."""
    chosen = os.environ.get('DPFL_CACHE_DIR')
    try:
        if chosen is not None:
            return pathlib.Path(chosen).expanduser() if chosen else None
        base_directory = os.environ.get('XDG_CACHE_HOME') or pathlib.Path.home() / '.cache'
    except RuntimeError:  # No home directory.
        return None
    return pathlib.Path(base_directory) / 'dpfl'


def cached(
    name: str,
    key: str,
    compute: Callable[[], _T],
    *,
    read: Callable[[pathlib.Path], _T | None],
    write: Callable[[_T, pathlib.Path], None],
) -> _T:
    """The cached result for a key, else that of `compute`, which is then cached.

    An entry is computed again and replaced if it cannot be read. A directory that cannot be written
    is not an error.

    Args:
      name: name of the file, in which `*` stands for the digest of the key.
      key: everything that the result depends on, the version of its computation included.
      compute: computes the result; only called if it is not cached.
      read: reads an entry; None if it was not made for this key.
      write: writes an entry. It gets a temporary path: readers see all of an entry or nothing.
    """
    where = directory()
    if where is None:
        return compute()
    path = where / name.replace('*', hashlib.sha256(key.encode()).hexdigest())
    with contextlib.suppress(Exception):  # A damaged file can raise any error, even MemoryError.
        known = read(path)
        if known is not None:
            return known
    result = compute()
    # On a full disk, or in a directory without write permission, the result is still returned.
    with contextlib.suppress(OSError):
        _replace(path, lambda unfinished: write(result, unfinished))
    return result


def cached_json(
    name: str,
    key: str,
    compute: Callable[[], _T],
    *,
    from_values: Callable[[Any], _T],
    to_values: Callable[[_T], Any],
) -> _T:
    """As `cached`, for results that are plain values. A digest of key and values seals an entry."""

    def sealed(text: str) -> str:
        seal = hashlib.sha256(f'{key} {text}'.encode()).hexdigest()
        return f'{seal}\n{text}'

    def read(path: pathlib.Path) -> _T | None:
        content = _files.read_text(path)
        text = content.partition('\n')[2]
        return from_values(json.loads(text)) if content == sealed(text) else None

    def write(result: _T, path: pathlib.Path) -> None:
        path.write_text(sealed(json.dumps(to_values(result))), encoding='utf-8')

    return cached(f'{name}-*.json', key, compute, read=read, write=write)


def array_key(array: np.ndarray | None) -> str | None:
    """SHA-256 of shape and float64 values of an array; None for None."""
    if array is None:
        return None
    array = np.ascontiguousarray(array, dtype=np.float64)
    digest = hashlib.sha256(repr(array.shape).encode())
    digest.update(array.tobytes())
    return digest.hexdigest()


def _replace(path: pathlib.Path, write: Callable[[pathlib.Path], None]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, unfinished = tempfile.mkstemp(dir=path.parent, prefix='.unfinished-')
    os.close(handle)
    try:
        write(pathlib.Path(unfinished))
        os.replace(unfinished, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(unfinished)
        raise
