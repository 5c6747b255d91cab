"""The metrics of a run: `metrics.csv`, TensorBoard events, the plot, and a model made worse."""

import math

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


def test_tensorboard_has_the_clip_norm_of_each_round(tmp_path):
    directory = run_directory.RunDirectory(tmp_path)
    rows = [{'round': 1, 'loss': 1.0}, {'round': 2, 'loss': 1.0}]
    norms = {0: 0.5, 1: 0.25, 2: 0.125, 3: 9.0}
    with metrics.Metrics(directory, 9, rows=rows, clip_norm=norms.__getitem__) as recorded:
        recorded.release(3, {'loss': 1.0})
        recorded.release(4, {'clip_norm': 2.0})
    assert _events(tmp_path, 'clip_norm') == {1: 0.5, 2: 0.25, 3: 0.125, 4: 2.0}
    assert [row['clip_norm'] for row in runs.metrics(tmp_path)] == ['', '', '', '2.0']


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


@pytest.mark.parametrize(
    'losses, uniform, is_said',
    [
        ([], 4.6, False),
        ([4.6, 3.0], 4.6, False),
        ([4.6, 42.0], 4.6, True),
        ([4.6, 42.0], None, True),
        ([40.0, 42.0], 4.6, True),  # It had diverged before the first evaluation.
        ([40.0, 42.0], None, False),
        ([2.0, 4.0], 9.2, True),  # A public model was made worse.
        ([4.6, 5.0], 4.6, False),
        ([4.6, math.nan], None, True),
        ([4.6, math.inf], 4.6, True),
    ],
)
def test_a_loss_far_above_start_or_uniform_guess_is_said(losses, uniform, is_said):
    rows = [{'round': 1, 'epsilon': 1.0}, *({'round': t, 'loss': x} for t, x in enumerate(losses))]
    message = metrics.divergence(rows, uniform)
    assert (message is not None) == is_said
    if is_said:
        assert f'ended at {losses[-1]:.3g}' in message
        assert ('uniform' in message) == (uniform is not None)
