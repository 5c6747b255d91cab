"""Arrays for the past noise that a ring keeps."""

import os
import tempfile

import numpy as np


def zeros(shape: tuple[int, ...], dtype, directory) -> np.ndarray:
    """An array of zeros in memory, or in a file of a directory.

    The file has no name, and is gone when the process ends, in whatever way.

    Args:
      shape, dtype: of the array.
      directory: of the file; None for memory.

    Raises:
      OSError: if there is no space for the file.
    """
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    if directory is None or not size:
        return np.zeros(shape, dtype)
    with tempfile.TemporaryFile(dir=directory) as file:
        # All of its space now: a full disk would end the process in some later round.
        os.posix_fallocate(file.fileno(), 0, size)
        return np.memmap(file, dtype, 'r+', shape=shape)
