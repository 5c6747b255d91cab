"""Mechanisms of --strategy: by their name in dpfl/strategies, or from files of their own."""

import pathlib

from dpfl import mechanisms
from dpfl import strategies as packaged
from experiments.command import command_line


def is_named(name: str) -> bool:
    """Whether dpfl/strategies has a file of that name."""
    return name in packaged.names()


def load(flag: str, name: str) -> mechanisms.Mechanism:
    """The mechanism of a name in dpfl/strategies or of a file.

    Args:
      flag: named in the error.
      name: of the strategy or the file.

    Raises:
      UsageError: if there is no such file or it holds no mechanism.
    """
    if not is_named(name) and not pathlib.Path(name).is_file():
        known = ', '.join(packaged.names())
        raise command_line.UsageError(f'--{flag}={name}: must be a file or one of {known}')
    try:
        return packaged.load(name) if is_named(name) else mechanisms.load(name)
    except ValueError as error:
        raise command_line.UsageError(f'--{flag}={name}: {error}') from None
