"""Keystreams of AES-256 in counter mode (NIST SP 800-38A, section 6.5), as 64-bit words."""

import hashlib
import hmac
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

KEY_BYTES = 32
_ZEROS = np.zeros(1 << 19, np.uint8)
_ROOM = 15  # Extra output bytes that `cryptography` requires: one AES block minus one.


def derive(key: bytes, label: str) -> bytes:
    """Key derived from `key` for a purpose: HMAC-SHA256 of the label, [32] bytes."""
    return hmac.new(key, label.encode(), hashlib.sha256).digest()


def seeded_key(seed: int) -> bytes:
    """Root key of a simulation, derived from its seed by SHA-256, [32] bytes."""
    return hashlib.sha256(f'dpfl hardened noise seed {seed}'.encode()).digest()


class Keystream:
    """Pseudorandom words of one block of coordinates.

    Without the key they cannot be told from random bits. The first counter is `block * 2^64`, so
    the streams of different blocks do not overlap, and each can be made without the others. A
    stream is consumed from its beginning. The same requests in the same order give the same words.

    Args:
      key: key of one round, [32] bytes.
      block: index of the block, at least 0 and below 2^64.
    """

    def __init__(self, key: bytes, block: int):
        counter = block.to_bytes(8, 'big') + bytes(8)
        self._encryptor = Cipher(algorithms.AES(key), modes.CTR(counter)).encryptor()

    def words(self, size: int) -> np.ndarray:
        """The next words, uint64 [size], each uniform and independent of all others."""
        # Encrypting zeros with AES-CTR gives its keystream.
        out = np.empty(8 * size + _ROOM, np.uint8)
        for begin in range(0, 8 * size, _ZEROS.size):
            length = min(8 * size - begin, _ZEROS.size)
            text: Any = _ZEROS[:length]
            room: Any = out[begin : begin + length + _ROOM]
            self._encryptor.update_into(text, room)
        return out[: 8 * size].view('<u8')
