"""What a run leaves in its directory, and what it shows on the way."""

import asyncio
import concurrent.futures
import contextlib
import csv
import io
import os
import pathlib
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
import tqdm

from dpfl import _storage, accounting, errors, mechanisms
from dpfl.accounting.records import archive
from dpfl.participation import ParticipationLog
from dpfl.reporting import plots, privacy_page
from dpfl.simulation import data_digest

_HTML = 'privacy_report.html'
_KEY = 'data.key'
# What the guarantee of a run does not cover: files of exact counts, of what single clients cost in
# time, or by which guesses at such contents can be tried. docs/threat_model.md has the reasons.
_PRIVATE = frozenset(
    {
        archive.SUMS,
        archive.LOG,
        archive.LEDGER,
        archive.FLAGS,
        archive.CONFIG,
        'metrics.csv',
        'data.json',
        'profile.json',
    }
)
# The ledger is the last to go: as long as it is there, no other run begins.
_FOLDERS = (archive.CHECKPOINTS, 'tensorboard', 'plots', 'saved_model', 'generator')
_FILES = (
    archive.SUMS,
    'metrics.csv',
    archive.REPORT,
    archive.PAGE,
    _HTML,
    archive.LOG,
    archive.PLAN,
    archive.STRATEGY,
    archive.MODEL,
    'gan_report.md',
    'data.json',
    'profile.json',
    archive.FLAGS,
    archive.CONFIG,
    archive.LEDGER,
)


class RunDirectory:
    """The directory of one run.

    Args:
      path: is made if it does not exist.
      overwrite: delete the files of an earlier run there.
      resume: leave the files of an earlier run there, to continue it.

    Raises:
      ValueError: if the directory cannot be written, or holds an earlier run and neither
        `overwrite` nor `resume` is set.
      StorageError: if `overwrite` is set and another run uses the directory.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, overwrite: bool = False, resume: bool = False
    ):
        self.path = pathlib.Path(path)
        self._is_in_use = False
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if not os.access(self.path, os.W_OK | os.X_OK):
                raise PermissionError(13, 'Permission denied')
            earlier = [name for name in _FOLDERS + _FILES if (self.path / name).exists()]
            if earlier and not overwrite and not resume:
                raise errors.ArgumentError(
                    'directory',
                    path,
                    f'must not hold an earlier run ({earlier[0]} exists), '
                    'unless it is resumed or overwritten',
                )
            if earlier and overwrite:
                with self.in_use():
                    # Of a run that was killed as it wrote them.
                    for partial in self.path.glob('*.partial'):
                        if partial.name.removesuffix('.partial') in _FOLDERS + _FILES:
                            _remove(partial)
                    for name in earlier:
                        _remove(self.path / name)
        except OSError as error:
            raise errors.ArgumentError(
                'directory', path, f'must be writable ({error.strerror})'
            ) from None

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Context in which no other run can use the directory; contexts may be nested.

        Raises:
          StorageError: if another run uses it.
        """
        if self._is_in_use:
            yield
            return
        with _storage.locked(self.path):
            self._is_in_use = True
            try:
                yield
            finally:
                self._is_in_use = False

    def write_text(self, name: str, text: str) -> None:
        """Writes a file of the directory as a whole: it is never seen half written.

        Files that the guarantee does not cover are for their owner only.
        """
        self._write(name, text.encode())

    def data_key(self, is_new: bool) -> bytes:
        """Key of the digests of the clients' data, in `checkpoints/`: it is as secret as they are.

        Args:
          is_new: whether the run begins; the operating system then gives a key, unless there is one
            of a beginning that was cut off.

        Raises:
          StorageError: if a run that goes on has none, or it cannot be read or written.
        """
        path = self.path / archive.CHECKPOINTS / _KEY
        with _storage.naming(path):
            if is_new and not path.exists():
                path.parent.mkdir(mode=0o700, exist_ok=True)
                key = secrets.token_bytes(data_digest.KEY_BYTES)
                _storage.write_atomically(path, lambda file: file.write(key), _storage.PRIVATE)
            found = path.read_bytes()
        if len(found) != data_digest.KEY_BYTES:
            raise errors.StorageError(f'{path}: must have {data_digest.KEY_BYTES} bytes')
        return found

    def write_plan(self, record: archive.PlanRecord) -> None:
        """Writes `plan.json` and `strategy.npz`; digests of an earlier state go."""
        with _storage.naming(self.path / archive.SUMS):
            (self.path / archive.SUMS).unlink(missing_ok=True)
        file = io.BytesIO()
        mechanisms.save(record.plan.mechanism, file)
        self._write(archive.STRATEGY, file.getvalue())
        self.write_text(archive.PLAN, record.to_json())

    def write_log(self, log: ParticipationLog) -> None:
        """Writes `participation.npz`, for its owner only: it says who took part."""
        file = io.BytesIO()
        log.save(file)
        self._write(archive.LOG, file.getvalue())

    def write_model(self, weights: tff.learning.models.ModelWeights) -> None:
        """Writes `model.npz`: the trainable weights as arrays `0`, `1`, ..."""
        arrays = {str(i): np.asarray(weight) for i, weight in enumerate(weights.trainable)}
        file = io.BytesIO()
        np.savez(file, **arrays)
        self._write(archive.MODEL, file.getvalue())

    def write_report(self, report: accounting.PrivacyReport) -> None:
        """Writes `privacy_report.json`, `.md` and `.html`."""
        self.write_text(archive.REPORT, report.to_json() + '\n')
        self.write_text(archive.PAGE, report.render())
        self.write_text(_HTML, privacy_page.render(report))

    def write_digests(self) -> None:
        """Writes `SHA256SUMS`: from now on the directory can be verified."""
        self.write_text(archive.SUMS, archive.digests(self.path))

    def _write(self, name: str, data: bytes) -> None:
        # From memory: archives of NumPy that cannot be completed complain when they are collected.
        mode = _storage.PRIVATE if name in _PRIVATE else 0o666
        _storage.write_atomically(self.path / name, lambda file: file.write(data), mode)


