"""Token files: made once, readable only by their owner, refused in a line without the secret."""

import os
import stat
import threading

import pytest

from dpfl.runtime.workers import tokens

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


def test_of_many_who_make_it_one_does(tmp_path):
    path = tmp_path / 'worker.token'
    made = []
    threads = [threading.Thread(target=lambda: made.append(tokens.make(path))) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(made) == [False] * 15 + [True]
    assert len(tokens.read(path)) == 32
    assert [entry.name for entry in tmp_path.iterdir()] == ['worker.token']


def test_a_link_that_leads_nowhere_is_not_followed(tmp_path):
    (tmp_path / 'worker.token').symlink_to(tmp_path / 'elsewhere')
    assert not tokens.make(tmp_path / 'worker.token')
    assert not (tmp_path / 'elsewhere').exists()


@pytest.mark.parametrize('mode', [0o604, 0o640, 0o602, 0o660, 0o601])
def test_a_file_that_is_open_to_others_is_refused(tmp_path, mode):
    path = _file(tmp_path / 'worker.token', _DIGITS, mode)
    with pytest.raises(ValueError, match='token_file=.*: must be of this user, and closed to oth'):
        tokens.read(path)


@pytest.mark.skipif(os.geteuid() != 0, reason='only the superuser can give a file away')
def test_a_file_of_another_user_is_refused(tmp_path):
    path = _file(tmp_path / 'worker.token', _DIGITS)
    os.chown(path, 12345, -1)
    with pytest.raises(ValueError, match='must be of this user'):
        tokens.read(path)


@pytest.mark.parametrize(
    'text',
    [
        '',
        '\n',
        _DIGITS[:-1],
        _DIGITS + '0',
        _DIGITS.replace('f', 'g'),
        _DIGITS.upper(),
        f'{_DIGITS[:32]}\n{_DIGITS[32:]}',
        '\u0663' * 64,
        'x' * 100_000,
    ],
    ids=range(9),
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
