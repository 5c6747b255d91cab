"""Reads Parquet files in a child process.

pyarrow is written in C++, and a damaged file can crash it. So a child process reads the file, and
writes its rows to a pipe; no more than a few row groups are in memory. What the rows look like
there is up to the caller.
"""

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import IO, BinaryIO

SUFFIXES = ('.parquet', '.pq')
# Bytes that wait between the two processes: with fewer they switch more often.
_BUFFER = 1 << 20


class FailedError(ValueError):
    """The child process did not read the file to its end.

    Attributes:
      status: its exit status; negative for the number of a signal.
      said: what it wrote to standard error, which may quote the file.
    """

    def __init__(self, status: int, said: bytes):
        self.status = status
        self.said = said
        super().__init__('is not a complete Parquet file')


@contextlib.contextmanager
def rows(file: BinaryIO, reader: str, *arguments: str) -> Iterator[IO[bytes]]:
    """Context with the rows of an open Parquet file, to be read once to the end.

    Args:
      file: the file.
      reader: Python code that the child runs, for `in_child`.
      arguments: of the function that writes the rows.

    Raises:
      ValueError: if pyarrow is not installed.
      FailedError: if the file cannot be read, at the end of the context at the latest.
    """
    if importlib.util.find_spec('pyarrow') is None:
        raise ValueError('Parquet needs the package pyarrow')
    with tempfile.TemporaryFile(prefix='dpfl-') as said:
        with subprocess.Popen(
            [sys.executable, '-P', '-c', reader, *arguments],
            stdin=file,
            stdout=subprocess.PIPE,
            stderr=said,
            bufsize=_BUFFER,
            pipesize=_BUFFER,
            # Modules of this process, and not those of the directory in which it runs.
            env=os.environ | {'PYTHONPATH': os.pathsep.join(p or os.getcwd() for p in sys.path)},
        ) as child:
            assert child.stdout is not None  # It is a pipe.
            try:
                yield child.stdout
            except ValueError:
                # If the rows end here, they may be wrong because the child failed.
                if child.stdout.read(1) or not child.wait():
                    child.kill()
                    raise
            except BaseException:
                child.kill()
                raise
        if child.returncode:
            said.seek(0)
            raise FailedError(child.returncode, said.read())


def in_child(write: Callable[..., None]) -> None:
    """Main function of the child process.

    Args:
      write: gets the Parquet file and the file for the rows, both binary, and the arguments of
        `rows`.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # The parent process reports the interrupt.
    with open(0, 'rb', closefd=False) as source, open(1, 'wb', closefd=False) as output:
        write(source, output, *sys.argv[1:])
