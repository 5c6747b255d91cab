"""Signatures of reports: what `report_privacy --sign` writes and `--verify` prints."""

import json
import pathlib
import sys
from collections.abc import Callable

from dpfl import _json, _storage, errors
from dpfl.accounting.records import signatures
from dpfl.cli.command import command_line
from dpfl.cli.results import report_inputs


def signer(key_file: str) -> Callable[[pathlib.Path], None]:
    """A function that writes the signature of a report beside it.

    The key is read now, so that nothing is computed for a key that cannot be used.

    Args:
      key_file: file of the private key.

    Raises:
      UsageError: If it holds no private Ed25519 key, or others can read it.
    """
    with command_line.refusing_bad_values():
        key = signatures.private_key('sign', key_file)

    def sign(report: pathlib.Path) -> None:
        signature = key.sign(report_inputs.read('sign', report))
        path = signatures.path_of(report)
        _storage.write_atomically(path, lambda file: file.write(signature))
        print(
            f'{path}: signed with the key of SHA-256 {signatures.fingerprint(key.public_key())}',
            file=sys.stderr,
        )

    return sign


def verified(name: str, key_file: str, form: str) -> str:
    """Verifies the signature of a report, and says so.

    Args:
      name: the report, a file or the directory of a run.
      key_file: file of the public key.
      form: 'text' or 'json'.

    Raises:
      UsageError: If a file cannot be used, or the form is another one.
      DataError: If there is no signature, or it is not valid.
    """
    if form not in ('text', 'json'):
        raise command_line.UsageError(f'--format={form}: must be text or json with --verify')
    with command_line.refusing_bad_values():
        key = signatures.public_key('public_key', key_file)
    path = report_inputs.path_of(name)
    content = report_inputs.read('verify', path)
    signatures.verify(path, content, key)
    values = {
        'report': str(path),
        'signature': str(signatures.path_of(path)),
        'is_valid': True,
        'public_key_sha256': signatures.fingerprint(key),
        'statement': _statement(content),
    }
    if form == 'json':
        return json.dumps(values, indent=2)
    said = f'\nIt states: {values["statement"]}' if values['statement'] else ''
    return (
        f'{errors.shown(path)}: the signature is valid: the report is, byte by byte, what was '
        f'signed with the key of SHA-256 {values["public_key_sha256"]}.{said}\nA signature says '
        'who stands by a report, not that it is right.'
    )


def _statement(content: bytes) -> str | None:
    """The guarantee in words, as the report says it; None if it says none."""
    try:
        found = _json.loads(content)['statement']
    except (ValueError, KeyError, TypeError):
        return None
    return errors.shown(found, 1000) if isinstance(found, str) else None
