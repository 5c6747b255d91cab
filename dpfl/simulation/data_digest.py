"""Digests of the clients' data that tell nobody what the data are.

A plain digest of private data is a test of every guess at them: whoever knows all but four digits
tries ten thousand contents, and compares. So these have a key (HMAC-SHA-256, RFC 2104), 32 bytes
from the operating system that stay with the checkpoints of the run: without it, nothing is learned
from a digest, not even whether two runs had the same data.
"""

import hashlib
import hmac
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

KEY_BYTES = 32


def of_cohort(key: bytes, clients: Iterable[Sequence[Any]]) -> str:
    """Digest of what a cohort trains on, in hexadecimal.

    Args:
      key: of the run.
      clients: for each client, in the order of the cohort, its batches: structures of arrays.
    """
    total = hmac.new(key, b'cohort\n', hashlib.sha256)
    for batches in clients:
        total.update(f'client {len(batches)}\n'.encode())
        for batch in batches:
            leaves = [np.asarray(leaf) for leaf in tf.nest.flatten(batch)]
            total.update(f'batch {len(leaves)}\n'.encode())
            for leaf in leaves:
                _add(total, leaf)
    return total.hexdigest()


def of_file(key: bytes, name: str, digest: str) -> str:
    """Digest of a file by its digest without a key, in hexadecimal.

    Args:
      key: of the run.
      name: what the file is.
      digest: of its contents.
    """
    return hmac.new(key, f'file {name}\n{digest}'.encode(), hashlib.sha256).hexdigest()


def _add(total, array: np.ndarray) -> None:
    """Adds an array with its type and shape, so that no two lists of arrays are the same bytes."""
    total.update(f'{array.dtype.str} {array.shape}\n'.encode())
    if array.dtype != object:
        total.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
        return
    for value in array.ravel():  # Strings, of which the array has only the addresses.
        data = value if isinstance(value, bytes) else str(value).encode('utf-8', 'surrogatepass')
        total.update(f'{len(data)}\n'.encode() + data)
