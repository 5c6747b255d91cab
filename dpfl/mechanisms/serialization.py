"""Mechanisms as files: `.npz` archives of plain arrays, read without pickle."""

import numpy as np

from dpfl import _npz, _validate, errors
from dpfl.mechanisms import (
    banded,
    banded_inverse,
    banded_toeplitz,
    base,
    blt,
    identity,
    restarts,
    tree,
)

_TYPES = {
    kind.name: kind
    for kind in (
        identity.Identity,
        tree.BinaryTree,
        tree.HonakerTree,
        tree.FullHonakerTree,
        banded.Banded,
        banded_inverse.BandedInverse,
        banded_toeplitz.BandedToeplitz,
        blt.Blt,
        restarts.Restarted,
    )
}
_SCHEMA_VERSION = 1
# What a file of parameters may unpack to besides 64 times its size; `save` does not compress.
_BYTES_BESIDES = 1 << 24
# Of mechanisms within each other, as in a restarted one.
_MOST_DEPTH = 8


def from_dict(values: dict) -> base.Mechanism:
    """Mechanism from the dictionary that `to_dict` made.

    Raises:
      ValueError: if the values are no dictionary, the name is unknown, or a parameter is missing,
        unknown or out of range.
    """
    return _from_dict(values, 0)


def _from_dict(values: dict, depth: int) -> base.Mechanism:
    if not isinstance(values, dict) or depth > _MOST_DEPTH:
        raise errors.ArgumentError('mechanism', values, 'must be the values of a mechanism')
    parameters = dict(values)
    name = _validate.choice('mechanism', parameters.pop('mechanism', None), tuple(_TYPES))
    if 'base' in parameters:
        parameters['base'] = _from_dict(parameters['base'], depth + 1)
    try:
        return _TYPES[name](**parameters)
    except TypeError:
        given = errors.shown(', '.join(sorted(map(str, parameters))) or 'none')
        raise errors.ArgumentError(
            'mechanism', name, f'does not take the parameters {given}'
        ) from None


def save(mechanism: base.Mechanism, file) -> None:
    """Writes a mechanism as `.npz`, one array per parameter.

    Args:
      mechanism: any of this package.
      file: path, used as it is, or open binary file.
    """
    if not hasattr(file, 'write'):
        with open(file, 'wb') as opened:
            save(mechanism, opened)
        return
    np.savez(file, schema_version=_SCHEMA_VERSION, **_flat(mechanism.to_dict()))


def load(path) -> base.Mechanism:
    """Reads a mechanism that `save` wrote.

    Raises:
      ValueError: if the file cannot be read or does not hold a valid mechanism.
    """
    try:
        # Others stay arrays: as lists they would take several times the memory.
        values = {
            name: array if array.ndim else array.item()
            for name, array in _npz.load(path, beside=_BYTES_BESIDES).items()
        }
        version = values.pop('schema_version', None)
    except ValueError as error:
        raise ValueError(f'{path}: cannot be read as a mechanism ({error})') from None
    if not isinstance(version, int) or version != _SCHEMA_VERSION:
        raise ValueError(
            f'{path}: has schema version {errors.shown(version)}: must be {_SCHEMA_VERSION}'
        )
    return from_dict(_nested(values))


def _flat(values: dict, prefix: str = '') -> dict:
    """A dictionary without dictionaries in it: inner keys become `outer/inner`."""
    flat = {}
    for key, value in values.items():
        if isinstance(value, dict):
            flat.update(_flat(value, f'{prefix}{key}/'))
        else:
            flat[prefix + key] = value
    return flat


def _nested(flat: dict) -> dict:
    """Inverse of `_flat`; raises ValueError if a key is both a value and a dictionary."""
    nested: dict = {}
    for key, value in flat.items():
        *outer, last = key.split('/')
        inner = nested
        for name in outer:
            inner = inner.setdefault(name, {})
            if not isinstance(inner, dict):
                break
        if not isinstance(inner, dict) or last in inner:
            raise errors.ArgumentError('parameter', key, 'must not have two values')
        inner[last] = value
    return nested
