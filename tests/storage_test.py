"""Files that outlast faults: of the disk, and of others who move or remove them."""

import errno
import os
import pathlib
import shutil

import pytest

from dpfl import _storage, errors


@pytest.mark.parametrize('content', [None, b'', b'one\n', b'one\ntwo\nmore\n'])
def test_what_was_appended_is_never_begun_anew_or_at_another_length(tmp_path, content):
    path = tmp_path / 'ledger'
    _storage.append(path, b'one\n', 0)
    _storage.append(path, b'two\n', 4)
    assert path.read_bytes() == b'one\ntwo\n'
    path.unlink()
    message = 'ledger: No such file or directory'
    if content is not None:
        path.write_bytes(content)
        message = f'has {len(content)} bytes, must have the 8'
    with pytest.raises(errors.StorageError, match=message):
        _storage.append(path, b'three\n', 8)
    assert (path.read_bytes() if path.exists() else None) == content


@pytest.mark.parametrize('call', ['write', 'fsync'])
def test_a_write_that_fails_leaves_the_file_as_it_was(tmp_path, monkeypatch, call):
    path = tmp_path / 'ledger'
    _storage.append(path, b'one\n', 0)

    def fail(*args):
        raise OSError(errno.ENOSPC, 'No space left on device')

    target, size = path, 4
    if call == 'fsync':
        monkeypatch.setattr(_storage.os, 'fsync', fail)
    else:
        target, size = tmp_path / 'full', 0
        target.symlink_to('/dev/full')
    with pytest.raises(errors.StorageError, match='No space left on device'):
        _storage.append(target, b'two\n', size)
    if call == 'fsync':
        with pytest.raises(errors.StorageError, match='No space left on device'):
            _storage.write_atomically(path, lambda file: file.write(b'more'))
    assert path.read_bytes() == b'one\n' and not list(tmp_path.glob('*.partial'))


def test_nothing_but_a_file_is_replaced(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkfifo('pipe')
    (tmp_path / 'link').symlink_to('pipe')
    for name in ('pipe', 'link', '', '.', '..', '/', tmp_path):
        before = os.lstat(name or '.')
        with pytest.raises(errors.StorageError, match='is there, and is not a file'):
            _storage.write_atomically(pathlib.Path(name), lambda file: file.write(b'new'))
        assert os.path.samestat(os.lstat(name or '.'), before)


@pytest.mark.parametrize('change', ['removed', 'renamed', 'replaced'])
def test_a_locked_directory_that_is_not_there_any_more_is_noticed(tmp_path, change):
    path = tmp_path / 'run'
    path.mkdir()
    with _storage.locked(path):
        _storage.write_atomically(path / 'file', lambda file: file.write(b'mine'))
        _storage.append(path / 'ledger', b'one', 0)
        if change == 'removed':
            shutil.rmtree(path)
        else:
            path.rename(tmp_path / 'elsewhere')
        if change == 'replaced':
            path.mkdir()
            (path / 'file').write_bytes(b'of another run')
        message = 'run: was replaced' if change == 'replaced' else 'run: No such file or directory'
        with pytest.raises(errors.StorageError, match=message):
            _storage.write_atomically(path / 'file', lambda file: file.write(b'mine'))
        with pytest.raises(errors.StorageError, match=message):
            _storage.append(path / 'ledger', b'two', 3)
    if change == 'replaced':
        assert [(p.name, p.read_bytes()) for p in path.iterdir()] == [('file', b'of another run')]
        _storage.write_atomically(path / 'file', lambda file: file.write(b'no longer locked'))
    else:
        assert not path.exists()


def test_nothing_is_appended_in_a_directory_that_comes_while_the_file_is_opened(
    tmp_path, monkeypatch
):
    path, there = tmp_path / 'run', tmp_path / 'there'
    path.mkdir()
    opened = os.open

    def replaced(name, *options):
        monkeypatch.setattr(_storage.os, 'open', opened)
        path.rename(there)
        shutil.copytree(there, path)
        return opened(name, *options)

    with _storage.locked(path):
        _storage.append(path / 'ledger', b'one', 0)
        monkeypatch.setattr(_storage.os, 'open', replaced)
        with pytest.raises(errors.StorageError, match='run: was replaced'):
            _storage.append(path / 'ledger', b'two', 3)
    assert (path / 'ledger').read_bytes() == (there / 'ledger').read_bytes() == b'one'


def test_readers_share_a_directory_and_no_writer_comes_between(tmp_path):
    for first, second in ((True, False), (False, True), (False, False)):
        with _storage.locked(tmp_path, to_read=first):
            with pytest.raises(errors.StorageError, match='is in use by another run'):
                with _storage.locked(tmp_path, to_read=second):
                    pass
    with _storage.locked(tmp_path, to_read=True), _storage.locked(tmp_path, to_read=True):
        pass
    (tmp_path / 'file').touch()
    with pytest.raises(errors.StorageError, match='file: Not a directory'):
        with _storage.locked(tmp_path / 'file'):
            pass
