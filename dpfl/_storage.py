"""Files that survive a crash: they are written as a whole, or appended to, and then synced."""

import contextlib
import fcntl
import os
import pathlib
import stat
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from dpfl import errors

# Permissions of files that only their owner may read.
PRIVATE = 0o600


# Directories that this process has locked. The function raises if the path leads elsewhere now.
_locked: dict[pathlib.Path, Callable[[], None]] = {}


@contextlib.contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Context in which an OSError is a `StorageError` that names `path`.

    Raises StorageError on entry if the path is in a directory that this process locked and that was
    removed, renamed or replaced since: the files there may now be those of another run.
    """
    _require_same(path)
    try:
        yield
    except OSError as error:
        raise errors.StorageError(f'{path}: {error.strerror or error}') from error


def _require_same(path: str | os.PathLike[str]) -> None:
    for folder in pathlib.Path(path).parents:
        if folder in _locked:
            _locked[folder]()


def write_atomically(
    path: pathlib.Path, write: Callable[[BinaryIO], Any], mode: int = 0o666
) -> None:
    """Calls `write` with a binary file that replaces `path` once it is complete.

    Whenever the machine stops, `path` is the old file or the new one, never a part of it.

    Args:
      path: of the file; `<path>.partial` is used meanwhile.
      write: takes the open file.
      mode: permissions, before the umask.

    Raises:
      StorageError: if the file cannot be written, or `path` is something else, such as a device, a
        folder or a link; it is then unchanged.
    """
    partial = path.parent / f'{path.name}.partial'
    with naming(path):
        if os.path.lexists(path) and not stat.S_ISREG(os.lstat(path).st_mode):
            raise errors.StorageError(f'{path}: is there, and is not a file')
        partial.unlink(missing_ok=True)  # A killed process may have left it with other permissions.
        try:
            with open(partial, 'wb', opener=lambda name, flags: os.open(name, flags, mode)) as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
        except BaseException:
            with contextlib.suppress(OSError):
                partial.unlink()  # On a full disk its space is needed.
            raise
        _sync(path.parent)


def append(
    path: pathlib.Path, data: bytes, size: int, mode: int = 0o666, *, sync: bool = True
) -> None:
    """Appends to a file, and returns when the data is on the disk.

    Args:
      path: of the file.
      data: bytes to append.
      size: length of the file in bytes. The file is created only if this is 0: a longer file that
        was removed or replaced meanwhile has lost its content, and must not be started again.
      mode: permissions of a new file, before the umask.
      sync: False to return before the data is on the disk. Whatever is appended later with True
        is on the disk after it.

    Raises:
      StorageError: if the data cannot be appended; the file may then end with a part of `data`.
    """
    with naming(path):
        is_new = size == 0 and not path.exists()
        flags = os.O_WRONLY | os.O_APPEND | (os.O_CREAT if size == 0 else 0)
        with open(os.open(path, flags, mode), 'ab', buffering=0) as file:
            _require_same(path)  # The open file is that of the locked directory.
            length = os.fstat(file.fileno()).st_size
            if length != size:
                raise errors.StorageError(
                    f'{path}: has {length} bytes, must have the {size} written to it'
                )
            try:
                while data:
                    data = data[file.write(data) :]
                if sync:
                    os.fsync(file.fileno())
            except OSError:
                with contextlib.suppress(OSError):
                    file.truncate(size)
                raise
        if is_new:
            _sync(path.parent)


def sync(path: pathlib.Path) -> None:
    """Waits until the data appended to a file is on the disk.

    Raises:
      StorageError: if it cannot be written.
    """
    with naming(path):
        _sync(path)


def _sync(path: pathlib.Path) -> None:
    """Writes a file's data to the disk, or the names in a directory, such as new ones."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_locked(path: str | os.PathLike[str]) -> bool:
    """Whether another process has locked the directory to write to it.

    Asks by a shared lock, for a moment in which `locked` would be refused.
    """
    with naming(path):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
    return False


@contextlib.contextmanager
def locked(path: str | os.PathLike[str], *, to_read: bool = False) -> Iterator[None]:
    """Context in which nobody else can lock the directory; it ends with the process at the latest.

    Once the path leads to another directory, `naming` refuses it, and with it every write here.

    Args:
      path: of the directory.
      to_read: whether others may lock it for reading at the same time.

    Raises:
      StorageError: if another process has locked it.
    """
    path = pathlib.Path(path)
    with naming(path):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)

    def require_same() -> None:
        with naming(path):
            if not os.path.samestat(os.stat(path), os.fstat(descriptor)):
                raise errors.StorageError(f'{path}: was replaced by another directory')

    try:
        with naming(path):
            try:
                kind = fcntl.LOCK_SH if to_read else fcntl.LOCK_EX
                fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                raise errors.StorageError(f'{path}: is in use by another run') from None
        if not to_read:
            _locked[path] = require_same
        yield
    finally:
        if _locked.get(path) is require_same:
            del _locked[path]
        os.close(descriptor)
