"""Keys and certificates of a run and a worker, derived from the token that both have.

Each side derives the same two pairs of an Ed25519 key and a self-signed certificate, one pair for
the worker and one for the run. It proves that it has its own key, and accepts only the other
certificate (`tls.py`). Why that is enough:

- TLS 1.3 with a certificate on each side (RFC 8446) authenticates both: a handshake succeeds only
  if the other side signs it with the key of its certificate. Signatures cover fresh random values
  of both sides, so those of an earlier handshake cannot be reused.
- The one certificate that a side accepts belongs to a key that HKDF (RFC 5869) derives from the
  token. The token has 256 random bits, so nobody finds that key without it, although the handshake
  shows the certificates to whoever connects.
- The two keys differ, so that a side cannot be shown its own certificate.

So both sides of a successful handshake have the token. TLS 1.3 adds encryption, integrity, and
forward secrecy: past connections stay secret if the token leaks later.
"""

import dataclasses
import datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.kdf import hkdf

_PEM = serialization.Encoding.PEM
# Valid whatever the clocks say: a token is revoked by replacing it.
_BEGIN = datetime.datetime(1970, 1, 1)
_END = datetime.datetime(9999, 12, 31, 23, 59, 59)


@dataclasses.dataclass(frozen=True)
class Credentials:
    """What one side of a connection presents and accepts.

    Attributes:
      own: its private key and certificate, PEM.
      peer: the certificate of the other side, PEM.
    """

    own: str = dataclasses.field(repr=False)
    peer: str


def for_worker(token: bytes) -> Credentials:
    """Credentials of a worker."""
    return Credentials(''.join(_pair(token, 'worker')), _pair(token, 'run')[1])


def for_run(token: bytes) -> Credentials:
    """Credentials of a run that uses the worker."""
    return Credentials(''.join(_pair(token, 'run')), _pair(token, 'worker')[1])


def _pair(token: bytes, role: str) -> tuple[str, str]:
    """The private key and certificate of a role, PEM. Both sides derive the same bytes."""
    seed = hkdf.HKDF(
        hashes.SHA256(), length=32, salt=None, info=f'dpfl worker connection: {role}'.encode()
    ).derive(token)
    key = ed25519.Ed25519PrivateKey.from_private_bytes(seed)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f'dpfl {role}')])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(_BEGIN)
        .not_valid_after(_END)
        .sign(key, algorithm=None)
    )
    private = key.private_bytes(
        _PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private.decode(), certificate.public_bytes(_PEM).decode()
