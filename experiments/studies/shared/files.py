"""Files and messages of the studies."""

import pathlib
import sys

from dpfl import _storage


def write(path: pathlib.Path, content: str | bytes) -> None:
    """Writes a file, atomically; makes its directory if need be.

    Raises:
      StorageError: if that fails.
    """
    with _storage.naming(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
    data = content.encode() if isinstance(content, str) else content
    _storage.write_atomically(path, lambda file: file.write(data))


def tell(text: str) -> None:
    """Prints a message on standard error."""
    print(text, file=sys.stderr)
