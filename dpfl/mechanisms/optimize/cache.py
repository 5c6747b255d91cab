"""Results of optimisers, kept on disk by content: a second call with equal arguments is instant.

The directory is `DPFL_CACHE_DIR` if that is set (empty: nothing is kept), else `dpfl` within
`XDG_CACHE_HOME` or `~/.cache`.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import tempfile
import zipfile
from collections.abc import Callable, Mapping

import numpy as np

from dpfl import _files
from dpfl.mechanisms import base, serialization
from dpfl.participation import Participation

# Of the entries: part of every key, so that older entries are not found.
_SCHEMA_VERSION = 1


def cached(kind: str, key_fields: Mapping, compute: Callable[[], base.Mechanism]) -> base.Mechanism:
    """The mechanism that was kept for these fields, else `compute()`, which is then kept.

    An entry that cannot be read, is not a valid mechanism, or was not made for exactly these
    fields, is computed again and replaced. A directory that cannot be written is no error.

    Args:
      kind: name of the optimiser.
      key_fields: everything that the result depends on, the optimiser's version included: plain
        numbers, strings, lists and None; see `participation_key` and `array_key`.
      compute: makes the mechanism; not called if it was kept.
    """
    directory = cache_directory()
    if directory is None:
        return compute()
    key = json.dumps(
        {'schema_version': _SCHEMA_VERSION, 'kind': kind, **key_fields},
        sort_keys=True,
        allow_nan=False,
    )
    path = directory / f'{kind}-{hashlib.sha256(key.encode()).hexdigest()}.npz'
    kept = _read(path, key)
    if kept is not None:
        return kept
    mechanism = compute()
    # A full disk or a directory of someone else: the result is worth more than the entry.
    with contextlib.suppress(OSError):
        _write(path, key, mechanism)
    return mechanism


def cache_directory() -> pathlib.Path | None:
    """Where results are kept, or None if they are not."""
    chosen = os.environ.get('DPFL_CACHE_DIR')
    if chosen is not None:
        return pathlib.Path(chosen).expanduser() if chosen else None
    try:
        base_directory = os.environ.get('XDG_CACHE_HOME') or pathlib.Path.home() / '.cache'
    except RuntimeError:  # No home directory.
        return None
    return pathlib.Path(base_directory) / 'dpfl'


def participation_key(participation: Participation) -> list[int]:
    """The schema as plain numbers: rounds, min_separation, and the count that can be reached."""
    return [int(participation.rounds), int(participation.min_separation), participation.count]


def array_key(array: np.ndarray | None) -> str | None:
    """SHA-256 of shape and float64 values of an array; None for None."""
    if array is None:
        return None
    array = np.ascontiguousarray(array, dtype=np.float64)
    digest = hashlib.sha256(repr(array.shape).encode())
    digest.update(array.tobytes())
    return digest.hexdigest()


def _seal(key: str, mechanism: base.Mechanism) -> bytes:
    """What an entry says about itself: the arguments it was made for, and its parameters."""
    return f'{hashlib.sha256(key.encode()).hexdigest()} {mechanism.digest()}'.encode()


def _read(path: pathlib.Path, key: str) -> base.Mechanism | None:
    try:
        with _files.open_regular(path) as file, zipfile.ZipFile(file) as archive:
            seal = archive.comment
        mechanism = serialization.load(path)
    except Exception:  # Damage can surface as almost any error, down to one about memory.
        return None
    return mechanism if seal == _seal(key, mechanism) else None


def _write(path: pathlib.Path, key: str, mechanism: base.Mechanism) -> None:
    """Writes an entry under another name first: readers see all of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix='.unfinished-')
    os.close(handle)
    try:
        serialization.save(mechanism, name)
        with zipfile.ZipFile(name, 'a') as archive:
            archive.comment = _seal(key, mechanism)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
