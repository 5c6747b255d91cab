"""Strategies that are installed with the package: parameters printed in [McMahan24].

`--strategy=blt_b400` works from any directory.
"""

import pathlib

from dpfl import errors, mechanisms

FOLDER = pathlib.Path(__file__).parent


def names() -> tuple[str, ...]:
    """Names of all strategies of the package, sorted."""
    return tuple(sorted(path.stem for path in FOLDER.glob('*.npz')))


def load(name: str) -> mechanisms.Mechanism:
    """The mechanism of that name, with the number of rounds it was made for.

    `Mechanism.with_rounds` gives it for other numbers of rounds.

    Raises:
      ArgumentError: if the package has no such strategy.
    """
    if name not in names():
        raise errors.ArgumentError('name', name, f'must be one of {", ".join(names())}')
    return mechanisms.load(FOLDER / f'{name}.npz')
