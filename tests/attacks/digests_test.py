"""The attack on digests finds what older versions left, and nothing in a run of this one."""

import hashlib
import hmac
import json

import pytest

from dpfl.simulation import data_digest
from tests.attacks import digests

pytestmark = [pytest.mark.tff, pytest.mark.exhaustive]
_CODE, _GUESSES = '0041', 50


@pytest.fixture(scope='module', name='run')
def _run(tmp_path_factory):
    return digests.train(tmp_path_factory.mktemp('attacked'), _CODE)


def _of_older_versions(run):
    """A data.json with size and digest of the file."""
    description = json.loads((run / 'data.json').read_text())
    del description['confidential'], description['keyed_digests']
    file = digests.contents(_CODE)
    first = {'format': description.pop('format'), 'bytes': len(file)}
    values = {**first, 'sha256': hashlib.sha256(file).hexdigest(), **description}
    return (json.dumps(values, indent=2) + '\n').encode()


def test_digests_are_found_where_they_are_and_nowhere_else(run):
    assert digests.find(run, _GUESSES)[0] == []
    file, older = digests.contents(_CODE), _of_older_versions(run)
    plain = hashlib.sha256(file).hexdigest()
    planted = run / 'planted.json'
    told = f'planted.json: has a digest by which the code is {_CODE}'
    for left in (
        hashlib.sha256(older).hexdigest().encode(),  # Why SHA256SUMS needs the key in data.json.
        hashlib.sha1(file).digest(),
        hashlib.md5(file.splitlines()[3]).hexdigest().upper().encode(),
        data_digest.of_file(bytes(32), 'data', plain).encode(),
    ):
        planted.write_bytes(b'x ' + left + b' y')
        assert digests.find(run, _GUESSES)[0] == [told]
    planted.write_bytes(older)
    size = f'planted.json: has the size of the data, {len(file)} bytes'
    assert digests.find(run, _GUESSES)[0] == [size, told]
    planted.unlink()


def test_the_key_is_what_protects_the_digests(run):
    """With the key of checkpoints/ the guesses can be tested, and only then."""
    root = (run / 'checkpoints' / 'keys').read_bytes()
    key = hmac.new(root, b'data', hashlib.sha256).digest()
    plain = hashlib.sha256(digests.contents(_CODE)).hexdigest()
    written = json.loads((run / 'data.json').read_text())['keyed_digests']['data']
    assert data_digest.of_file(key, 'data', plain) == written
    assert data_digest.of_file(bytes(32), 'data', plain) != written
