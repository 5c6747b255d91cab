"""The directory of a run: what is written there, by whom, and what an overwrite removes."""

import itertools
import shutil

import pytest

from dpfl import _storage, errors
from dpfl.simulation import program, run_directory
from tests.simulation import toy_experiment


def test_an_earlier_run_is_not_lost_by_accident(tmp_path):
    run_directory.RunDirectory(tmp_path).write_text('flags.txt', 'mine')
    with pytest.raises(ValueError, match='must not hold an earlier run .flags.txt exists'):
        run_directory.RunDirectory(tmp_path)
    assert (tmp_path / 'flags.txt').read_text() == 'mine'
    (tmp_path / 'flags.txt').unlink()
    (tmp_path / 'ledger.jsonl').symlink_to('nowhere')
    with pytest.raises(ValueError, match='must not hold an earlier run .ledger.jsonl exists'):
        run_directory.RunDirectory(tmp_path)


def test_overwriting_removes_the_files_of_the_run_and_no_others(tmp_path):
    run_directory.RunDirectory(tmp_path).write_text('flags.txt', 'mine')
    for name in ('plots', 'checkpoints', 'tensorboard'):
        (tmp_path / name).mkdir()
        (tmp_path / name / 'a.png').touch()
    for name in ('notes.txt', 'ledger.jsonl', 'privacy_report.json.sig'):
        (tmp_path / name).touch()
    with run_directory.RunDirectory(tmp_path, overwrite=True).in_use():
        assert (tmp_path / 'ledger.jsonl').exists()  # Until the run begins.
        run_directory.RunDirectory(tmp_path, resume=True).clear()
    assert [path.name for path in tmp_path.iterdir()] == ['notes.txt']


def test_a_run_that_goes_on_loses_its_report_with_the_signature(tmp_path):
    directory = run_directory.RunDirectory(tmp_path)
    for name in ('privacy_report.json', 'privacy_report.json.sig', 'notes.txt', 'ledger.jsonl'):
        (tmp_path / name).touch()
    directory.forget_results()
    assert sorted(path.name for path in tmp_path.iterdir()) == ['ledger.jsonl', 'notes.txt']


def test_a_directory_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / 'file').touch()
    with pytest.raises(ValueError, match='directory=.*/file/run: must be writable'):
        with run_directory.RunDirectory(tmp_path / 'file' / 'run').in_use():
            pass


def test_a_run_that_never_begins_leaves_no_directory(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        with run_directory.RunDirectory(tmp_path / 'runs' / 'mine').in_use():
            raise KeyboardInterrupt
    assert not (tmp_path / 'runs').exists()


def test_files_are_whole_or_not_there(tmp_path, monkeypatch):
    directory = run_directory.RunDirectory(tmp_path)
    directory.write_text('flags.txt', 'old')

    def fail(*args):
        raise OSError('disk full')

    monkeypatch.setattr(_storage.os, 'fsync', fail)
    with pytest.raises(errors.StorageError, match='flags.txt: disk full'):
        directory.write_text('flags.txt', 'new')
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [('flags.txt', 'old')]


@pytest.mark.usefixtures('undrawn')
def test_what_no_guarantee_covers_is_for_its_owner_only(tmp_path):
    program.run_training(
        toy_experiment.in_numpy(profile=True), run_directory.RunDirectory(tmp_path)
    )
    for name in ('data.json', 'flags.txt', 'notes.txt'):
        (tmp_path / f'{name}.partial').touch(mode=0o644)  # A killed process has left it.
        run_directory.RunDirectory(tmp_path, resume=True).write_text(name, 'text')
    modes = {
        str(path.relative_to(tmp_path)): path.stat().st_mode & 0o777 for path in tmp_path.rglob('*')
    }
    private = {
        'participation.npz',
        'cohorts.bin',
        'ledger.jsonl',
        'data.json',
        'profile.json',
        'flags.txt',
        'metrics.csv',
        'SHA256SUMS',
        'plots/training.png',
        'checkpoints/keys',
        'checkpoints/00000000.checkpoint',
    }
    assert {modes[name] for name in private} == {0o600}
    assert modes['tensorboard'] == modes['checkpoints'] == 0o700
    public = ('notes.txt', 'plots', 'model.npz', 'plan.json', 'privacy_report.json')
    assert all(modes[name] & 0o077 for name in public)


def test_a_directory_is_in_use_until_the_outermost_context_ends(tmp_path):
    directory = run_directory.RunDirectory(tmp_path)
    with directory.in_use():
        with directory.in_use():
            pass
        with pytest.raises(errors.StorageError, match='is in use by another run'):
            with run_directory.RunDirectory(tmp_path).in_use():
                pass
    with run_directory.RunDirectory(tmp_path).in_use():
        pass


def _overwrite(path):
    directory = run_directory.RunDirectory(path, overwrite=True)
    with directory.in_use():
        directory.clear()


def _interrupted_overwrite(path, monkeypatch, number):
    """Overwrites a run; the process ends before the removal of that number. False if none is."""
    remove, count = run_directory._remove, itertools.count()

    def stop(removed):
        if next(count) == number:
            raise KeyboardInterrupt
        remove(removed)

    monkeypatch.setattr(run_directory, '_remove', stop)
    try:
        _overwrite(path)
        return False
    except KeyboardInterrupt:
        return True
    finally:
        monkeypatch.undo()


@pytest.mark.usefixtures('undrawn')
def test_an_overwrite_that_was_interrupted_begins_no_other_run(tmp_path, monkeypatch):
    experiment, finished = toy_experiment.in_numpy(checkpoint_every=10), tmp_path / 'finished'
    program.run_training(experiment, run_directory.RunDirectory(finished))
    (finished / 'model.npz.partial').touch()
    for number in range(100):
        path = shutil.copytree(finished, tmp_path / str(number))
        if not _interrupted_overwrite(path, monkeypatch, number):
            break
        if (path / 'ledger.jsonl').exists():
            with pytest.raises(ValueError, match='must not hold an earlier run'):
                run_directory.RunDirectory(path)
            if not (path / 'checkpoints').exists():
                before = (path / 'ledger.jsonl').read_bytes()
                resumed = run_directory.RunDirectory(path, resume=True)
                with pytest.raises(errors.RunError, match='is no checkpoint|journal was cut'):
                    program.run_training(experiment, resumed)
                assert (path / 'ledger.jsonl').read_bytes() == before
        _overwrite(path)
        assert list(path.iterdir()) == []
    assert 10 < number < 99
    assert list(path.iterdir()) == []


def test_folders_that_are_links_are_overwritten_and_what_they_lead_to_stays(tmp_path):
    (tmp_path / 'plots').mkdir()
    (tmp_path / 'plots' / 'mine.png').touch()
    path = tmp_path / 'run'
    path.mkdir()
    (path / 'flags.txt').touch()
    (path / 'plots').symlink_to(tmp_path / 'plots')
    _overwrite(path)
    assert list(path.iterdir()) == [] and (tmp_path / 'plots' / 'mine.png').exists()
