"""Cached mechanisms of optimisers: archives with a seal, see `dpfl._cache`."""

import hashlib
import json
import pathlib
import zipfile
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from dpfl import _cache, _files
from dpfl.mechanisms import mechanism_file
from dpfl.mechanisms.base import Mechanism

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
    """The cached mechanism for these fields, else that of `compute`, which is then cached.

    An entry is computed again and replaced if it is not a valid mechanism, or was not made for
    exactly these fields.

    Args:
      optimizer: name of the optimiser.
      kind: class of the result.
      key_fields: everything that the result depends on, including the optimiser's version: plain
        numbers, strings, lists and None; see `_cache.array_key`.
      compute: makes the mechanism; only called if it is not cached.
      make: makes the mechanism of the values of an entry, by name; None for `kind`.
    """
    key = json.dumps(
        {'schema_version': _SCHEMA_VERSION, 'kind': optimizer, **key_fields},
        sort_keys=True,
        allow_nan=False,
    )

    def read(path: pathlib.Path) -> _M | None:
        with _files.open_regular(path) as file, zipfile.ZipFile(file) as archive:
            seal = archive.comment
        values = mechanism_file.read(path)
        if values.pop('mechanism', None) != kind.name:
            return None
        mechanism = (make or kind)(**values)
        return mechanism if seal == _seal(key, mechanism) else None

    def write(mechanism: _M, path: pathlib.Path) -> None:
        mechanism_file.write(mechanism.to_dict(), path)
        with zipfile.ZipFile(path, 'a') as archive:
            archive.comment = _seal(key, mechanism)

    return _cache.cached(f'{optimizer}-*.npz', key, compute, read=read, write=write)


def _seal(key: str, mechanism: Mechanism) -> bytes:
    """Digests of the arguments an entry was made for and of its parameters."""
    return f'{hashlib.sha256(key.encode()).hexdigest()} {mechanism.digest()}'.encode()
