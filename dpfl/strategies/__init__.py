"""Strategies that come with the package, by name: parameters that document 002 prints.

They are installed with the package, so `--strategy=blt_b400` works from any directory.
"""

import pathlib

from dpfl import errors, mechanisms

FOLDER = pathlib.Path(__file__).parent


def names() -> tuple[str, ...]:
    """The names of all strategies of the package, sorted."""
    return tuple(sorted(path.stem for path in FOLDER.glob('*.npz')))


def load(name: str) -> mechanisms.Mechanism:
    """The mechanism of that name, over the rounds it was made for; see `Mechanism.with_rounds`.

    Raises:
      ValueError: if the package has no such strategy.
    """
    if name not in names():
        raise errors.ArgumentError('name', name, f'must be one of {", ".join(names())}')
    return mechanisms.load(FOLDER / f'{name}.npz')
