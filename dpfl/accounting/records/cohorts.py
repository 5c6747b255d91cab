"""The client ids of a run's cohorts, `cohorts.bin`: a record for each round, with a checksum.

A record is the round (uint32), the number of clients (uint32), the bytes of an id (uint32: 1, 2, 4
or 8), the ids in the order in which they were drawn, and the first eight bytes of the SHA-256
digest of all that; numbers are little-endian. The journal has a digest of each cohort, and leads:
the file has at most the rounds that have begun, and its reader compares the numbers. It is private,
since it shows who took part.
"""

import hashlib
import os
import struct
from collections.abc import Sequence
from typing import BinaryIO

import numpy as np

from dpfl import _files

NAME = 'cohorts.bin'
_HEADER = struct.Struct('<III')
_CHECKSUM = 8
_WIDTHS = (1, 2, 4, 8)
# Far more than a round has: their ids take a gigabyte.
_MOST_CLIENTS = 1 << 27


def record(round_index: int, cohort: Sequence[int] | np.ndarray) -> bytes:
    """The record of a round.

    Args:
      round_index: the round, counted from 0.
      cohort: ids of its clients, at least 0.
    """
    ids = np.asarray(cohort, np.int64)
    most = int(ids.max(initial=0))
    width = next(size for size in _WIDTHS if size == _WIDTHS[-1] or most < 1 << 8 * size)
    body = _HEADER.pack(round_index, ids.size, width) + ids.astype(f'<u{width}').tobytes()
    return body + hashlib.sha256(body).digest()[:_CHECKSUM]


def load(path: str | os.PathLike[str]) -> tuple[list[np.ndarray], int, bool]:
    """The cohorts of a file as `read` gives them, and whether the file has nothing else.

    What follows the first record that is damaged is not read, so that a file of any length takes
    the memory of its cohorts. Without a file there are no cohorts.

    Raises:
      OSError: if it cannot be read.
    """
    if not os.path.lexists(path):
        return [], 0, True
    with _files.open_regular(path) as file:
        cohorts, complete = read(file)
        return cohorts, complete, complete == file.seek(0, os.SEEK_END)


def read(file: BinaryIO) -> tuple[list[np.ndarray], int]:
    """The cohorts of the rounds from 0, int64, up to the first record that is damaged or missing.

    Returns:
      The cohorts, and the length in bytes of their records.
    """
    cohorts: list[np.ndarray] = []
    at, size = 0, file.seek(0, os.SEEK_END)
    file.seek(0)
    while len(header := file.read(_HEADER.size)) == _HEADER.size:
        number, count, width = _HEADER.unpack(header)
        end = at + _HEADER.size + count * width + _CHECKSUM
        is_record = width in _WIDTHS and number == len(cohorts) and count <= _MOST_CLIENTS
        if not is_record or end > size:
            break
        ids, checksum = file.read(count * width), file.read(_CHECKSUM)
        if hashlib.sha256(header + ids).digest()[:_CHECKSUM] != checksum:
            break
        cohorts.append(np.frombuffer(ids, f'<u{width}').astype(np.int64))
        at = end
    return cohorts, at
