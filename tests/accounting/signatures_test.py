import os
import pathlib
import shutil
import subprocess

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa, x25519

from dpfl import errors
from dpfl.accounting.records import archive, signatures, verification
from tests import keys
from tests.accounting import archives

# RFC 8032, section 7.1, test 2: private key, public key, message, signature.
_RFC = (
    '4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb',
    '3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c',
    '72',
    '92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da'
    '085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00',
)
_RSA = rsa.generate_private_key(65537, 2048)
_OTHER = ed25519.Ed25519PrivateKey.generate()


@pytest.fixture(name='pair')
def _pair(tmp_path):
    """Files of a private and a public key: those of the RFC."""
    paths = tmp_path / 'key.pem', tmp_path / 'public.pem'
    keys.write(*paths, ed25519.Ed25519PrivateKey.from_private_bytes(bytes.fromhex(_RFC[0])))
    return paths


def _signed(folder, private, content):
    report = folder / 'report.json'
    report.write_bytes(content)
    signature = signatures.private_key('sign', private).sign(content)
    signatures.path_of(report).write_bytes(signature)
    return report


def test_the_signature_is_that_of_the_rfc(pair, tmp_path):
    message = bytes.fromhex(_RFC[2])
    report = _signed(tmp_path, pair[0], message)
    assert (tmp_path / 'report.json.sig').read_bytes().hex() == _RFC[3]
    key = signatures.public_key('public_key', pair[1])
    raw = key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    assert raw.hex() == _RFC[1]
    signatures.verify(report, message, key)


@pytest.mark.skipif(shutil.which('openssl') is None, reason='needs openssl')
def test_openssl_makes_the_keys_and_verifies_the_signature(tmp_path):
    def openssl(*arguments):
        return subprocess.run(
            ['openssl', *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
        )

    openssl('genpkey', '-algorithm', 'ed25519', '-out', 'key.pem')
    openssl('pkey', '-in', 'key.pem', '-pubout', '-out', 'public.pem')
    (tmp_path / 'key.pem').chmod(0o600)
    content = b'{"epsilon": 1}\n'
    report = _signed(tmp_path, tmp_path / 'key.pem', content)
    key = signatures.public_key('public_key', tmp_path / 'public.pem')
    signatures.verify(report, content, key)
    command = 'pkeyutl -verify -pubin -inkey public.pem -rawin -in report.json'.split()
    command += ['-sigfile', 'report.json.sig']
    assert openssl(*command).returncode == 0
    report.write_bytes(content.upper())
    assert openssl(*command).returncode != 0
    openssl('pkey', '-in', 'public.pem', '-pubin', '-outform', 'DER', '-out', 'public.der')
    assert signatures.fingerprint(key) == archive.sha256(tmp_path / 'public.der')


_CONTENT = b'{"epsilon": 1.5}\n'


@pytest.mark.parametrize('altered', [b'{"epsilon": 0.5}\n', _CONTENT[:-1], _CONTENT + b'\n', b''])
def test_an_altered_report_is_refused(pair, tmp_path, altered):
    report, key = _signed(tmp_path, pair[0], _CONTENT), signatures.public_key('public_key', pair[1])
    signatures.verify(report, _CONTENT, key)
    with pytest.raises(errors.DataError, match='not valid with this key'):
        signatures.verify(report, altered, key)
    other = _OTHER.public_key()
    with pytest.raises(errors.DataError, match=f'{signatures.fingerprint(other)}.*another key'):
        signatures.verify(report, _CONTENT, other)


@pytest.mark.parametrize(
    'change, message',
    [
        (lambda path, data: path.write_bytes(data[:5] + bytes([data[5] ^ 1]) + data[6:]), 'not v'),
        (
            lambda path, data: path.write_bytes(data[:63]),
            'is no signature: it has 63 bytes, not 64',
        ),
        (lambda path, data: path.unlink(), r'report.json.sig: no signature \(No such file'),
        (lambda path, data: (path.unlink(), os.mkfifo(path)), 'no signature'),
    ],
)
def test_an_altered_signature_is_refused(pair, tmp_path, change, message):
    report, key = _signed(tmp_path, pair[0], _CONTENT), signatures.public_key('public_key', pair[1])
    path = signatures.path_of(report)
    change(path, path.read_bytes())
    with pytest.raises(errors.DataError, match=message):
        signatures.verify(report, _CONTENT, key)


@pytest.mark.parametrize(
    'read, data, message',
    [
        (signatures.private_key, keys.private_pem(_RSA), 'must hold an Ed25519 key'),
        (
            signatures.private_key,
            keys.private_pem(x25519.X25519PrivateKey.generate()),
            'must hold an Ed25519 key',
        ),
        (
            signatures.private_key,
            keys.private_pem(_OTHER, serialization.BestAvailableEncryption(b'x')),
            'must not be encrypted',
        ),
        (signatures.private_key, b'', 'must hold a private key'),
        (signatures.private_key, b'-----BEGIN PRIVATE KEY-----\nAAAA\n', 'must hold a private key'),
        # The halves of a key are not mixed up.
        (signatures.private_key, keys.public_pem(_OTHER), 'must hold a private key'),
        (signatures.public_key, keys.private_pem(_OTHER), 'must hold a public key'),
        (signatures.public_key, keys.public_pem(_RSA), 'must hold an Ed25519 key'),
        (signatures.public_key, None, 'must be readable'),
    ],
)
def test_other_keys_are_refused(read, data, message, tmp_path):
    path = tmp_path / 'key.pem'
    if data is not None:
        path.touch(0o600)
        path.write_bytes(data)
    with pytest.raises(errors.ArgumentError, match=message) as caught:
        read('sign', path)
    assert caught.value.name == 'sign' and len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize('mode', [0o640, 0o604, 0o620, 0o644, 0o666])
def test_a_private_key_that_others_can_read_is_refused(pair, mode):
    private, _ = pair
    private.chmod(mode)
    with pytest.raises(errors.ArgumentError, match=r'closed to others \(chmod 600\)'):
        signatures.private_key('sign', private)
    private.chmod(0o400)
    signatures.private_key('sign', private)


def test_a_run_with_a_signed_report_is_still_verified(tmp_path):
    archives.write(tmp_path)
    listed = archive.digests(tmp_path)
    signature = tmp_path / archive.SIGNATURE
    assert signature == signatures.path_of(pathlib.Path(tmp_path / archive.REPORT))
    signature.write_bytes(bytes(64))
    assert archive.digests(tmp_path) == listed
    assert verification.verify(tmp_path).differences == ()
    # Anything else by that name is a file that was added.
    signature.write_bytes(bytes(65))
    (difference,) = verification.verify(tmp_path).differences
    assert difference == 'privacy_report.json.sig: was added, SHA256SUMS does not list it'
    signature.unlink()
    signature.symlink_to(tmp_path / 'metrics.csv')
    assert any('is a link' in each for each in verification.verify(tmp_path).differences)
