"""Checkpoints: what is read is what was written, or nothing; and saving in the background."""

import errno
import os
import stat
import threading

import numpy as np
import pytest

from dpfl import _storage, errors
from dpfl.simulation import checkpoint
from tests import runs

_STATE = [
    np.arange(6, dtype=np.float32).reshape(2, 3),
    np.asfortranarray(np.eye(3)),
    np.int64(7),
    np.array([1, -2], np.int64),
    np.zeros((0, 4), np.float32),
    np.array(True),
    b'name\0',
    b'',
]


def _checkpoint(rounds=2, state=tuple(_STATE)):
    return checkpoint.Checkpoint(rounds=rounds, head=f'{rounds:064}', state=state)


def _save(folder, *rounds, keep=3):
    with checkpoint.Writer(folder, keep) as writer:
        for number in rounds:
            writer.save(_checkpoint(number))
    return sorted(folder.iterdir())


def test_a_checkpoint_is_read_back(tmp_path):
    (path,) = _save(tmp_path, 2)
    saved, read = _checkpoint(), checkpoint.Checkpoint.read(path)
    assert (read.rounds, read.head) == (saved.rounds, saved.head)
    assert checkpoint.read_head(path) == saved.head
    for was, now in zip(saved.state, read.state, strict=True):
        assert type(now) is (bytes if isinstance(was, bytes) else np.ndarray)
        assert np.asarray(now).dtype == np.asarray(was).dtype
        np.testing.assert_array_equal(now, was)


def test_every_flipped_bit_and_every_length_is_refused(tmp_path):
    (path,) = _save(tmp_path, 2)
    whole = path.read_bytes()
    random = np.random.default_rng(0)
    damaged = [whole[:length] for length in range(len(whole))] + [whole + b'\0']
    for i in range(len(whole)):
        flipped = bytearray(whole)
        flipped[i] ^= 1 << random.integers(8)
        damaged.append(bytes(flipped))
    for data in damaged:
        path.write_bytes(data)
        with pytest.raises(checkpoint.CheckpointError) as caught:
            checkpoint.Checkpoint.read(path)
        assert '\n' not in str(caught.value) and str(path) in str(caught.value)


@pytest.mark.parametrize(
    'data, message',
    [
        (b'', 'is not a checkpoint'),
        (b'\x89PNG\r\n\x1a\n', 'is not a checkpoint'),
        (b'PK\x03\x04', 'is not a checkpoint'),
        (b'dpfl checkpoint 1\nof the past', 'has format 1, this version reads 2'),
        (b'dpfl checkpoint 2\n', 'is damaged or incomplete'),
    ],
)
def test_foreign_and_future_files_are_refused(tmp_path, data, message):
    path = tmp_path / '1.checkpoint'
    path.write_bytes(data)
    with pytest.raises(checkpoint.CheckpointError, match=f'1.checkpoint: {message}'):
        checkpoint.Checkpoint.read(path)


def test_the_latest_that_can_be_used_is_found_and_nothing_is_changed(tmp_path):
    *_, older, newer, newest = _save(tmp_path, 1, 2, 3)
    newest.write_bytes(newest.read_bytes()[:-1])
    newer.write_bytes(b'dpfl checkpoint 9\n')
    (tmp_path / 'notes.checkpoint').touch()
    assert checkpoint.latest(tmp_path / 'none', pytest.fail) is None
    before, refused = runs.contents(tmp_path), []
    assert checkpoint.latest(tmp_path, refused.append).rounds == 1
    assert refused == [
        f'{newest}: is damaged or incomplete',
        f'{newer}: has format 9, this version reads 2',
    ]
    older.write_bytes(b'')
    before[older] = b''
    with pytest.raises(checkpoint.CheckpointError, match='holds no checkpoint that can be used'):
        checkpoint.latest(tmp_path, refused.append)
    assert runs.contents(tmp_path) == before


def test_refused_ones_are_set_aside_and_not_overwritten(tmp_path):
    *_, last = _save(tmp_path, 1, 2)
    last.write_bytes(b'damaged')
    (tmp_path / '00000007.checkpoint.partial').write_bytes(b'killed')
    with checkpoint.Writer(tmp_path, 3, start=1) as writer:
        writer.save(_checkpoint(2))
    assert checkpoint.Checkpoint.read(last).rounds == 2
    assert (tmp_path / f'{last.name}.refused').read_bytes() == b'damaged'
    assert len(list(tmp_path.iterdir())) == 3


def test_the_last_ones_are_kept_for_their_owner_only(tmp_path):
    kept = _save(tmp_path / 'checkpoints', 0, 8, 9, 10, keep=2)
    assert [checkpoint.Checkpoint.read(path).rounds for path in kept] == [0, 9, 10]
    assert {stat.S_IMODE(path.stat().st_mode) for path in kept} == {0o600}
    assert stat.S_IMODE((tmp_path / 'checkpoints').stat().st_mode) == 0o700


def test_saving_does_not_hold_up_the_run(tmp_path, monkeypatch):
    go_on, write = threading.Event(), _storage.write_atomically

    def slow(*args, **kwargs):
        assert go_on.wait(30)
        write(*args, **kwargs)

    monkeypatch.setattr(_storage, 'write_atomically', slow)
    with checkpoint.Writer(tmp_path, 3) as writer:
        writer.save(_checkpoint(1))
        writer.check()
        assert not list(tmp_path.iterdir())
        go_on.set()
        writer.wait()
        assert checkpoint.latest(tmp_path, pytest.fail).rounds == 1


@pytest.mark.parametrize('notice', ['save', 'wait', 'check', 'exit', 'another error'])
def test_a_save_that_failed_is_an_exception_of_the_next_call(tmp_path, monkeypatch, notice):
    _save(tmp_path, 1)
    before = runs.contents(tmp_path)

    def fail(*args):
        raise OSError(errno.ENOSPC, 'No space left on device')

    monkeypatch.setattr(os, 'replace', fail)
    expected = pytest.raises(errors.StorageError, match='00000002.checkpoint: No space left')
    if notice == 'another error':  # That of the run is not hidden.
        expected = pytest.raises(KeyError)
    with expected, checkpoint.Writer(tmp_path, 3, start=1) as writer:
        writer.save(_checkpoint(2))
        if notice == 'check':
            while True:
                writer.check()
        if notice == 'another error':
            raise KeyError
        if notice != 'exit':
            getattr(writer, notice)(*[_checkpoint(3)] * (notice == 'save'))
    assert runs.contents(tmp_path) == before


def test_its_size_does_not_depend_on_the_round(tmp_path):
    first, late = (path.stat().st_size for path in _save(tmp_path, 1, 20_000_000))
    assert abs(late - first) < 10
