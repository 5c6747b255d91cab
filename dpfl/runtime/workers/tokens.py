"""Token files: the secret that a run and its workers share. Imports no TensorFlow.

A token is 256 bits from the operating system, in a file of 64 hexadecimal digits that only its
owner can read. Whoever has a worker's token can execute code there, and can pose as that worker.
"""

import contextlib
import os
import pathlib
import re
import secrets

from dpfl import _files, errors

_TOKEN_BYTES = 32
_MODE = 0o600


def make(path: str | os.PathLike) -> bool:
    """Makes a file with a new token, unless the file exists. Returns whether it made one.

    The file appears atomically: another process sees all of it or none.

    Raises:
      OSError: if the file cannot be made.
    """
    path = pathlib.Path(path)
    if path.exists() or path.is_symlink():
        return False
    partial = path.with_name(f'{path.name}.{secrets.token_hex(8)}')
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE)
        with open(descriptor, 'wb') as file:
            file.write(secrets.token_hex(_TOKEN_BYTES).encode() + b'\n')
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(partial, path)  # Unlike a renaming, it never replaces a file.
        except FileExistsError:
            return False
    finally:
        with contextlib.suppress(OSError):
            os.unlink(partial)
    return True


def read(path: str | os.PathLike) -> bytes:
    """The token in a file, 32 bytes.

    Raises:
      ValueError: if there is no such file, if users other than its owner can read or change it, or
        if it holds no token; a message of one line that does not show the contents.
    """
    text = _files.read_private('token_file', path)
    digits = text.strip()
    if not re.fullmatch(rb'[0-9a-f]{%d}' % (2 * _TOKEN_BYTES), digits):
        raise errors.ArgumentError(
            'token_file',
            path,
            f'must hold {2 * _TOKEN_BYTES} hexadecimal digits, as start_worker makes it',
        )
    return bytes.fromhex(digits.decode())
