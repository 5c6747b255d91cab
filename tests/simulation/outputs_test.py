"""The directory of a run and what is written there."""

import csv

import numpy as np
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing import event_accumulator

from dpfl import ParticipationLog, _storage, errors
from dpfl.simulation import outputs


def test_an_earlier_run_is_not_lost_by_accident(tmp_path):
    outputs.RunDirectory(tmp_path).write_text('flags.txt', 'mine')
    with pytest.raises(ValueError, match='must not hold an earlier run .flags.txt exists'):
        outputs.RunDirectory(tmp_path)
    assert (tmp_path / 'flags.txt').read_text() == 'mine'


def test_an_earlier_run_is_left_alone_to_be_resumed(tmp_path):
    outputs.RunDirectory(tmp_path).write_text('flags.txt', 'mine')
    outputs.RunDirectory(tmp_path, resume=True)
    assert (tmp_path / 'flags.txt').read_text() == 'mine'


def test_overwriting_removes_the_files_of_the_run_and_no_others(tmp_path):
    outputs.RunDirectory(tmp_path).write_text('flags.txt', 'mine')
    for name in ('plots', 'checkpoints', 'tensorboard'):
        (tmp_path / name).mkdir()
        (tmp_path / name / 'a.png').touch()
    for name in ('notes.txt', 'ledger.jsonl'):
        (tmp_path / name).touch()
    outputs.RunDirectory(tmp_path, overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ['notes.txt']


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
    _release(directory, [{'round': 1, 'epsilon': 0.1}, {'round': 2, 'loss': 0.1}])
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


def _metrics_of(path):
    with open(path / 'metrics.csv') as file:
        return list(csv.DictReader(file))


def _release(directory, rows, start=()):
    with outputs.Metrics(directory, 9, rows=start) as metrics:
        for row in rows:
            values = dict(row)
            metrics.release(values.pop('round'), values)
    return metrics


_ROWS = [
    {'round': 1, 'epsilon': 0.1},
    {'round': 2, 'epsilon': 1 / 3, 'loss': 1e-7},
    {'round': 3, 'epsilon': float('inf'), 'x, "y"': 3.0},
    {'round': 4, 'loss': float('nan')},
]


@pytest.mark.parametrize('done', [0, 1, 3, 4])
def test_metrics_go_on_from_the_rows_of_a_checkpoint(tmp_path, done):
    whole = outputs.RunDirectory(tmp_path / 'whole')
    _release(whole, _ROWS)
    directory = outputs.RunDirectory(tmp_path / 'run')
    # More rows than the checkpoint has, the last one cut off, and of another run at that.
    _release(directory, [{**row, 'epsilon': 5.0} for row in _ROWS])
    with open(directory.path / 'metrics.csv', 'a') as file:
        file.write('5,1.')
    metrics = _release(directory, _ROWS[done:], start=_ROWS[:done])
    expected, found = (d.path / 'metrics.csv' for d in (whole, directory))
    assert found.read_bytes() == expected.read_bytes()
    assert [int(row['round']) for row in _metrics_of(directory.path)] == [1, 2, 3, 4]
    assert metrics.rows == _ROWS and metrics.last['epsilon'] == float('inf')
    events = event_accumulator.EventAccumulator(str(directory.path / 'tensorboard'))
    events.Reload()
    assert [event.step for event in events.Tensors('epsilon')] == [1, 2]
    assert tf.make_ndarray(events.Tensors('epsilon')[1].tensor_proto) == np.float32(1 / 3)


@pytest.mark.parametrize('name', ['metrics.csv', 'tensorboard'])
def test_metrics_that_cannot_be_written_are_named(tmp_path, name):
    directory = outputs.RunDirectory(tmp_path)
    expected = pytest.raises(errors.StorageError, match=f'{tmp_path}/{name}: .*')
    with expected as caught, outputs.Metrics(directory, 9) as metrics:
        metrics.release(1, {'loss': 1.0})
        if name == 'metrics.csv':
            (tmp_path / name).unlink()
            (tmp_path / name).mkdir()
        else:
            (tmp_path / name).rename(tmp_path / 'gone')
            (tmp_path / name).touch()
            outputs.Metrics(directory, 9)
        metrics.release(2, {'loss': 1.0})
    assert '\n' not in str(caught.value)


def test_a_run_that_fails_shows_its_error_and_not_that_of_its_plot(tmp_path, monkeypatch):
    def fail(*args):
        raise ImportError('failed to map segment from shared object')

    monkeypatch.setattr(outputs.plots, 'training_curves', fail)
    with pytest.raises(MemoryError), outputs.Metrics(outputs.RunDirectory(tmp_path), 9) as metrics:
        metrics.release(1, {'loss': 1.0})
        raise MemoryError


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
