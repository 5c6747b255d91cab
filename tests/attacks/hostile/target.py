"""The base class of targets: a kind of file, how to mutate it, and how reading it may end."""

import abc
import pathlib
import shutil


class WrongResultError(Exception):
    """A file was accepted, but the result is wrong."""


def require(holds: bool, message: str) -> None:
    """Raises WrongResultError unless something holds."""
    if not holds:
        raise WrongResultError(message)


class Target(abc.ABC):
    """A kind of file.

    Attributes:
      name: name of the target.
      refusals: the exceptions that reading a file may raise, with a message of one line.
      seconds: limit on the CPU seconds of a case.
      special: share of the cases with something other than a file at the path.

    Args:
      folder: a folder for this target only; the file of a case is `folder / 'case' / ...`.
    """

    name: str
    refusals: tuple[type[Exception], ...] = (ValueError,)
    seconds = 5.0
    special = 0.02

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def fresh(self) -> pathlib.Path:
        """An empty directory for the next case."""
        case = self.folder / 'case'
        case.mkdir(exist_ok=True)
        for path in case.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        return case

    @abc.abstractmethod
    def mutate(self, rng) -> pathlib.Path:
        """Writes the file of a case and returns its path."""

    @abc.abstractmethod
    def read(self, path: pathlib.Path):
        """Reads the file with dpfl; raises one of `refusals`, in one line, if it cannot be used."""

    def check(self, value) -> None:  # noqa: B027 Many targets have nothing to check.
        """Raises WrongResultError if what was read is wrong."""
