"""Key pairs of signatures, as files."""

import pathlib
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519


def private_pem(key: Any, hiding: Any = None) -> bytes:
    """A private key of any kind as PEM, encrypted if `hiding` says how."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        hiding or serialization.NoEncryption(),
    )


def public_pem(key: Any) -> bytes:
    """The public half of a private key as PEM."""
    return key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def write(private: pathlib.Path, public: pathlib.Path, key: Any = None) -> None:
    """Writes the halves of a key, or of a new Ed25519 one; only the owner reads the private one."""
    key = key or ed25519.Ed25519PrivateKey.generate()
    private.touch(0o600)
    private.write_bytes(private_pem(key))
    public.write_bytes(public_pem(key))
