"""Keyed digests of the clients' data, which reveal nothing about the data.

A plain digest of private data lets anyone check a guess: an attacker who knows all but four digits
tries ten thousand contents and compares their digests. These digests therefore have a key
(HMAC-SHA-256, RFC 2104): 32 bytes from the operating system that stay with the checkpoints of the
run. Without the key, a digest tells nothing, not even whether two runs had the same data.
"""

import hashlib
import hmac
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf


def of_cohort(key: bytes, clients: Iterable[Sequence[Any]]) -> str:
    """Digest of the data that a cohort trains on, in hexadecimal.

    Args:
      key: the run's key.
      clients: the batches of each client, in the order of the cohort. A batch is a structure of
        arrays.
    """
    return of_digests(key, map(of_client, clients))


def of_digests(key: bytes, clients: Iterable[bytes]) -> str:
    """As `of_cohort`, from the digests that `of_client` gives for the clients."""
    total = hmac.new(key, b'cohort\n', hashlib.sha256)
    for digest in clients:
        total.update(digest)
    return total.hexdigest()


def of_client(batches: Sequence[Any]) -> bytes:
    """Digest of a client's batches, without a key: it must not be written anywhere."""
    total = hashlib.sha256(f'client {len(batches)}\n'.encode())
    for batch in batches:
        leaves = [np.asarray(leaf) for leaf in tf.nest.flatten(batch)]
        total.update(f'batch {len(leaves)}\n'.encode())
        for leaf in leaves:
            _add(total, leaf)
    return total.digest()


def of_file(key: bytes, name: str, digest: str) -> str:
    """Keyed digest of a file, made from its digest without a key, in hexadecimal.

    Args:
      key: the run's key.
      name: role of the file.
      digest: digest of its contents.
    """
    return hmac.new(key, f'file {name}\n{digest}'.encode(), hashlib.sha256).hexdigest()


def _add(total: Any, array: np.ndarray) -> None:
    """Adds an array with its type and shape, so that different lists never give the same bytes."""
    total.update(f'{array.dtype.str} {array.shape}\n'.encode())
    if array.dtype != object:
        total.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
        return
    for value in array.ravel():  # Strings: the array itself only holds their addresses.
        data = value if isinstance(value, bytes) else str(value).encode('utf-8', 'surrogatepass')
        total.update(f'{len(data)}\n'.encode() + data)
