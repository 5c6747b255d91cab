"""Random streams that are pure functions of their purpose and their seeds (NumPy only)."""

import hashlib
from typing import Any

import numpy as np

from dpfl import _validate

_MAX_SEED = 2**64 - 1


def check_seed(name: str, value: Any) -> int:
    """Returns `value` as an int; raises ValueError unless it is an integer in [0, 2**64)."""
    return _validate.integer(name, value, minimum=0, maximum=_MAX_SEED)


def generator(domain: str, *integers: int) -> np.random.Generator:
    """Returns a random generator that is a pure function of the arguments.

    The integers are hashed at a fixed width, so two different lists of the same length never share
    a stream. If they were added up, or written at a variable width, lists could collide.

    Args:
      domain: purpose of the stream, at most 16 ASCII characters; different domains give unrelated
        streams.
      *integers: integers in [0, 2**64), always the same number of them within a domain.
    """
    data = b''.join(int(value).to_bytes(8, 'little') for value in integers)
    digest = hashlib.blake2b(data, digest_size=16, person=domain.encode('ascii')).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest, 'little')))
