"""The client ids of a run's cohorts, `cohorts.bin`: a record for each round, with a checksum.

A record is the round (uint32), the number of clients (uint32), the bytes of an id (uint32: 1, 2, 4
or 8), the ids in the order in which they were drawn, and the first eight bytes of the SHA-256
digest of all that; numbers are little-endian. The journal has a digest of each cohort, and leads:
the file has at most as many rounds as have begun, and whoever reads it compares the numbers. It is
private, since it shows who took part.
"""

import hashlib
import struct
from collections.abc import Sequence

import numpy as np

NAME = 'cohorts.bin'
_HEADER = struct.Struct('<III')
_CHECKSUM = 8
_WIDTHS = (1, 2, 4, 8)


def record(round_index: int, cohort: Sequence[int] | np.ndarray) -> bytes:
    """The record of a round.

    Args:
      round_index: the round, counted from 0.
      cohort: ids of its clients, at least 0.
    """
    ids = np.asarray(cohort, np.int64)
    most = int(ids.max(initial=0))
    width = next(each for each in _WIDTHS if each == _WIDTHS[-1] or most < 1 << 8 * each)
    body = _HEADER.pack(round_index, ids.size, width) + ids.astype(f'<u{width}').tobytes()
    return body + hashlib.sha256(body).digest()[:_CHECKSUM]


def parse(data: bytes) -> tuple[list[np.ndarray], int]:
    """The cohorts of the rounds from 0, int64, up to the first record that is damaged or missing.

    Returns:
      The cohorts, and the length in bytes of their records.
    """
    found: list[np.ndarray] = []
    at = 0
    while len(data) - at >= _HEADER.size:
        number, count, width = _HEADER.unpack_from(data, at)
        end = at + _HEADER.size + count * width + _CHECKSUM
        if width not in _WIDTHS or number != len(found) or end > len(data):
            break
        body, checksum = data[at : end - _CHECKSUM], data[end - _CHECKSUM : end]
        if hashlib.sha256(body).digest()[:_CHECKSUM] != checksum:
            break
        found.append(np.frombuffer(body, f'<u{width}', offset=_HEADER.size).astype(np.int64))
        at = end
    return found, at
