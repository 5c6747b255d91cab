"""What a run leaves in its directory, and what it shows on the way."""

import asyncio
import concurrent.futures
import os
import pathlib
import shutil
from collections.abc import Mapping

import numpy as np
import tensorflow_federated as tff
import tqdm

from dpfl import accounting, plots
from dpfl.participation import ParticipationLog

_FILES = (
    'metrics.csv', 'privacy_report.json', 'privacy_report.md', 'participation.npz', 'model.npz',
    'flags.txt',
)
_FOLDERS = ('tensorboard', 'plots')


class RunDirectory:
    """The directory of one run.

    Args:
      path: is made if it does not exist.
      overwrite: delete the files of an earlier run there.

    Raises:
      ValueError: if the directory cannot be written, or holds an earlier run and `overwrite` is
        not set.
    """

    def __init__(self, path, *, overwrite: bool = False):
        self.path = pathlib.Path(path)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if not os.access(self.path, os.W_OK | os.X_OK):
                raise PermissionError(13, 'Permission denied')
            earlier = [name for name in _FILES + _FOLDERS if (self.path / name).exists()]
            if earlier and not overwrite:
                raise ValueError(
                    f'output_dir={path}: must not hold an earlier run ({earlier[0]} exists)'
                )
            for name in earlier:
                _remove(self.path / name)
        except OSError as error:
            raise ValueError(f'output_dir={path}: must be writable ({error.strerror})') from None

    def write_text(self, name: str, text: str) -> None:
        """Writes a file of the directory as a whole: it is never seen half written."""
        _write_atomically(self.path / name, lambda file: file.write(text.encode()))

    def write_log(self, log: ParticipationLog) -> None:
        """Writes `participation.npz`."""
        _write_atomically(self.path / 'participation.npz', log.save)

    def write_model(self, weights) -> None:
        """Writes `model.npz`: the trainable weights as arrays `0`, `1`, ..."""
        arrays = {str(i): np.asarray(weight) for i, weight in enumerate(weights.trainable)}
        _write_atomically(self.path / 'model.npz', lambda file: np.savez(file, **arrays))

    def write_report(self, report: accounting.PrivacyReport) -> None:
        """Writes `privacy_report.json` and `privacy_report.md`."""
        self.write_text('privacy_report.json', report.to_json() + '\n')
        self.write_text('privacy_report.md', report.render())


class Metrics:
    """Metrics of a run: `metrics.csv`, TensorBoard, a progress bar and a plot.

    A context manager; leaving it closes the bar and draws the plot, also after an error.

    Args:
      directory: of the run.
      rounds: number of rounds, for the bar.
      reference_accuracies: drawn as lines in the plot, by name.

    Attributes:
      last: the last value of each metric.
    """

    def __init__(self, directory: RunDirectory, rounds: int, reference_accuracies=None):
        self._directory = directory
        self._references = reference_accuracies or {}
        self._csv = tff.program.CSVFileReleaseManager(
            str(directory.path / 'metrics.csv'), key_fieldname='round'
        )
        self._tensorboard = tff.program.TensorBoardReleaseManager(
            str(directory.path / 'tensorboard')
        )
        # A thread of its own: signals raise exceptions in the main thread only, so none cuts a row
        # in half.
        self._writer = concurrent.futures.ThreadPoolExecutor(max_workers=1)
        self._bar = tqdm.tqdm(total=rounds, unit='round', dynamic_ncols=True)
        self._rows: list[dict] = []
        self.last: dict[str, float] = {}

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._writer.shutdown(wait=True)
        self._bar.close()
        if self._rows:
            (self._directory.path / 'plots').mkdir(exist_ok=True)
            figure = plots.training_curves(self._rows, self._references)
            figure.savefig(self._directory.path / 'plots' / 'training.png', dpi=120)

    def release(self, round_number: int, values: Mapping[str, float]) -> None:
        """Records the metrics after `round_number` rounds."""
        self._rows.append({'round': round_number, **values})
        self._writer.submit(self._write, round_number, values).result()
        self.last.update(values)
        shown = [name for name in ('loss', 'accuracy', 'epsilon') if name in self.last]
        self._bar.set_postfix({name: f'{self.last[name]:.4g}' for name in shown})
        self._bar.update()

    def _write(self, round_number: int, values: Mapping[str, float]) -> None:
        asyncio.run(self._csv.release(values, round_number))
        finite = {name: value for name, value in values.items() if np.isfinite(value)}
        asyncio.run(self._tensorboard.release(finite, round_number))


def _remove(path: pathlib.Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def _write_atomically(path: pathlib.Path, write) -> None:
    """Calls `write` with a binary file that takes the place of `path` when it is complete."""
    partial = path.with_name(path.name + '.partial')
    with open(partial, 'wb') as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)
