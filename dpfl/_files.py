"""Opens files that somebody else may have made: only regular files that are not too large.

A path may lead to a FIFO, where opening waits for a writer, or to a device such as `/dev/zero`,
which never ends. Neither is a data file.
"""

import errno
import os
import stat
from typing import BinaryIO

# Far more than any text that is read as a whole (a plan, a report, a study, digests).
_MOST_TEXT_BYTES = 1 << 28


def open_regular(path: str | os.PathLike[str], buffering: int = -1) -> BinaryIO:
    """Opens a regular file for binary reading; links are followed.

    Raises:
      OSError: if it cannot be opened, or is no regular file (a directory, a FIFO, a device).
    """
    return open(path, 'rb', buffering=buffering, opener=_opener)


def _opener(path: str, flags: int) -> int:
    # Without O_NONBLOCK, opening a FIFO waits until somebody writes. Regular files ignore it.
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, 'Not a regular file', str(path))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """The content of a regular file of at most 256 MiB.

    Raises:
      OSError: as in `open_regular`, or if the file is longer.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > _MOST_TEXT_BYTES:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
        return file.read(size)


def read_text(path: str | os.PathLike[str]) -> str:
    """The content of a regular file of UTF-8 text.

    Raises:
      OSError: as in `read_bytes`.
      ValueError: if it is not UTF-8.
    """
    return read_bytes(path).decode()
