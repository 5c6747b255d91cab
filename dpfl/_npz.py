"""Reads `.npz` archives of plain arrays; damaged ones give one error."""

import lzma
import struct
import zipfile
import zlib

import numpy as np

# What `numpy.load` and `zipfile` raise for files that are cut or have flipped bits.
_DAMAGE = (
    KeyError, ValueError, TypeError, AttributeError, OSError, EOFError, RuntimeError, MemoryError,
    OverflowError, struct.error, zipfile.BadZipFile, zlib.error, lzma.LZMAError,
)


def load(path) -> dict[str, np.ndarray]:
    """All arrays of an archive, by name.

    Raises:
      ValueError: if the file cannot be read as one; the message does not name it.
    """
    try:
        with open(path, 'rb') as file:
            if file.read(2) != b'PK':
                raise ValueError('is not an .npz file')
        with np.load(path, allow_pickle=False) as data:
            arrays = {name: data[name] for name in data.files}
        if not all(isinstance(array, np.ndarray) for array in arrays.values()):
            raise ValueError('its arrays are damaged')
        return arrays
    except _DAMAGE as error:
        raise ValueError(' '.join(str(error).split()) or type(error).__name__) from None
