"""Mechanisms as files: `.npz` archives of plain arrays, read without pickle."""

import numpy as np

from dpfl import _npz, _validate
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


def from_dict(values: dict) -> base.Mechanism:
    """Mechanism from the dictionary that `to_dict` made.

    Raises:
      ValueError: if the name is unknown, or a parameter is missing, unknown or out of range.
    """
    if not isinstance(values, dict):
        raise ValueError(f'mechanism={type(values).__name__}: must be a dictionary of parameters')
    parameters = dict(values)
    name = _validate.choice('mechanism', parameters.pop('mechanism', None), tuple(_TYPES))
    if isinstance(parameters.get('base'), dict):
        try:
            parameters['base'] = from_dict(parameters['base'])
        except RecursionError:
            raise ValueError('base: must not be within so many others') from None
    try:
        return _TYPES[name](**parameters)
    except TypeError:
        given = ', '.join(sorted(parameters)) or 'none'
        raise ValueError(f'mechanism={name}: does not take the parameters {given}') from None


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
        values = {name: array.tolist() for name, array in _npz.load(path).items()}
    except ValueError as error:
        raise ValueError(f'{path}: cannot be read as a mechanism ({error})') from None
    version = values.pop('schema_version', None)
    if version != _SCHEMA_VERSION:
        raise ValueError(
            f'{path}: has schema version {version}: must be {_SCHEMA_VERSION}'
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
    """Inverse of `_flat`."""
    nested: dict = {}
    for key, value in flat.items():
        *outer, last = key.split('/')
        inner = nested
        for name in outer:
            inner = inner.setdefault(name, {})
            if not isinstance(inner, dict):
                raise ValueError(f'{name}={inner}: must be a dictionary, for {key} is in it')
        if isinstance(inner.get(last), dict):
            raise ValueError(f'{key}={value}: must be a dictionary, for others are in it')
        inner[last] = value
    return nested
