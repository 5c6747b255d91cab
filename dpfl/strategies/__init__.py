"""Strategies that are installed with the package: parameters printed in [McMahan24].

`--strategy=blt_b400` and `mechanisms.load('blt_b400')` work from any directory.
"""

from dpfl import errors, mechanisms
from dpfl.mechanisms.mechanism_file import FOLDER, names

__all__ = ['FOLDER', 'load', 'names']


def load(name: str) -> mechanisms.Mechanism:
    """The mechanism of that name, with the number of rounds it was made for.

    `Mechanism.with_rounds` gives it for other numbers of rounds.

    Raises:
      ArgumentError: if the package has no such strategy.

    Example:
      >>> load('blt_b400').rounds
      4000
    """
    if name not in names():
        raise errors.ArgumentError('name', name, errors.one_of(name, names()))
    return mechanisms.load(FOLDER / f'{name}.npz')
