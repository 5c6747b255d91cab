"""Archives of arrays; reads plain numbers and texts of files that somebody else may have made.

`numpy.load` trusts what a file says about itself: it allocates the shape in a header before it
reads any byte, unpacks all that an archive claims to hold, and evaluates headers as Python. Here
an array is read only if its bytes are there, and an archive only if its unpacked size is in
proportion to its size. Pickled objects are never read.
"""

import io
import lzma
import math
import os
import re
import struct
import sys
import zipfile
import zlib
from collections.abc import Mapping
from typing import IO, Any, BinaryIO

import numpy as np

from dpfl import _files

# An archive may unpack to this many times its size, plus this many bytes. Deflate reaches 1032
# times; logs of runs in which all clients take part in every round come near that.
_MOST_RATIO = 64
_MOST_BYTES_BESIDES = 1 << 29
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_MOST_HEADER_BYTES = 1 << 16
# Headers of numbers, truth values and strings of fixed length, as NumPy writes them.
_HEADER = re.compile(
    rb"\{'descr': '([<>|][biufcSU][1-9][0-9]{0,8})', 'fortran_order': (True|False), "
    rb"'shape': \((|[0-9]{1,19},|[0-9]{1,19}(?:, [0-9]{1,19})+)\), \} *\n"
)
# What `zipfile` raises for truncated files and for flipped bits.
_DAMAGE = (
    KeyError,
    ValueError,
    TypeError,
    IndexError,
    AttributeError,
    OSError,
    EOFError,
    RuntimeError,
    MemoryError,
    OverflowError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
)


def load(path: str | os.PathLike[str], beside: int = _MOST_BYTES_BESIDES) -> dict[str, np.ndarray]:
    """All arrays of an `.npz` archive, by name.

    Args:
      path: of the file.
      beside: how many bytes it may unpack to in addition to 64 times its size; 512 MiB by default.

    Raises:
      ValueError: if the file is no such archive, or unpacks to more; the message does not name the
        file.
    """
    try:
        with _files.open_regular(path) as file:
            if file.read(2) != b'PK':
                raise ValueError('is not an .npz file')
            most = beside + _MOST_RATIO * os.fstat(file.fileno()).st_size
            with zipfile.ZipFile(file) as archive:
                return _arrays(archive, most)
    except _DAMAGE as error:
        raise ValueError(' '.join(str(error).split()) or type(error).__name__) from None


def to_bytes(arrays: Mapping[str, Any], *, compressed: bool = False) -> bytes:
    """An archive with arrays by name."""
    file = io.BytesIO()
    save(file, arrays, compressed=compressed)
    return file.getvalue()


def save(
    file: str | os.PathLike | BinaryIO, arrays: Mapping[str, Any], *, compressed: bool = False
) -> None:
    """Writes an archive with arrays by name to a path, used as it is, or an open binary file."""
    if isinstance(file, str | os.PathLike):
        with open(file, 'wb') as opened:
            return save(opened, arrays, compressed=compressed)
    write: Any = np.savez_compressed if compressed else np.savez  # Of any names.
    write(file, **arrays)


def read_array(file: IO[bytes], left: int) -> np.ndarray:
    """The array at the current position of a file, in the format of a `.npy` file.

    Args:
      file: open for reading, in binary.
      left: number of bytes in the file from its position on.

    Raises:
      ValueError: if there is no such array, or only a part of it.
    """
    start = file.read(10)
    if len(start) < 10 or start[:6] != np.lib.format.MAGIC_PREFIX:
        raise ValueError('an array has no header')
    length, header_left = int.from_bytes(start[8:10], 'little'), 10
    if start[6:8] == b'\x02\x00':
        length, header_left = length + (int.from_bytes(file.read(2), 'little') << 16), 12
    elif start[6:8] != b'\x01\x00':
        raise ValueError(f'an array has format {start[6]}.{start[7]}: must be 1.0 or 2.0')
    if length > min(_MOST_HEADER_BYTES, left - header_left):
        raise ValueError('the header of an array is too long')
    header = _HEADER.fullmatch(file.read(length))
    if not header:
        raise ValueError('the header of an array is not one of plain numbers or texts')
    dtype = np.dtype(header[1].decode())
    shape = tuple(int(size) for size in header[3].replace(b' ', b'').split(b',') if size)
    size = math.prod(shape) * dtype.itemsize
    if size > left - header_left - length:
        raise ValueError(f'an array of shape {shape} is not all there')
    data = bytearray(size)
    if size and file.readinto(data) != size:  # type: ignore[attr-defined]
        raise ValueError(f'an array of shape {shape} is not all there')
    if dtype.kind == 'U' and (np.frombuffer(data, f'{dtype.str[0]}u4') > sys.maxunicode).any():
        raise ValueError('an array of texts has what is no character')
    flat = np.frombuffer(data, dtype)
    return flat.reshape(shape[::-1]).T if header[2] == b'True' else flat.reshape(shape)


def _arrays(archive: zipfile.ZipFile, most: int) -> dict[str, np.ndarray]:
    entries = archive.infolist()
    if sum(entry.file_size for entry in entries) > most:
        raise ValueError(f'unpacks to more than {most} bytes')
    arrays = {}
    for entry in entries:
        name = entry.filename.removesuffix('.npy')
        if name in arrays:
            raise ValueError('has two arrays of one name')
        if entry.compress_type not in _COMPRESSIONS:
            raise ValueError('is compressed in another way than .npz files are')
        with archive.open(entry) as file:
            arrays[name] = read_array(file, entry.file_size)
            if file.read(1):  # Also where the checksum is compared.
                raise ValueError('has an array that is longer than its header says')
    return arrays
