"""Opens files that somebody else may have made: only regular files that are not too large.

A path may lead to a FIFO, where opening waits for a writer, or to a device such as `/dev/zero`,
which never ends. Neither is a data file.
"""

import errno
import os
import stat
from typing import BinaryIO

from dpfl import errors

# Far more than any text that is read as a whole (a plan, a report, a study, digests).
_MOST_TEXT_BYTES = 1 << 28
# Far more than any secret.
_MOST_SECRET_BYTES = 4096
# Permissions that a secret file must not give.
_OTHERS = 0o077


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Opens a regular file for binary reading; links are followed.

    Raises:
      OSError: if it cannot be opened, or is no regular file (a directory, a FIFO, a device).
    """
    return open(path, 'rb', opener=_opener)


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


def read_bytes(path: str | os.PathLike[str], most: int = _MOST_TEXT_BYTES) -> bytes:
    """The content of a regular file of at most `most` bytes, 256 MiB by default.

    Raises:
      OSError: as in `open_regular`, or if the file is longer.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
        return file.read(size)


def read_bytes_or_none(path: str | os.PathLike[str], most: int = _MOST_TEXT_BYTES) -> bytes | None:
    """As `read_bytes`; None if there is nothing of that name.

    A link that leads to nothing is something of that name, and an error: whoever takes it for a
    missing file would write to wherever it leads.
    """
    return read_bytes(path, most) if os.path.lexists(path) else None


def read_text(path: str | os.PathLike[str]) -> str:
    """The content of a regular file of UTF-8 text.

    Raises:
      OSError: as in `read_bytes`.
      ValueError: if it is not UTF-8.
    """
    return read_bytes(path).decode()


def read_private(name: str, path: str | os.PathLike[str]) -> bytes:
    """The first 4096 bytes of a secret file, which only its owner may read.

    Args:
      name: of the argument that the file comes from.
      path: of the file.

    Raises:
      ArgumentError: if it cannot be read, or users other than its owner can read or change it; a
        message of one line that does not show the contents.
    """
    try:
        # Non-blocking: opening a pipe would otherwise wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise errors.ArgumentError(name, path, f'must be readable ({error.strerror})') from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise errors.ArgumentError(name, path, 'must be a regular file')
        if status.st_uid not in (0, os.geteuid()) or status.st_mode & _OTHERS:
            raise errors.ArgumentError(
                name, path, 'must be of this user, and closed to others (chmod 600)'
            )
        return os.read(descriptor, _MOST_SECRET_BYTES)
    finally:
        os.close(descriptor)
