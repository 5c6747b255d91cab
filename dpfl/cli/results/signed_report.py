"""Signatures of reports: files of `report_privacy --sign`, and texts of `--verify`."""

import json
import pathlib
import sys
from collections.abc import Callable

from dpfl import _storage, errors
from dpfl.accounting.records import signatures
from dpfl.cli.command import command_line
from dpfl.cli.results import report_inputs


def signer(key_file: str) -> Callable[[pathlib.Path, bytes], None]:
    """A function that writes the signature of a report, with the bytes of its file, beside it.

    The key is read now, so that nothing is computed for a key that cannot be used.

    Args:
      key_file: file of the private key.

    Raises:
      UsageError: If it holds no private Ed25519 key, or others can read it.
    """
    with command_line.refusing_bad_values():
        key = signatures.private_key('sign', key_file)

    def sign(report: pathlib.Path, content: bytes) -> None:
        signature = key.sign(content)
        path = signatures.path_of(report)
        _storage.write_atomically(path, lambda file: file.write(signature))
        print(
            f'{path}: signed with the key of SHA-256 {signatures.fingerprint(key.public_key())}',
            file=sys.stderr,
        )

    return sign


def verified(name: str, key_file: str, form: str) -> str:
    """Verifies the signature of a report, computes the report again, and gives the verdict.

    Args:
      name: the report, a file or the directory of a run.
      key_file: file of the public key.
      form: 'text' or 'json'.

    Raises:
      UsageError: If a file cannot be used, or the form is another one.
      DataError: If there is no signature, it is not valid, or the report states something that
        does not follow from its plan.
    """
    if form not in ('text', 'json'):
        raise command_line.UsageError(f'--format={form}: must be text or json with --verify')
    with command_line.refusing_bad_values():
        key = signatures.public_key('public_key', key_file)
    path = report_inputs.path_of(name)
    content = report_inputs.read('verify', path)
    statement, notes = signatures.signed_statement(path, content, key)
    values = {
        'report': str(path),
        'signature': str(signatures.path_of(path)),
        'is_valid': True,
        'public_key_sha256': signatures.fingerprint(key),
        'statement': statement,
        'notes': notes,
    }
    if form == 'json':
        return json.dumps(values, indent=2)
    return '\n'.join(
        [
            f'{errors.shown(path)}: the signature is valid: the report is, byte by byte, what was '
            f'signed with the key of SHA-256 {values["public_key_sha256"]}.',
            f'Computed again from its plan: {statement}',
            *notes,
            'A signature says who stands by a report, not that the run was like that.',
        ]
    )
