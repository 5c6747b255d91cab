"""The directory of a run and the files in it."""

import contextlib
import io
import os
import pathlib
import secrets
import shutil
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow_federated as tff

from dpfl import _npz, _storage, accounting, errors, mechanisms
from dpfl.accounting.measured.measured import AUDIT, Scores
from dpfl.accounting.records import archive
from dpfl.participation import ParticipationLog
from dpfl.simulation import data_digest, pages, run_files

_KEY = 'data.key'
_INITIAL_MODEL = 'initial_model.npz'


class RunDirectory:
    """The directory of one run.

    Args:
      path: the directory; created if it does not exist.
      overwrite: delete the files of an earlier run in it.
      resume: keep the files of an earlier run, to continue it.

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
            if not overwrite and not resume:
                run_files.refuse(self.path)
            earlier = run_files.found(self.path)
            if earlier and overwrite:
                with self.in_use():
                    # Left by a run that was killed while it wrote them.
                    for partial in self.path.glob('*.partial'):
                        if partial.name.removesuffix('.partial') in run_files.NAMES:
                            _remove(partial)
                    for name in earlier:
                        _remove(self.path / name)
        except OSError as error:
            raise errors.ArgumentError(
                'directory', path, f'must be writable ({error.strerror})'
            ) from None

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """A context in which no other run can use the directory. Contexts may be nested.

        Raises:
          StorageError: if another run uses the directory.
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
        """Writes a file of the directory atomically: readers never see a part of it.

        Files that the guarantee does not cover are readable by their owner only.
        """
        self._write(name, text.encode())

    def data_key(self, is_new: bool) -> bytes:
        """The key of the data digests. It is as secret as the checkpoints, and lies beside them.

        Args:
          is_new: whether the run begins. If so, a key is drawn from the operating system, unless an
            attempt to begin the run has left one.

        Raises:
          StorageError: if a run that continues has no key, or it cannot be read or written.
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

    def keep_initial_model(self, weights: Sequence[np.ndarray | bytes]) -> None:
        """Keeps the model that a run begins with beside its checkpoints, which exist."""
        path, data = self.path / archive.CHECKPOINTS / _INITIAL_MODEL, _numbered(weights)
        _storage.write_atomically(path, lambda file: file.write(data), _storage.PRIVATE)

    def initial_model(self) -> tuple[np.ndarray, ...]:
        """What `keep_initial_model` has kept.

        Raises:
          StorageError: if it cannot be read.
        """
        path = self.path / archive.CHECKPOINTS / _INITIAL_MODEL
        with _storage.naming(path):
            try:
                arrays = _npz.load(path)
                return tuple(arrays[str(number)] for number in range(len(arrays)))
            except (ValueError, KeyError) as error:
                raise errors.StorageError(f'{path}: {errors.shown(error)}') from None

    def write_plan(self, record: archive.PlanRecord) -> None:
        """Writes `plan.json` and `strategy.npz`; removes the digests of an earlier state."""
        self.forget_digests()
        file = io.BytesIO()
        mechanisms.save(record.plan.mechanism, file)
        self._write(archive.STRATEGY, file.getvalue())
        self.write_text(archive.PLAN, record.to_json())

    def forget_digests(self) -> None:
        """Removes `SHA256SUMS`: without it, the run is not finished."""
        with _storage.naming(self.path / archive.SUMS):
            (self.path / archive.SUMS).unlink(missing_ok=True)

    def forget_results(self) -> None:
        """Removes model, test metrics, report and log of a run that goes on with more rounds."""
        for name in dict.fromkeys(
            run_files.top(each) for each in run_files.FILES if each.is_of_end
        ):
            if (self.path / name).exists():
                with _storage.naming(self.path / name):
                    _remove(self.path / name)

    def write_log(self, log: ParticipationLog) -> None:
        """Writes `participation.npz`, which shows who took part: readable by its owner only."""
        file = io.BytesIO()
        log.save(file)
        self._write(archive.LOG, file.getvalue())

    def write_model(self, weights: tff.learning.models.ModelWeights) -> None:
        """Writes `model.npz`: the trainable weights as arrays `0`, `1`, ..."""
        self._write(archive.MODEL, _numbered(weights.trainable))

    def write_audit(self, scores: Scores) -> None:
        """Writes `audit.npz`: what the canaries of an audit showed."""
        self._write(AUDIT, scores.to_bytes())

    def write_pages(self, report: accounting.PrivacyReport) -> None:
        """Writes the report in its three forms, and the other pages of the run."""
        for name, text in pages.of_run(self.path, report).items():
            self.write_text(name, text)

    def write_digests(self) -> None:
        """Writes `SHA256SUMS`, with which the directory can be verified."""
        self.write_text(archive.SUMS, archive.digests(self.path))

    def _write(self, name: str, data: bytes) -> None:
        # Archives are made in memory: an unfinished archive of NumPy on a full disk prints an error
        # when it is garbage-collected.
        mode = _storage.PRIVATE if run_files.is_private(name) else 0o666
        _storage.write_atomically(self.path / name, lambda file: file.write(data), mode)


def _numbered(arrays: Iterable[Any]) -> bytes:
    """An archive with arrays `0`, `1`, ..."""
    file = io.BytesIO()
    np.savez(file, **{str(i): np.asarray(array) for i, array in enumerate(arrays)})
    return file.getvalue()


def _remove(path: pathlib.Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
