"""Cache of optimisers' results on disk: a second call with equal arguments is instant.

The directory is `DPFL_CACHE_DIR` if that is set, else `dpfl` within `XDG_CACHE_HOME` or
`~/.cache`. If `DPFL_CACHE_DIR` is empty, nothing is cached.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from dpfl import _files
from dpfl.mechanisms import mechanism_file
from dpfl.mechanisms.base import Mechanism
from dpfl.participation import Participation

# Part of every key, so that older entries are not found.
_SCHEMA_VERSION = 1


_M = TypeVar('_M', bound=Mechanism)


def cached(
    optimizer: str,
    kind: type[_M],
    key_fields: Mapping[str, Any],
    compute: Callable[[], _M],
    *,
    make: Callable[..., _M] | None = None,
) -> _M:
    """Returns the cached mechanism for these fields, else calls `compute` and caches its result.

    An entry is computed again and replaced if it cannot be read, is not a valid mechanism, or was
    not made for exactly these fields. A directory that cannot be written is not an error.

    Args:
      optimizer: name of the optimiser.
      kind: class of the result.
      key_fields: everything that the result depends on, including the optimiser's version: plain
        numbers, strings, lists and None; see `participation_key` and `array_key`.
      compute: makes the mechanism; only called if it is not cached.
      make: makes the mechanism of the values of an entry, by name; None for `kind`.
    """
    directory = cache_directory()
    if directory is None:
        return compute()
    key = json.dumps(
        {'schema_version': _SCHEMA_VERSION, 'kind': optimizer, **key_fields},
        sort_keys=True,
        allow_nan=False,
    )
    path = directory / f'{optimizer}-{hashlib.sha256(key.encode()).hexdigest()}.npz'
    known = _read(path, kind, make or kind, key)
    if known is not None:
        return known
    mechanism = compute()
    # On a full disk, or in a directory without write permission, the result is still returned.
    with contextlib.suppress(OSError):
        _write(path, key, mechanism)
    return mechanism


def cache_directory() -> pathlib.Path | None:
    """Directory of the cache, or None if nothing is cached."""
    chosen = os.environ.get('DPFL_CACHE_DIR')
    if chosen is not None:
        return pathlib.Path(chosen).expanduser() if chosen else None
    try:
        base_directory = os.environ.get('XDG_CACHE_HOME') or pathlib.Path.home() / '.cache'
    except RuntimeError:  # No home directory.
        return None
    return pathlib.Path(base_directory) / 'dpfl'


def participation_key(participation: Participation) -> list[int]:
    """The schema as plain numbers: rounds, min_separation and reachable participations."""
    return [int(participation.rounds), int(participation.min_separation), participation.count]


def array_key(array: np.ndarray | None) -> str | None:
    """SHA-256 of shape and float64 values of an array; None for None."""
    if array is None:
        return None
    array = np.ascontiguousarray(array, dtype=np.float64)
    digest = hashlib.sha256(repr(array.shape).encode())
    digest.update(array.tobytes())
    return digest.hexdigest()


def _seal(key: str, mechanism: Mechanism) -> bytes:
    """Digests of the arguments an entry was made for and of its parameters."""
    return f'{hashlib.sha256(key.encode()).hexdigest()} {mechanism.digest()}'.encode()


def _read(path: pathlib.Path, kind: type[_M], make: Callable[..., _M], key: str) -> _M | None:
    try:
        with _files.open_regular(path) as file, zipfile.ZipFile(file) as archive:
            seal = archive.comment
        values = mechanism_file.read(path)
        if values.pop('mechanism', None) != kind.name:
            return None
        mechanism = make(**values)
    except Exception:  # A damaged file can raise almost any error, even MemoryError.
        return None
    return mechanism if seal == _seal(key, mechanism) else None


def _write(path: pathlib.Path, key: str, mechanism: Mechanism) -> None:
    """Writes an entry under a temporary name first, so that readers see all of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix='.unfinished-')
    os.close(handle)
    try:
        mechanism_file.write(mechanism.to_dict(), name)
        with zipfile.ZipFile(name, 'a') as archive:
            archive.comment = _seal(key, mechanism)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
