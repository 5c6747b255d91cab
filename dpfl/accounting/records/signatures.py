"""Signatures of reports by Ed25519 (RFC 8032): who stands by these bytes.

A signature is a file of 64 bytes beside the report, over exactly the report's bytes, so `openssl
pkeyutl -verify -rawin` checks it as well. It says nothing about whether the report is right.
"""

import hashlib
import os
import pathlib
from typing import TYPE_CHECKING

from dpfl import _files, _json, errors
from dpfl.accounting.records import comparison
from dpfl.accounting.reports import report as report_lib

if TYPE_CHECKING:  # Only those who sign or verify need the package.
    from cryptography.hazmat.primitives.asymmetric import ed25519

SUFFIX = '.sig'
# Length of every signature.
BYTES = 64
_TAKEN = (
    'Taken from the report, since only the directory of the run can show it: what the log and the '
    'audit showed, which seeds were known, what else was released, and remarks.'
)
_JOINT = 'Not computed again: the joint guarantee with other runs.'


def path_of(report: pathlib.Path) -> pathlib.Path:
    """The file of a report's signature."""
    return report.with_name(report.name + SUFFIX)


def private_key(name: str, path: str | os.PathLike[str]) -> 'ed25519.Ed25519PrivateKey':
    """The private key in a PEM file, as `openssl genpkey -algorithm ed25519` makes it.

    Args:
      name: of the argument that the file comes from.
      path: of the file.

    Raises:
      ArgumentError: if there is no such file, users other than its owner can read or change it, or
        it holds no private Ed25519 key in the clear; the message does not show the contents.
    """
    from cryptography import exceptions
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ed25519

    data = _files.read_private(name, path)
    try:
        key = serialization.load_pem_private_key(data, password=None)
    except TypeError:  # What it raises without a password.
        raise errors.ArgumentError(name, path, 'must not be encrypted') from None
    except (ValueError, exceptions.UnsupportedAlgorithm):
        raise errors.ArgumentError(name, path, 'must hold a private key (PEM)') from None
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise errors.ArgumentError(name, path, 'must hold an Ed25519 key, not one of another type')
    return key


def public_key(name: str, path: str | os.PathLike[str]) -> 'ed25519.Ed25519PublicKey':
    """The public key in a PEM file, as `openssl pkey -pubout` makes it.

    Args:
      name: of the argument that the file comes from.
      path: of the file.

    Raises:
      ArgumentError: if the file cannot be read or holds no public Ed25519 key.
    """
    from cryptography import exceptions
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ed25519

    try:
        key = serialization.load_pem_public_key(_files.read_bytes(path))
    except OSError as error:
        raise errors.ArgumentError(name, path, f'must be readable ({error.strerror})') from None
    except (ValueError, exceptions.UnsupportedAlgorithm):
        raise errors.ArgumentError(name, path, 'must hold a public key (PEM)') from None
    if not isinstance(key, ed25519.Ed25519PublicKey):
        raise errors.ArgumentError(name, path, 'must hold an Ed25519 key, not one of another type')
    return key


def fingerprint(key: 'ed25519.Ed25519PublicKey') -> str:
    """SHA-256 of a public key in DER, in hexadecimal, to compare keys by eye."""
    from cryptography.hazmat.primitives import serialization

    der = key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return hashlib.sha256(der).hexdigest()


def verify(report: pathlib.Path, content: bytes, key: 'ed25519.Ed25519PublicKey') -> None:
    """Checks the signature in the file beside a report.

    Args:
      report: its file.
      content: its bytes.
      key: of whoever is said to have signed it.

    Raises:
      DataError: if there is no signature, or it is not that of these bytes by this key.
    """
    from cryptography import exceptions

    path = path_of(report)
    try:
        signature = _files.read_bytes(path)
    except OSError as error:
        raise errors.DataError.of_file(path, f'no signature ({error.strerror})') from None
    if len(signature) != BYTES:
        raise errors.DataError.of_file(
            path, f'is no signature: it has {len(signature)} bytes, not {BYTES}'
        )
    try:
        key.verify(signature, content)
    except exceptions.InvalidSignature:
        raise errors.DataError.of_file(
            report,
            f'its signature is not valid with this key (SHA-256 {fingerprint(key)}): the report '
            'or its signature was altered, or another key signed it',
        ) from None


def signed_statement(
    path: pathlib.Path, content: bytes, key: 'ed25519.Ed25519PublicKey'
) -> tuple[str, list[str]]:
    """Verifies a signed report and computes it again: whoever signed may have signed anything.

    Args:
      path: file of the report.
      content: its bytes.
      key: of whoever is said to have signed it.

    Returns:
      The statement that follows from the plan of the report, and notes about the rest of it.

    Raises:
      DataError: if the signature is missing or not valid, or the report states something that does
        not follow from its plan.
    """
    verify(path, content, key)
    try:
        report, differences = report_lib.read(content, with_selection=True)
    except ValueError as error:
        raise errors.DataError.of_file(
            path, f'was signed, and is not a privacy report ({errors.shown(error)})'
        ) from None
    wrong = [str(difference) for difference in differences if not difference.promises_less]
    if wrong:
        raise errors.DataError.of_file(
            path, f'was signed, and does not follow from its plan: {"; ".join(wrong)}'
        )
    values = report.to_dict()
    statement = values['selection']['statement'] if report.selected else values['statement']
    notes = [
        f'The report promises less: {difference}.'
        for difference in differences
        if comparison.is_number(difference.computed) and difference.where != 'text_version'
    ]
    if any(difference.where == 'text_version' for difference in differences):
        notes.append('Its words are those of an older version of dpfl, and were not compared.')
    joint = [_JOINT] if 'composition' in _json.loads(content) else []
    return statement, [*notes, *joint, _TAKEN]
