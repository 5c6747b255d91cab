"""The attack on digests finds what older versions left, and nothing in a run of this one."""

import hashlib
import json
import subprocess
import sys

import pytest

from benchmarks.attacks import digests
from dpfl.simulation import data_digest
from tests import binaries

pytestmark = pytest.mark.tff
_CODE, _GUESSES = '0041', 50
_SCRIPT = binaries.ROOT / 'benchmarks' / 'attacks' / 'digests.py'


@pytest.fixture(scope='module', name='run')
def _run(tmp_path_factory):
    return digests.train(tmp_path_factory.mktemp('attacked'), _CODE)


def _attack(run):
    return subprocess.run(
        [sys.executable, str(_SCRIPT), f'--run_dir={run}', f'--guesses={_GUESSES}'],
        cwd='/',
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )


@pytest.mark.exhaustive
def test_nothing_is_found_in_a_run(run):
    done = _attack(run)
    assert (done.returncode, done.stderr) == (0, '')
    assert done.stdout.startswith(f'{_GUESSES} codes in ')
    assert done.stdout.endswith(' s: nothing found\n')


@pytest.fixture(name='planted')
def _planted(run):
    """Plants a file in the run, and takes it away."""
    path = run / 'planted.json'
    yield path
    path.unlink()


def _of_older_versions(run):
    description = json.loads((run / 'data.json').read_text())
    del description['confidential'], description['keyed_digests']
    file = digests.contents(_CODE)
    return (
        json.dumps(
            {
                'format': description.pop('format'),
                'bytes': len(file),
                'sha256': hashlib.sha256(file).hexdigest(),
                **description,
            },
            indent=2,
        )
        + '\n'
    )


@pytest.mark.exhaustive
def test_the_digest_and_the_size_that_older_versions_wrote_are_found(run, planted):
    planted.write_text(_of_older_versions(run))
    done = _attack(run)
    assert done.returncode == 1
    assert 'planted.json: has the size of the data' in done.stdout
    assert f'planted.json: has a digest by which the code is {_CODE}' in done.stdout


@pytest.mark.exhaustive
def test_a_digest_of_a_file_that_has_a_digest_without_a_key_is_found(run, planted):
    """Which is why the argument for SHA256SUMS needs the key in data.json."""
    planted.write_text(hashlib.sha256(_of_older_versions(run).encode()).hexdigest())
    assert f'the code is {_CODE}' in _attack(run).stdout


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    'left',
    [
        lambda file, key: hashlib.sha1(file).digest(),
        lambda file, key: hashlib.blake2b(file).hexdigest().encode(),
        lambda file, key: hashlib.md5(file.splitlines()[3]).hexdigest().upper().encode(),
        lambda file, key: data_digest.of_file(
            bytes(32), 'data', hashlib.sha256(file).hexdigest()
        ).encode(),
    ],
)
def test_other_digests_are_found(run, planted, left):
    planted.write_bytes(b'x ' + left(digests.contents(_CODE), None) + b' y')
    found, _ = digests.find(run, _GUESSES)
    assert found == [f'planted.json: has a digest by which the code is {_CODE}']


@pytest.mark.exhaustive
def test_the_key_is_what_protects_the_digests(run):
    """With the key of checkpoints/ the guesses can be tested, and only then."""
    key = (run / 'checkpoints' / 'data.key').read_bytes()
    plain = hashlib.sha256(digests.contents(_CODE)).hexdigest()
    written = json.loads((run / 'data.json').read_text())['keyed_digests']['data']
    assert data_digest.of_file(key, 'data', plain) == written
    assert data_digest.of_file(bytes(32), 'data', plain) != written


@pytest.mark.parametrize('flag', ['--guesses=0', '--guesses=10001'])
def test_bad_flags_are_refused(flag, monkeypatch, capsys):
    monkeypatch.setattr(sys, 'argv', [str(_SCRIPT), flag])
    with pytest.raises(SystemExit) as refused:
        digests.main()
    assert refused.value.code == 2 and f'{flag}: must be at least 1' in capsys.readouterr().err
