"""What all targets share: a kind of file, how it is spoilt, and what reading it may end with."""

import abc
import pathlib
import shutil


class WrongResultError(Exception):
    """A file was taken, and what came of it is wrong."""


def require(holds: bool, message: str) -> None:
    """Raises WrongResultError unless something holds."""
    if not holds:
        raise WrongResultError(message)


class Target(abc.ABC):
    """A kind of file.

    Attributes:
      name: of the target.
      refusals: the exceptions that reading a file may end with, in one line.
      seconds: of a processor that a case may take.
      special: share of the cases in which something else than a file lies at the path.

    Args:
      folder: of its own; the file of a case is `folder / 'case' / ...`.
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
        """Makes the file of a case."""

    @abc.abstractmethod
    def read(self, path: pathlib.Path):
        """Reads the file with dpfl; raises one of `refusals`, in one line, if it cannot be used."""

    def check(self, value) -> None:  # noqa: B027 Of many files nothing is known.
        """Whether what was read is right; raises WrongResultError if not."""
