"""The directory of a run and what is written there."""

import pytest

from dpfl import ParticipationLog, _storage, errors
from dpfl.simulation import metrics, outputs


def test_an_earlier_run_is_not_lost_by_accident(tmp_path):
    outputs.RunDirectory(tmp_path).write_text('flags.txt', 'mine')
    with pytest.raises(ValueError, match='must not hold an earlier run .flags.txt exists'):
        outputs.RunDirectory(tmp_path)
    assert (tmp_path / 'flags.txt').read_text() == 'mine'


def test_overwriting_removes_the_files_of_the_run_and_no_others(tmp_path):
    outputs.RunDirectory(tmp_path).write_text('flags.txt', 'mine')
    for name in ('plots', 'checkpoints', 'tensorboard'):
        (tmp_path / name).mkdir()
        (tmp_path / name / 'a.png').touch()
    for name in ('notes.txt', 'ledger.jsonl', 'privacy_report.json.sig'):
        (tmp_path / name).touch()
    outputs.RunDirectory(tmp_path, overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ['notes.txt']


def test_a_run_that_goes_on_loses_its_report_with_the_signature(tmp_path):
    directory = outputs.RunDirectory(tmp_path)
    for name in ('privacy_report.json', 'privacy_report.json.sig', 'notes.txt', 'ledger.jsonl'):
        (tmp_path / name).touch()
    directory.forget_results()
    assert sorted(path.name for path in tmp_path.iterdir()) == ['ledger.jsonl', 'notes.txt']


def test_a_directory_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / 'file').touch()
    with pytest.raises(ValueError, match='directory=.*/file/run: must be writable'):
        outputs.RunDirectory(tmp_path / 'file' / 'run')


def test_files_are_whole_or_not_there(tmp_path, monkeypatch):
    directory = outputs.RunDirectory(tmp_path)
    directory.write_text('flags.txt', 'old')

    def fail(*args):
        raise OSError('disk full')

    monkeypatch.setattr(_storage.os, 'fsync', fail)
    with pytest.raises(errors.StorageError, match='flags.txt: disk full'):
        directory.write_text('flags.txt', 'new')
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [('flags.txt', 'old')]


def test_what_no_guarantee_covers_is_for_its_owner_only(tmp_path):
    directory = outputs.RunDirectory(tmp_path)
    directory.write_log(ParticipationLog([[1, 2]]))
    for name in ('data.json', 'profile.json', 'flags.txt', 'notes.txt'):
        (tmp_path / f'{name}.partial').touch(mode=0o644)  # A killed process has left it.
        directory.write_text(name, 'text')
    with metrics.Metrics(directory, 9) as recorded:
        recorded.release(1, {'epsilon': 0.1})
        recorded.release(2, {'loss': 0.1})
    directory.write_digests()
    key = directory.data_key(is_new=True)
    assert len(key) == 32 and directory.data_key(is_new=True) == directory.data_key(False) == key
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes.pop('notes.txt') & 0o077 and modes.pop('plots') & 0o077
    assert modes.pop('tensorboard') == modes.pop('checkpoints') == 0o700
    assert set(modes) == {
        'participation.npz',
        'data.json',
        'profile.json',
        'flags.txt',
        'metrics.csv',
        'SHA256SUMS',
    }
    assert set(modes.values()) == {0o600}
    assert (tmp_path / 'plots' / 'training.png').stat().st_mode & 0o777 == 0o600
    assert (tmp_path / 'checkpoints' / 'data.key').stat().st_mode & 0o777 == 0o600


def test_a_run_that_goes_on_needs_the_key_of_its_data(tmp_path):
    with pytest.raises(errors.StorageError, match='data.key: No such file'):
        outputs.RunDirectory(tmp_path, resume=True).data_key(is_new=False)
    assert not (tmp_path / 'checkpoints').exists()


def test_a_directory_is_in_use_until_the_outermost_context_ends(tmp_path):
    directory = outputs.RunDirectory(tmp_path)
    with directory.in_use():
        with directory.in_use():
            pass
        with pytest.raises(errors.StorageError, match='is in use by another run'):
            with outputs.RunDirectory(tmp_path).in_use():
                pass
    with outputs.RunDirectory(tmp_path).in_use():
        pass
