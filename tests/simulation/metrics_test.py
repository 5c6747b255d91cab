"""The metrics of a run: `metrics.csv`, TensorBoard events and the plot."""

import numpy as np
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing import event_accumulator

from dpfl import errors
from dpfl.simulation import metrics, run_directory
from tests import runs


def _events(path, name):
    """Steps and values in TensorBoard."""
    events = event_accumulator.EventAccumulator(str(path / 'tensorboard'))
    events.Reload()
    return {each.step: tf.make_ndarray(each.tensor_proto) for each in events.Tensors(name)}


def _release(directory, rows, start=()):
    with metrics.Metrics(directory, 9, rows=start) as recorded:
        for row in rows:
            values = dict(row)
            recorded.release(values.pop('round'), values)
    return recorded


_ROWS = [
    {'round': 1, 'epsilon': 0.1},
    {'round': 2, 'epsilon': 1 / 3, 'loss': 1e-7},
    {'round': 3, 'epsilon': float('inf'), 'x, "y"': 3.0},
    {'round': 4, 'loss': float('nan')},
]


@pytest.mark.parametrize('done', [0, 3, 4])
def test_metrics_go_on_from_the_rows_of_a_checkpoint(tmp_path, monkeypatch, done):
    monkeypatch.setattr(metrics.Metrics, '_plot', lambda self: None)  # Takes a second.
    for name in ('whole', 'run'):
        (tmp_path / name).mkdir()
    whole = run_directory.RunDirectory(tmp_path / 'whole')
    _release(whole, _ROWS)
    directory = run_directory.RunDirectory(tmp_path / 'run')
    # More rows than the checkpoint has, the last one cut off, and of another run at that.
    _release(directory, [{**row, 'epsilon': 5.0} for row in _ROWS])
    with open(directory.path / 'metrics.csv', 'a') as file:
        file.write('5,1.')
    recorded = _release(directory, _ROWS[done:], start=_ROWS[:done])
    expected, found = (d.path / 'metrics.csv' for d in (whole, directory))
    assert found.read_bytes() == expected.read_bytes()
    assert [row['round'] for row in runs.metrics(directory.path)] == ['1', '2', '3', '4']
    assert recorded.rows == _ROWS and recorded.last['epsilon'] == float('inf')
    assert _events(directory.path, 'epsilon') == {1: np.float32(0.1), 2: np.float32(1 / 3)}


@pytest.mark.parametrize('name', ['metrics.csv', 'tensorboard'])
def test_metrics_that_cannot_be_written_are_named(tmp_path, name):
    directory = run_directory.RunDirectory(tmp_path)
    expected = pytest.raises(errors.StorageError, match=f'{tmp_path}/{name}: .*')
    with expected as caught, metrics.Metrics(directory, 9) as recorded:
        recorded.release(1, {'loss': 1.0})
        if name == 'metrics.csv':
            (tmp_path / name).unlink()
            (tmp_path / name).mkdir()
        else:
            (tmp_path / name).rename(tmp_path / 'gone')
            (tmp_path / name).touch()
            metrics.Metrics(directory, 9)
        recorded.release(2, {'loss': 1.0})
    assert '\n' not in str(caught.value)


def test_a_name_that_the_font_cannot_show_gives_no_warning(tmp_path, recwarn):
    path = tmp_path / '\u6d4b\u8bd5'
    path.mkdir()
    directory = run_directory.RunDirectory(path)
    with metrics.Metrics(directory, 9) as recorded:
        recorded.release(1, {'loss': 1.0})
    assert not [each for each in recwarn if 'Glyph' in str(each.message)]


def test_a_run_that_fails_shows_its_error_and_not_that_of_its_plot(tmp_path, monkeypatch):
    def fail(*args):
        raise ImportError('failed to map segment from shared object')

    monkeypatch.setattr(metrics.plots, 'training_curves', fail)
    with (
        pytest.raises(MemoryError),
        metrics.Metrics(run_directory.RunDirectory(tmp_path), 9) as recorded,
    ):
        recorded.release(1, {'loss': 1.0})
        raise MemoryError
