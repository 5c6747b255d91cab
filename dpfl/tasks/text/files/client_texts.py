"""Texts by client, in an unnamed file that disappears with the process.

The texts lie in the file in the order in which they came; memory holds 16 bytes for each and 8 for
each client, and neither texts nor client keys. Keys are replaced by digests, and clients are
numbered in the order of the digests. So the numbering does not depend on the order of the records,
and the first clients are a random sample of all.
"""

import array
import hashlib
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator

import numpy as np


class ClientTexts:
    """The texts of clients, those of a client in the order in which they came.

    Needs at most 60 bytes of memory for each text while it is made.

    Args:
      records: pairs of a client's key and a text.

    Raises:
      OSError: if the directory for temporary files is full.
    """

    def __init__(self, records: Iterable[tuple[str, str]]):
        digests, lengths = bytearray(), array.array('q')
        self._file = tempfile.TemporaryFile(prefix='dpfl-')
        for client, text in records:
            data = text.encode('utf-8', 'surrogatepass')
            self._file.write(data)
            digests += _key_digest(client)
            lengths.append(len(data))
        self._file.flush()
        order, self._starts = _by_client(digests)
        del digests  # Before the copies in the new order.
        self._lengths = np.asarray(lengths)
        self._ends = self._lengths.cumsum()[order]
        self._lengths = self._lengths[order]

    @property
    def num_clients(self) -> int:
        """Number of clients."""
        return len(self._starts) - 1

    @property
    def num_texts(self) -> int:
        """Number of texts of all clients."""
        return len(self._lengths)

    def of_client(self, client: int) -> Iterator[str]:
        """The texts of a client. May be called in any thread.

        Raises:
          OSError: if they cannot be read.
        """
        for place in range(self._starts[client], self._starts[client + 1]):
            length = int(self._lengths[place])
            data = os.pread(self._file.fileno(), length, int(self._ends[place]) - length)
            yield data.decode('utf-8', 'surrogatepass')


def _by_client(digests: bytearray) -> tuple[np.ndarray, np.ndarray]:
    """Texts in the order of the digests of their clients, and where each client begins.

    The digests are changed, which saves a copy of them.
    """
    words = np.frombuffer(digests, np.uint64).reshape(-1, 2)
    if sys.byteorder == 'little':
        words.byteswap(inplace=True)
    order = np.lexsort((words[:, 1], words[:, 0]))  # Stable: a client's texts keep their order.
    first = np.arange(len(words)) == 0
    for column in words.T:
        ordered = column[order]
        first[1:] |= ordered[1:] != ordered[:-1]
    return order, np.append(np.flatnonzero(first), len(words)).astype(np.int64)


def _key_digest(key: str) -> bytes:
    """128 bits, enough for distinct digests of any realistic number of clients."""
    return hashlib.blake2b(key.encode('utf-8', 'surrogatepass'), digest_size=16).digest()
