"""Reports that flags name: as files, or as the directories of their runs."""

import pathlib

from dpfl import _files
from dpfl.accounting.records import archive
from dpfl.cli.command import command_line


def path_of(name: str) -> pathlib.Path:
    """The file of a report, which is given as a file or as the directory of a run."""
    path = pathlib.Path(name)
    return path / archive.REPORT if path.is_dir() else path


def read(flag: str, path: pathlib.Path) -> bytes:
    """The content of a report file.

    Args:
      flag: Name of the flag that names it.
      path: The file.

    Raises:
      UsageError: If it cannot be read.
    """
    try:
        return _files.read_bytes(path)
    except OSError as error:
        raise command_line.UsageError(f'--{flag}={path}: {error.strerror}') from None
