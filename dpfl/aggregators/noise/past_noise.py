"""Arrays for the past noise that a ring keeps."""

import os
import tempfile
from typing import Any

import numpy as np


def zeros(shape: tuple[int, ...], dtype: Any, directory: str | os.PathLike | None) -> np.ndarray:
    """An array of zeros in memory or in a file.

    The file has no name, and disappears when the process ends, in whatever way.

    Args:
      shape, dtype: of the array.
      directory: where to make the file; None for memory.

    Raises:
      OSError: if there is no space for the file.
    """
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    if directory is None or not size:
        return np.zeros(shape, dtype)
    with tempfile.TemporaryFile(dir=os.fspath(directory)) as file:
        # Allocates all space now: a full disk would otherwise kill the process in a later round.
        os.posix_fallocate(file.fileno(), 0, size)
        return np.memmap(file, dtype, 'r+', shape=shape)
