"""Tokens of workers: their files, the keys derived from them, and the addresses they belong to."""

import hashlib
import os
import stat

import pytest

from dpfl.runtime.workers import addresses, credentials, tokens

_DIGITS = '0123456789abcdef' * 4


def _file(path, text, mode=0o600):
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_token_is_made_once_and_is_its_owners_alone(tmp_path):
    path = tmp_path / 'worker.token'
    previous = os.umask(0)
    try:
        assert tokens.make(path)
    finally:
        os.umask(previous)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    token = tokens.read(path)
    assert len(token) == 32
    assert not tokens.make(path)
    assert tokens.read(path) == token
    assert tokens.make(tmp_path / 'other')
    assert tokens.read(tmp_path / 'other') != token
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ['other', 'worker.token']


@pytest.mark.parametrize('mode', [0o604, 0o640, 0o601])
def test_a_file_that_is_open_to_others_is_refused(tmp_path, mode):
    path = _file(tmp_path / 'worker.token', _DIGITS, mode)
    with pytest.raises(ValueError, match='token_file=.*: must be of this user, and closed to oth'):
        tokens.read(path)


@pytest.mark.parametrize(
    'text',
    ['', _DIGITS[:-1], _DIGITS.replace('f', 'g'), '\u0663' * 64, 'x' * 100_000],
    ids=range(5),
)
def test_what_is_no_token_is_refused_and_not_shown(tmp_path, text):
    path = _file(tmp_path / 'worker.token', text)
    with pytest.raises(ValueError, match='must hold 64 hexadecimal digits') as caught:
        tokens.read(path)
    assert '\n' not in str(caught.value)
    assert not text.strip() or text.strip()[:8] not in str(caught.value)


def test_what_is_no_file_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / 'pipe', 0o600)
    for path, message in [
        (tmp_path / 'missing', r'must be readable \(No such file or directory\)'),
        (tmp_path, 'must be a regular file'),
        (tmp_path / 'pipe', 'must be a regular file'),
        ('/dev/zero', 'must be a regular file'),
    ]:
        with pytest.raises(ValueError, match=f'^token_file=.*: {message}'):
            tokens.read(path)


_TOKEN = bytes(range(32))


def _certificate(pem):
    return pem[pem.index('-----BEGIN CERTIFICATE') :]


def test_each_side_accepts_what_the_other_one_shows():
    worker, run = credentials.for_worker(_TOKEN), credentials.for_run(_TOKEN)
    assert _certificate(worker.own) == run.peer
    assert _certificate(run.own) == worker.peer
    assert worker.peer != run.peer
    assert 'PRIVATE' not in repr(run) and 'PRIVATE' not in run.peer
    other = bytes([_TOKEN[0] ^ 1]) + _TOKEN[1:]
    for side in (credentials.for_worker, credentials.for_run):
        assert side(other).peer != side(_TOKEN).peer and side(other).own != side(_TOKEN).own


def test_they_follow_from_the_token_alone():
    # Two hosts with other versions of the library must derive the same bytes.
    digests = [
        hashlib.sha256(side(_TOKEN).own.encode()).hexdigest()
        for side in (credentials.for_worker, credentials.for_run)
    ]
    assert digests == [
        'd306d2514a21ab3af235061faaca1c065a7a75907ab6d6f3ea2ae63bddbecb46',
        '86659bb5da5f8819226d998eaed5d3458afbe6609f0ae4209ffb7606ce179ef6',
    ]


@pytest.mark.parametrize('text', ['', 'localhost', ':8000', 'localhost:0', '::1:8000', 'a b:80'])
def test_what_is_no_address_is_refused(text):
    (found,) = addresses.parse(['[::1]:65535'])
    assert (found.host, found.port, str(found)) == ('::1', 65535, '[::1]:65535')
    with pytest.raises(ValueError, match='workers=.*: must be host:port'):
        addresses.parse(['localhost:1', text])


def test_tokens_are_for_all_or_one_each_and_are_not_shown():
    workers = ['a:1', 'b:1']
    for given, expected in [
        ([], [None, None]),
        ([b'x'], [b'x', b'x']),
        ([b'x', b'y'], [b'x', b'y']),
    ]:
        found = addresses.parse(workers, given)
        assert [address.token for address in found] == expected
        assert addresses.parse(found) == found
        assert [address.token for address in addresses.parse(found)] == expected
        assert 'token' not in repr(found) and "b'x'" not in repr(found)
    with pytest.raises(ValueError, match='tokens=. of them: must be one, or one for each of 2'):
        addresses.parse(workers, [b'x'] * 3)
    with pytest.raises(ValueError, match='workers=a:1: must be given once'):
        addresses.parse(['a:1', 'a:1'], [b'x', b'y'])