class Metrics:
    """Metrics of a run: `metrics.csv`, TensorBoard, a progress bar and a plot.

    A context manager; leaving it closes the bar and draws the plot, also after an error.

    Args:
      directory: of the run.
      rounds: number of rounds, for the bar.
      reference_accuracies: drawn as lines in the plot, by name.
      rows: of the rounds that are done, when a run continues; whatever else an earlier process
        has left, in `metrics.csv` and for TensorBoard, is replaced by them.
      progress: show the bar.

    Attributes:
      rows: a dictionary for each round that is done, `round` first.
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
        csv_path, events_path = directory.path / 'metrics.csv', directory.path / 'tensorboard'
        with _naming(events_path):
            if events_path.exists():
                shutil.rmtree(events_path)
            events_path.mkdir(mode=0o700)
            self._tensorboard = tff.program.TensorBoardReleaseManager(str(events_path))
        directory.write_text('metrics.csv', _table(rows))
        with _naming(csv_path):
            self._csv = tff.program.CSVFileReleaseManager(str(csv_path), key_fieldname='round')
        # A thread of its own: signals raise exceptions in the main thread only, so none cuts a row
        # in half.
        self._writer = concurrent.futures.ThreadPoolExecutor(max_workers=1)
        for row in rows:
            values = {name: value for name, value in row.items() if name != 'round'}
            self._keep(row['round'], values)
            self._writer.submit(self._write_events, row['round'], values).result()
        self._bar = tqdm.tqdm(
            total=rounds,
            unit='round',
            dynamic_ncols=True,
            initial=len(rows),
            disable=not progress,
        )

    def __enter__(self) -> 'Metrics':
        return self

    def __exit__(self, kind, error, trace):
        self._writer.shutdown(wait=True)
        self._bar.close()
        # Where the run fails, for a full disk or for lack of memory, that is the error to show.
        with contextlib.suppress(Exception) if error else contextlib.nullcontext():
            self._plot()

    def release(self, round_number: int, values: Mapping[str, float]) -> None:
        """Records the metrics after `round_number` rounds."""
        self._writer.submit(self._write, round_number, values).result()
        self._keep(round_number, values)
        shown = [name for name in ('loss', 'accuracy', 'epsilon') if name in self.last]
        self._bar.set_postfix({name: f'{self.last[name]:.4g}' for name in shown})
        self._bar.update()

    def _keep(self, round_number: float, values: Mapping[str, float]) -> None:
        self.rows.append({'round': round_number, **values})
        self.last.update(values)

    def _write(self, round_number: int, values: Mapping[str, float]) -> None:
        with _naming(self._directory.path / 'metrics.csv'):
            asyncio.run(self._csv.release(values, round_number))
            # TFF writes a new file for a metric that is new.
            os.chmod(self._directory.path / 'metrics.csv', _storage.PRIVATE)
        self._write_events(round_number, values)

    def _write_events(self, round_number: float, values: Mapping[str, float]) -> None:
        finite = {name: value for name, value in values.items() if np.isfinite(value)}
        with _naming(self._directory.path / 'tensorboard'):
            asyncio.run(self._tensorboard.release(finite, round_number))

    def _plot(self) -> None:
        if not self.rows:
            return
        path = self._directory.path / 'plots' / 'training.png'
        figure = plots.training_curves(self.rows, self._references)
        with _storage.naming(path):
            path.parent.mkdir(exist_ok=True)
        _storage.write_atomically(
            path, lambda file: figure.savefig(file, format='png', dpi=120), _storage.PRIVATE
        )


@contextlib.contextmanager
def _naming(path: pathlib.Path) -> Iterator[None]:
    """As `files.naming`, also for the errors of TensorFlow's file system."""
    with _storage.naming(path):
        try:
            yield
        except tf.errors.OpError as error:
            message = ' '.join(error.message.split())
            # In such messages the reason stands after the path.
            raise errors.StorageError(f'{path}: {message.partition("; ")[2] or message}') from error


def _table(rows: Sequence[Mapping[str, float]]) -> str:
    """Rows as CSV: what the release manager makes of them, one after the other."""
    names = dict.fromkeys(['round', *(name for row in rows for name in row)])
    file = io.StringIO()
    writer = csv.DictWriter(file, list(names))
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def _remove(path: pathlib.Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
