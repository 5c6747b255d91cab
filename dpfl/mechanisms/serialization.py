"""Mechanisms as dictionaries and files."""

import os
from collections.abc import Mapping
from typing import Any, BinaryIO

from dpfl import _validate, errors
from dpfl.mechanisms import base, mechanism_file, registry

# Limit of mechanisms nested in each other, as the base in a restarted one.
_MOST_DEPTH = 8


def from_dict(values: Mapping[str, Any]) -> base.Mechanism:
    """Makes the mechanism whose `to_dict` gave these values.

    Raises:
      ArgumentError: if the values are not a dictionary, the name is unknown, or a parameter is
        missing, unknown or out of range.

    Example:
      >>> from_dict(Identity(4).to_dict())
      Identity(rounds=4)
    """
    return _from_dict(values, 0)


def _from_dict(values: Any, depth: int) -> base.Mechanism:
    if not isinstance(values, dict) or depth > _MOST_DEPTH:
        raise errors.ArgumentError('mechanism', values, 'must be the values of a mechanism')
    parameters = dict(values)
    name = parameters.pop('mechanism', None)
    if isinstance(name, str) and name in registry.REMOVED:
        raise errors.ArgumentError(
            'mechanism', errors.NOT_SHOWN, errors.removed(f'is a {name} mechanism')
        )
    name = _validate.choice('mechanism', name, tuple(registry.TYPES))
    if 'base' in parameters:
        parameters['base'] = _from_dict(parameters['base'], depth + 1)
    try:
        return registry.TYPES[name](**parameters)
    except TypeError:
        given = errors.shown(', '.join(sorted(map(str, parameters))) or 'none')
        raise errors.ArgumentError(
            'mechanism', name, f'does not take the parameters {given}'
        ) from None


def save(mechanism: base.Mechanism, file: str | os.PathLike | BinaryIO) -> None:
    """Writes a mechanism as `.npz`, one array per parameter.

    Args:
      mechanism: any mechanism of this package.
      file: path, used as it is, or open binary file.

    Example:
      >>> save(BinaryTree(8), 'tree.npz')
      >>> load('tree.npz').rounds
      8
    """
    mechanism_file.write(mechanism.to_dict(), file)


def load(path: str | os.PathLike) -> base.Mechanism:
    """Reads a mechanism that `save` wrote, or a strategy that is installed with the package.

    Args:
      path: of a file; or a name in dpfl/strategies, such as 'blt_b400', if there is no such file.

    Raises:
      ArgumentError: if there is neither a file nor a strategy of that name; it lists the names.
      ValueError: if the file cannot be read or does not hold a valid mechanism.

    Example:
      >>> load('blt_b400').with_rounds(1280).rounds  # A strategy of [McMahan24].
      1280
    """
    return from_dict(mechanism_file.read(mechanism_file.located(path)))
