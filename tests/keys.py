"""Key pairs of signatures, as files."""

import pathlib

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519


def write(private: pathlib.Path, public: pathlib.Path) -> None:
    """Writes the two halves of a new Ed25519 key as PEM; only the owner reads the private one."""
    key = ed25519.Ed25519PrivateKey.generate()
    private.touch(0o600)
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    public.write_bytes(
        key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
