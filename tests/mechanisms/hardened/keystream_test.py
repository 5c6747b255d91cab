"""Keystreams against the published vectors of the cipher, and their positions."""

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from dpfl.mechanisms.hardened import discrete_gaussian

_KEY = bytes(range(32))


def test_the_cipher_gives_the_published_vectors():
    """NIST SP 800-38A, F.5.5: CTR-AES256.Encrypt."""
    key = bytes.fromhex('603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4')
    counter = bytes.fromhex('f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff')
    plain = bytes.fromhex(
        '6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51'
        '30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710'
    )
    expected = bytes.fromhex(
        '601ec313775789a5b7a7f504bbf3d228f443e3ca4d62b59aca84e990cacaf5c5'
        '2b0930daa23de94ce87017ba2d84988ddfc9c58db67aada613c2dd08457941a6'
    )
    assert Cipher(algorithms.AES(key), modes.CTR(counter)).encryptor().update(plain) == expected


def test_words_are_encrypted_counters():
    """FIPS 197, SP 800-38A: word pairs are the encryption of block number and counter."""
    words = discrete_gaussian.Keystream(_KEY, 5).words(6)
    blocks = Cipher(algorithms.AES(_KEY), modes.ECB()).encryptor()
    expected = b''.join(
        blocks.update((5 << 64 | counter).to_bytes(16, 'big')) for counter in range(3)
    )
    assert words.tobytes() == expected
    assert words.dtype == np.uint64


def test_a_stream_goes_on_where_the_last_request_ended():
    whole = discrete_gaussian.Keystream(_KEY, 3).words(200_003)
    parts = discrete_gaussian.Keystream(_KEY, 3)
    sizes = (1, 7, 131_072, 0, 2)
    np.testing.assert_array_equal(
        np.concatenate([parts.words(size) for size in sizes]), whole[: sum(sizes)]
    )


def test_blocks_and_keys_have_streams_of_their_own():
    streams = [
        discrete_gaussian.Keystream(key, block).words(64).tobytes()
        for key in (
            _KEY,
            discrete_gaussian.derive_key(_KEY, 'round 0'),
            discrete_gaussian.seeded_key(0),
        )
        for block in range(3)
    ]
    assert len(set(streams)) == 9


def test_derived_keys_are_hmacs():
    """RFC 4231, test case 2."""
    assert discrete_gaussian.derive_key(b'Jefe', 'what do ya want for nothing?').hex() == (
        '5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843'
    )
