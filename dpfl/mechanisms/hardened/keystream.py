"""Keystreams of AES-256 in counter mode (NIST SP 800-38A, section 6.5), as 64-bit words."""

import hashlib
import hmac

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

KEY_BYTES = 32
_ZEROS = np.zeros(1 << 19, np.uint8)
_ROOM = 15  # What `cryptography` wants beyond the text: a block of AES less one.


def derive(key: bytes, label: str) -> bytes:
    """Key below `key` for a purpose: HMAC-SHA256 of the label, [32] bytes."""
    return hmac.new(key, label.encode(), hashlib.sha256).digest()


def seeded_key(seed: int) -> bytes:
    """Root key of a simulation: a hash of the seed, [32] bytes."""
    return hashlib.sha256(f'dpfl hardened noise seed {seed}'.encode()).digest()


class Keystream:
    """The words of one block of coordinates: nobody without the key tells them from random bits.

    The first counter is `block * 2^64`, so the streams of different blocks do not overlap, and
    each can be made without the others. A stream is consumed from its beginning; the same requests
    in the same order give the same words.

    Args:
      key: [32] bytes, of one round.
      block: number of the block, at least 0 and below 2^64.
    """

    def __init__(self, key: bytes, block: int):
        counter = block.to_bytes(8, 'big') + bytes(8)
        self._encryptor = Cipher(algorithms.AES(key), modes.CTR(counter)).encryptor()

    def words(self, size: int) -> np.ndarray:
        """The next words, uint64 [size], each uniform and independent of all others."""
        # What AES-CTR makes of zeros is its keystream.
        out = np.empty(8 * size + _ROOM, np.uint8)
        for begin in range(0, 8 * size, _ZEROS.size):
            length = min(8 * size - begin, _ZEROS.size)
            self._encryptor.update_into(_ZEROS[:length], out[begin : begin + length + _ROOM])
        return out[: 8 * size].view('<u8')
