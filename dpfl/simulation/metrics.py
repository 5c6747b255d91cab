"""Metrics of a run: a CSV file, TensorBoard events, a progress bar and a plot."""

import asyncio
import concurrent.futures
import contextlib
import os
import pathlib
import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import _progress, _storage, errors
from dpfl.accounting.records import archive
from dpfl.mechanisms import rounding
from dpfl.reporting import plots
from dpfl.simulation.run_directory import RunDirectory


class Metrics:
    """Records the metrics of a run: `metrics.csv`, TensorBoard, a progress bar and a plot.

    A context manager. Leaving it closes the bar and draws the plot, also after an error.

    Args:
      directory: the directory of the run.
      rounds: number of rounds, for the bar.
      reference_accuracies: accuracies drawn as lines in the plot, by name.
      rows: metrics of the completed rounds, if the run continues. They replace everything that an
        earlier process has left in `metrics.csv` and for TensorBoard.
      progress: show the bar.

    Attributes:
      rows: a dictionary for each completed round, `round` first.
      last: the last value of each metric.

    Raises:
      StorageError: here and in `release`, if a file cannot be written.
    """

    def __init__(
        self,
        directory: RunDirectory,
        rounds: int,
        reference_accuracies: Mapping[str, float] | None = None,
        rows: Sequence[Mapping[str, float]] = (),
        *,
        progress: bool = True,
    ):
        self._directory = directory
        self._references = reference_accuracies or {}
        self.rows: list[Mapping[str, float]] = []
        self.last: dict[str, float] = {}
        csv_path, events_path = directory.path / archive.METRICS, directory.path / 'tensorboard'
        with _naming(events_path):
            if events_path.exists():
                shutil.rmtree(events_path)
            events_path.mkdir(mode=0o700)
            self._tensorboard = tff.program.TensorBoardReleaseManager(str(events_path))
        directory.write_text(archive.METRICS, archive.metrics_table(rows))
        with _naming(csv_path):
            self._csv = tff.program.CSVFileReleaseManager(str(csv_path), key_fieldname='round')
        # Rows are written in a separate thread: signals raise exceptions in the main thread only,
        # so they cannot interrupt the writing of a row.
        self._writer = concurrent.futures.ThreadPoolExecutor(max_workers=1)
        for row in rows:
            values = {name: value for name, value in row.items() if name != 'round'}
            self._keep(row['round'], values)
            self._writer.submit(self._write_events, row['round'], values).result()
        self._bar = _progress.bar(
            total=rounds,
            unit='round',
            initial=len(rows),
            disable=not progress,
        )

    def __enter__(self) -> 'Metrics':
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._writer.shutdown(wait=True)
        self._bar.close()
        # If the run failed, that is the error to show: the plot may fail for the same reason, such
        # as a full disk or a lack of memory.
        with contextlib.suppress(Exception) if error else contextlib.nullcontext():
            self._plot()

    def release(self, round_number: int, values: Mapping[str, float]) -> None:
        """Records the metrics after `round_number` rounds.

        Args:
          round_number: number of rounds.
          values: the metrics by name.

        Raises:
          StorageError: if they cannot be written.
        """
        self._writer.submit(self._write, round_number, values).result()
        self._keep(round_number, values)
        shown = [name for name in ('loss', 'accuracy') if name in self.last]
        latest: dict[str, str] = {name: f'{self.last[name]:.4g}' for name in shown}
        if 'epsilon' in self.last:
            latest['epsilon'] = rounding.round_up(self.last['epsilon'])
        self._bar.set_postfix(latest)
        self._bar.update()

    def _keep(self, round_number: float, values: Mapping[str, float]) -> None:
        self.rows.append({'round': round_number, **values})
        self.last.update(values)

    def _write(self, round_number: int, values: Mapping[str, float]) -> None:
        with _naming(self._directory.path / archive.METRICS):
            asyncio.run(self._csv.release(values, round_number))
            # TFF writes a new file if there is a new metric.
            os.chmod(self._directory.path / archive.METRICS, _storage.PRIVATE)
        self._write_events(round_number, values)

    def _write_events(self, round_number: float, values: Mapping[str, float]) -> None:
        finite = {name: value for name, value in values.items() if np.isfinite(value)}
        with _naming(self._directory.path / 'tensorboard'):
            asyncio.run(self._tensorboard.release(finite, round_number))

    def _plot(self) -> None:
        if not self.rows:
            return
        path = self._directory.path / plots.TRAINING
        figure = plots.training_curves(self.rows, self._references, self._directory.path.name)
        with _storage.naming(path):
            path.parent.mkdir(exist_ok=True)
        with warnings.catch_warnings():
            # A character of the run's name that the font does not have is drawn as a box.
            warnings.filterwarnings('ignore', 'Glyph .* missing from font')
            _storage.write_atomically(
                path, lambda file: figure.savefig(file, format='png', dpi=120), _storage.PRIVATE
            )


@contextlib.contextmanager
def _naming(path: pathlib.Path) -> Iterator[None]:
    """Like `_storage.naming`, but also converts the errors of TensorFlow's file system."""
    with _storage.naming(path):
        try:
            yield
        except tf.errors.OpError as error:
            message = ' '.join(error.message.split())
            # In these messages the reason follows the path.
            raise errors.StorageError(f'{path}: {message.partition("; ")[2] or message}') from error


def has_stopped(stop_at_accuracy: float | None, rows: Sequence[Mapping[str, float]]) -> bool:
    """Whether a run is over after the rounds of its metrics.

    Args:
      stop_at_accuracy: the accuracy at which it stops; None for a run without this rule.
      rows: metrics of the rounds so far; without an accuracy in rounds that were not evaluated.
    """
    if stop_at_accuracy is None or not rows:
        return False
    return rows[-1].get('accuracy', -1.0) >= stop_at_accuracy
