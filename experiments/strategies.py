"""Mechanisms from configs/strategies and from files of their own."""

import pathlib

from dpfl import mechanisms
from experiments import command_line

_FOLDER = pathlib.Path(__file__).parents[1] / 'configs' / 'strategies'


def is_named(name: str) -> bool:
    """Whether configs/strategies has a file of that name."""
    return (_FOLDER / f'{name}.npz').is_file()


def load(flag: str, name: str) -> mechanisms.Mechanism:
    """The mechanism of a name in configs/strategies or of a file.

    Args:
      flag: named in the error.
      name: of the strategy or the file.

    Raises:
      UsageError: if there is no such file or it holds no mechanism.
    """
    path = _FOLDER / f'{name}.npz' if is_named(name) else pathlib.Path(name)
    if not path.is_file():
        known = ', '.join(sorted(file.stem for file in _FOLDER.glob('*.npz')))
        raise command_line.UsageError(f'--{flag}={name}: must be a file or one of {known}')
    try:
        return mechanisms.load(path)
    except ValueError as error:
        raise command_line.UsageError(f'--{flag}={name}: {error}') from None
