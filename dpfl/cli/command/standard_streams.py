"""Makes binaries work with standard streams that are closed, broken or on a full disk."""

import contextlib
import os
import sys
from typing import Any

from absl import logging

_NAMES = ('stdin', 'stdout', 'stderr')


class _Messages:
    """A text stream for messages. If it cannot be written, text is dropped and the work goes on."""

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
    """A text stream for results. An error is raised and names the stream."""

    def write(self, text: str) -> int:
        with _naming():
            return self._stream.write(text)

    def flush(self) -> None:
        with _naming():
            self._stream.flush()


def prepare() -> None:
    """Prepares the standard streams of this process. Call it once.

    A closed stream is replaced by the null device. Otherwise the next file that is opened would
    take its place, and the output of a library would end up in that file. Messages on standard
    error never end the work, even if their reader is gone, for example a closed terminal.
    """
    for descriptor, name in enumerate(_NAMES):
        _open(descriptor, name)
    results: Any = _Results(sys.stdout)
    messages: Any = _Messages(sys.stderr)
    sys.stdout, sys.stderr = results, messages
    # Not `setStream`, which writes to the previous stream.
    logging.get_absl_handler().python_handler.stream = sys.stderr


def flush_results() -> None:
    """Flushes standard output; raises OSError if that fails."""
    sys.stdout.flush()


def drop_results() -> None:
    """Discards standard output from now on, so that the interpreter can flush it when it ends."""
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
