"""Files of mechanisms: `.npz` archives of plain arrays, read without pickle, and where they are.

This file knows archives and dictionaries only; `registry` makes mechanisms of them.
"""

import os
import pathlib
from typing import Any, BinaryIO

from dpfl import _npz, errors

FOLDER = pathlib.Path(__file__).parents[1] / 'strategies'
"""Where the strategies that are installed with the package are."""
_SCHEMA_VERSION = 1
# A file may unpack to 64 times its size plus this number of bytes; `write` does not compress.
_EXTRA_BYTES = 1 << 24


def write(values: dict[str, Any], file: str | os.PathLike | BinaryIO) -> None:
    """Writes the dictionary of a mechanism, one array per parameter.

    Args:
      values: from `Mechanism.to_dict`; an inner dictionary is written as `outer/inner`.
      file: path, used as it is, or open binary file.
    """
    _npz.save(file, {'schema_version': _SCHEMA_VERSION, **flat(values)})


def read(path: str | os.PathLike) -> dict[str, Any]:
    """Reads the dictionary that `write` wrote; lists are arrays.

    Raises:
      ValueError: if the file cannot be read, or has another schema version.
    """
    try:
        # Arrays are not converted to lists, which would take several times the memory.
        values = {
            name: array if array.ndim else array.item()
            for name, array in _npz.load(path, beside=_EXTRA_BYTES).items()
        }
        version = values.pop('schema_version', None)
    except ValueError as error:
        raise ValueError(f'{path}: cannot be read as a mechanism ({error})') from None
    if not isinstance(version, int) or version != _SCHEMA_VERSION:
        raise ValueError(
            f'{path}: has schema version {errors.shown(version)}: must be {_SCHEMA_VERSION}'
        )
    return nested(values)


def flat(values: dict[str, Any], prefix: str = '') -> dict[str, Any]:
    """A dictionary without inner dictionaries: their keys become `outer/inner`."""
    result = {}
    for key, value in values.items():
        if isinstance(value, dict):
            result.update(flat(value, f'{prefix}{key}/'))
        else:
            result[prefix + key] = value
    return result


def nested(values: dict[str, Any]) -> dict[str, Any]:
    """Inverse of `flat`.

    Raises:
      ArgumentError: if a key holds both a value and a dictionary.
    """
    result: dict[str, Any] = {}
    for key, value in values.items():
        *outer, last = key.split('/')
        inner: Any = result
        for name in outer:
            inner = inner.setdefault(name, {})
            if not isinstance(inner, dict):
                break
        if not isinstance(inner, dict) or last in inner:
            raise errors.ArgumentError('parameter', key, 'must not have two values')
        inner[last] = value
    return result


def names() -> tuple[str, ...]:
    """Names of all strategies of the package, sorted.

    Example:
      >>> 'blt_b400' in names()
      True
    """
    return tuple(sorted(path.stem for path in FOLDER.glob('*.npz')))


def located(name_or_path: str | os.PathLike[str]) -> pathlib.Path:
    """The file of a strategy: one that exists, or the packaged one of that name.

    Raises:
      ArgumentError: if it is a mere name, and there is neither a file nor a strategy of that name.
    """
    given = pathlib.Path(name_or_path)
    is_name = given.name == str(name_or_path) and given.suffix != '.npz'
    if not is_name or given.is_file():
        return given
    if given.name not in names():
        raise errors.ArgumentError(
            'path', name_or_path, f'must be a file or one of {", ".join(names())}'
        )
    return FOLDER / f'{given.name}.npz'
