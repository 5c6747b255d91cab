"""Standard input, output and error of a binary where they are closed, broken or on a full disk."""

import contextlib
import os
import sys

from absl import logging

_NAMES = ('stdin', 'stdout', 'stderr')


class _Messages:
    """A text stream for messages: what cannot be written is dropped, and the work goes on."""

    def __init__(self, stream):
        self._stream = stream

    def __getattr__(self, name):
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.flush()


class _Results(_Messages):
    """A text stream for results: an error is raised, and says where it comes from."""

    def write(self, text: str) -> int:
        with _naming():
            return self._stream.write(text)

    def flush(self) -> None:
        with _naming():
            self._stream.flush()


def prepare() -> None:
    """Makes the standard streams of this process fit for work; is called once.

    One that is closed becomes the null device. Otherwise the next file that is opened would take
    its place, and what a library prints would be written into that file. Messages on standard
    error never end the work: their reader may be gone, as a terminal that was closed.
    """
    for descriptor, name in enumerate(_NAMES):
        _open(descriptor, name)
    sys.stdout, sys.stderr = _Results(sys.stdout), _Messages(sys.stderr)
    # Not `setStream`, which writes to the one before.
    logging.get_absl_handler().python_handler.stream = sys.stderr


def flush_results() -> None:
    """Raises OSError if what was printed on standard output cannot be written."""
    sys.stdout.flush()


def drop_results() -> None:
    """From now on standard output takes everything: the interpreter writes the rest at its end."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def _open(descriptor: int, name: str) -> None:
    try:
        os.fstat(descriptor)
    except OSError:
        null = os.open(os.devnull, os.O_RDWR)
        if null != descriptor:
            os.dup2(null, descriptor)
            os.close(null)
    if getattr(sys, name) is None:
        mode = 'r' if name == 'stdin' else 'w'
        setattr(sys, name, open(descriptor, mode, closefd=False))


@contextlib.contextmanager
def _naming():
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, 'standard output') from error
