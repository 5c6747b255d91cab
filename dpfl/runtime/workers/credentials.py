"""Keys and certificates of a run and a worker, derived from the token that both have.

Each side derives the same two pairs of an Ed25519 key and a self-signed certificate, one pair for
the worker and one for the run. It proves that it has its own, and accepts the other one alone
(`tls.py`). Why that is enough:

- TLS 1.3 with a certificate on each side (RFC 8446) authenticates both: a handshake ends well only
  if the other side signs it with the key of its certificate. Signatures cover fresh random values
  of both sides, so those of an earlier handshake are of no use.
- The one certificate that a side accepts belongs to a key that HKDF (RFC 5869) derives from the
  token. The token has 256 random bits: nobody finds that key without it, although the handshake
  shows the certificates to whoever connects.
- The two keys differ, so that neither side can be shown its own certificate.

So whoever gets through a handshake has the token, on both sides. With it comes all that TLS 1.3
gives: encryption, integrity, and past connections that stay secret if the token is lost later.
"""

import dataclasses
import datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.kdf import hkdf

_PEM = serialization.Encoding.PEM
# Whatever the clocks say: a token ends when it is replaced.
_BEGIN = datetime.datetime(1970, 1, 1)
_END = datetime.datetime(9999, 12, 31, 23, 59, 59)


@dataclasses.dataclass(frozen=True)
class Credentials:
    """What a side of a connection shows, and what it accepts.

    Attributes:
      own: its private key and its certificate, PEM.
      peer: the certificate of the other side, PEM.
    """

    own: str = dataclasses.field(repr=False)
    peer: str


def for_worker(token: bytes) -> Credentials:
    """Those of a worker."""
    return Credentials(''.join(_pair(token, 'worker')), _pair(token, 'run')[1])


def for_run(token: bytes) -> Credentials:
    """Those of a run that uses the worker."""
    return Credentials(''.join(_pair(token, 'run')), _pair(token, 'worker')[1])


def _pair(token: bytes, role: str) -> tuple[str, str]:
    """The key and the certificate of a role, PEM: the same bytes wherever they are derived."""
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
