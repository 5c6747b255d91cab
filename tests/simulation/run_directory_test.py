"""The directory of a run: what is written there, by whom, and what an overwrite removes."""

import itertools
import shutil

import pytest

from dpfl import errors
from dpfl.simulation import program, run_directory
from tests.repository import threat_model
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


def test_a_run_that_never_begins_leaves_no_directory(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        with run_directory.RunDirectory(tmp_path / 'runs' / 'mine').in_use():
            raise KeyboardInterrupt
    assert not (tmp_path / 'runs').exists()
    (tmp_path / 'file').touch()
    with pytest.raises(ValueError, match='directory=.*/file/run: must be writable'):
        with run_directory.RunDirectory(tmp_path / 'file' / 'run').in_use():
            pass


def test_overwriting_removes_the_files_of_the_run_and_no_others(tmp_path):
    path, elsewhere = tmp_path / 'run', tmp_path / 'elsewhere'
    path.mkdir()
    for folder in (elsewhere, path / 'checkpoints', path / 'tensorboard'):
        folder.mkdir()
        (folder / 'a.png').touch()
    (path / 'plots').symlink_to(elsewhere)
    for name in ('notes.txt', 'flags.txt', 'ledger.jsonl', 'privacy_report.json.sig'):
        (path / name).touch()
    with run_directory.RunDirectory(path, overwrite=True).in_use():
        assert (path / 'ledger.jsonl').exists()  # Until the run begins.
    _overwrite(path)
    assert [each.name for each in path.iterdir()] == ['notes.txt']
    assert (elsewhere / 'a.png').exists()


def test_an_overwrite_deletes_no_folder_of_a_directory_without_a_run(tmp_path):
    """A folder `plots` of somebody's project was refused as a run, and deleted with overwrite."""
    (tmp_path / 'plots').mkdir()
    (tmp_path / 'plots' / 'mine.png').touch()
    with pytest.raises(errors.ArgumentError, match='must not hold plots: overwrite deletes an ear'):
        run_directory.RunDirectory(tmp_path, overwrite=True)


def test_a_run_that_goes_on_loses_its_report_with_the_signature(tmp_path):
    directory = run_directory.RunDirectory(tmp_path)
    for name in ('privacy_report.json', 'privacy_report.json.sig', 'notes.txt', 'ledger.jsonl'):
        (tmp_path / name).touch()
    directory.forget_results()
    assert sorted(path.name for path in tmp_path.iterdir()) == ['ledger.jsonl', 'notes.txt']


@pytest.mark.usefixtures('undrawn')
def test_what_no_guarantee_covers_is_for_its_owner_only(tmp_path):
    directory = run_directory.RunDirectory(tmp_path)
    program.run_training(toy_experiment.in_numpy(), directory)
    for name in ('data.json', 'flags.txt', 'notes.txt'):
        (tmp_path / f'{name}.partial').touch(mode=0o644)  # A killed process has left it.
        directory.write_text(name, 'text')
    assert threat_model.shared_by_mistake(tmp_path) == ['notes.txt']
    files = [tmp_path / name for name in threat_model.readers(tmp_path)]
    modes = {path.relative_to(tmp_path).as_posix(): path.stat().st_mode & 0o777 for path in files}
    private = {name for name, mode in modes.items() if mode == 0o600}
    assert {'cohorts.bin', 'ledger.jsonl', 'data.json', 'flags.txt', 'metrics.csv'} < private
    assert {'checkpoints/keys', 'participation.npz', 'SHA256SUMS'} < private
    public = ('notes.txt', 'model.npz', 'plan.json', 'privacy_report.json')
    assert all(modes[name] & 0o077 for name in public)
    for name in ('tensorboard', 'checkpoints'):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o700


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
