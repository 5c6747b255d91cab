"""The directory of a run and the files in it."""

import contextlib
import datetime
import hashlib
import hmac
import io
import logging
import os
import pathlib
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from dpfl import __version__, _files, _npz, _storage, accounting, errors, mechanisms
from dpfl.accounting.measured.measured import AUDIT, Scores
from dpfl.accounting.records import archive
from dpfl.accounting.records import journal as journal_lib
from dpfl.simulation import checkpoint_folder, pages, run_files
from dpfl.simulation.run_journal import RunJournal

_log = logging.getLogger(__name__)
_KEYS = 'keys'
_KEY_BYTES = 32
# The strategy of a run that is about to go on with more rounds, until the journal says so.
_NEXT_STRATEGY = 'strategy.npz'


class RunDirectory:
    """The directory of one run. Everything but `path` needs `in_use`.

    Args:
      path: the directory; created when it is first in use.
      overwrite: delete the files of an earlier run in it, when the new one begins.
      resume: keep the files of an earlier run, to continue it.

    Raises:
      ValueError: if the directory holds an earlier run and neither `overwrite` nor `resume` is set.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, overwrite: bool = False, resume: bool = False
    ):
        self.path = pathlib.Path(path)
        self._overwrite = overwrite
        self._journal: RunJournal | None = None
        self._kept: RunJournal | None = None  # Of the last use.
        if not overwrite and not resume:
            run_files.refuse(self.path)

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """A context in which no other run can use the directory. Contexts may be nested.

        Raises:
          ValueError: if the directory cannot be written.
          RunError: if its journal is damaged, or shows less than its other files.
          StorageError: if another run uses the directory.
        """
        if self._journal is not None:
            yield
            return
        made = [each for each in (self.path, *self.path.parents) if not each.exists()]
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if not os.access(self.path, os.W_OK | os.X_OK):
                raise PermissionError(13, 'Permission denied')
        except OSError as error:
            raise errors.ArgumentError(
                'directory', self.path, f'must be writable ({error.strerror})'
            ) from None
        with _storage.locked(self.path):
            try:
                if not self._overwrite:
                    self._open()
                yield
            finally:
                self._journal = None
                with contextlib.suppress(OSError):
                    for folder in made:  # Of a run that never began.
                        folder.rmdir()

    def _open(self) -> None:
        folder = self.path / archive.CHECKPOINTS
        if self._kept is None or not self._kept.is_current():
            self._kept = RunJournal(self.path)
            heads = checkpoint_folder.heads(folder)
            self._kept.require_whole(heads)
        self._journal = found = self._kept
        left = [name for name in run_files.found(self.path) if name != archive.LEDGER]
        if left and not found.heads:
            raise errors.RunError(
                f'{self.path / archive.LEDGER}: is missing, and {left[0]} is there: the run cannot '
                'continue'
            )
        following = folder / _NEXT_STRATEGY
        if following.exists() and found.state.record is not None:
            # The process ended between the event and the file that it speaks of.
            if mechanisms.load(following).digest() == found.state.record.get('mechanism_digest'):
                os.replace(following, self.path / archive.STRATEGY)

    @property
    def journal(self) -> RunJournal:
        """The journal of the run. The directory must be in use."""
        assert self._journal is not None
        return self._journal

    @property
    def state(self) -> journal_lib.State:
        """What the journal says; nothing while the files of an earlier run are to be deleted."""
        return journal_lib.State() if self._journal is None else self._journal.state

    def begin(self, settings: Mapping[str, Any] | None, files: Mapping[str, str]) -> None:
        """Records that the run is about to read data, unless that is recorded already.

        Until the first round other settings may follow, under which what was drawn is kept.

        Args:
          settings: as in `journal.Planned`.
          files: as in `journal.Planned`.

        Raises:
          RunError: if the keys of a run that has drawn or released something are lost.
          StorageError: if a file cannot be written.
        """
        if self._overwrite:
            self.clear()
            self._overwrite = False
            self._journal = self._kept = RunJournal(self.path)
        state, path = self.state, self.path / archive.CHECKPOINTS / _KEYS
        with _storage.naming(path):
            root = _files.read_bytes_or_none(path)
        if root is None:
            if state.drawn or state.begun:
                raise errors.RunError(f'{path}: is missing, and the run cannot continue without it')
            root = secrets.token_bytes(_KEY_BYTES)
        elif state.planned is not None and _key_digest(root) != state.planned.keys:
            raise errors.RunError(f'{path}: does not have the keys of {archive.LEDGER}')
        planned = journal_lib.Planned(
            settings=settings,
            files=dict(files),
            date=datetime.datetime.now(datetime.UTC).date().isoformat(),
            version=__version__,
            keys=_key_digest(root),
        )
        before = state.planned
        if before is None or (not state.begun and _differs(before, planned)):
            self.journal.append(planned)
        if not path.exists():
            with _storage.naming(path):
                path.parent.mkdir(mode=0o700, exist_ok=True)
            _storage.write_atomically(path, lambda file: file.write(root), _storage.PRIVATE)
        self.write_tables()

    def clear(self) -> None:
        """Deletes the files of an earlier run, and says which releases are forgotten with them.

        The journal is deleted last: until then no other run begins in the directory.

        Raises:
          StorageError: if a file cannot be deleted.
        """
        earlier = run_files.found(self.path)
        if not earlier:
            return
        try:
            found = archive.read_journal(self.path)
        except ValueError:
            found = None
        if found is not None and (found.state.begun or found.state.drawn):
            _log.warning(
                '%s: overwrite forgets %d released rounds%s: they are released all the same, and '
                'no report of the new run counts them',
                self.path,
                found.state.begun,
                ''.join(f', {each}' for each in found.state.drawn),
            )
        with _storage.naming(self.path):
            # Left by a run that was killed while it wrote them.
            for partial in self.path.glob('*.partial'):
                if partial.name.removesuffix('.partial') in run_files.NAMES:
                    _remove(partial)
            for name in earlier:
                _remove(self.path / name)

    def key(self, purpose: str) -> bytes:
        """A key of the run, 32 bytes: all follow from one root beside the checkpoints.

        Args:
          purpose: different ones give independent keys.

        Raises:
          RunError: if the root is not that of the journal.
          StorageError: if it cannot be read.
        """
        path, planned = self.path / archive.CHECKPOINTS / _KEYS, self.state.planned
        with _storage.naming(path):
            root = _files.read_bytes(path)
        if planned is None or _key_digest(root) != planned.keys:
            raise errors.RunError(f'{path}: does not have the keys of {archive.LEDGER}')
        return hmac.new(root, purpose.encode(), hashlib.sha256).digest()

    def data_key(self) -> bytes:
        """The key of the data digests."""
        return self.key('data')

    def write_strategy(self, mechanism: mechanisms.Mechanism, *, is_next: bool = False) -> None:
        """Writes `strategy.npz`; the one of an extension waits until the journal has it."""
        file = io.BytesIO()
        mechanisms.save(mechanism, file)
        if is_next:
            path, data = self.path / archive.CHECKPOINTS / _NEXT_STRATEGY, file.getvalue()
            _storage.write_atomically(path, lambda out: out.write(data), _storage.PRIVATE)
        else:
            self._write(archive.STRATEGY, file.getvalue())

    def take_next_strategy(self) -> None:
        """Puts the strategy of an extension, which the journal has now, in its place."""
        path = self.path / archive.CHECKPOINTS / _NEXT_STRATEGY
        with _storage.naming(path):
            os.replace(path, self.path / archive.STRATEGY)

    def write_text(self, name: str, text: str) -> None:
        """Writes a file of the directory atomically: readers never see a part of it.

        Files that the guarantee does not cover are readable by their owner only.
        """
        self._write(name, text.encode())

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

    def write_model(self, weights: Any) -> None:
        """Writes `model.npz`: the trainable weights as arrays `0`, `1`, ..."""
        self._write(archive.MODEL, _numbered(weights.trainable))

    def write_audit(self, scores: Scores) -> None:
        """Writes `audit.npz`: what the canaries of an audit showed."""
        self._write(AUDIT, scores.to_bytes())

    def write_tables(self) -> None:
        """Writes the tables that describe the run before its first round."""
        for name, data in archive.first_tables(self.state).items():
            self._write(name, data)

    def write_pages(self) -> accounting.PrivacyReport:
        """Writes all tables and pages of the run, and the digests of all files; gives the report.

        Raises:
          StorageError: if a file cannot be read or written.
        """
        try:
            records = archive.Records.read(self.path)
            report = records.report()
            for name, data in archive.tables(records).items():
                self._write(name, data)
            for name, text in pages.of_run(self.path, report).items():
                self.write_text(name, text)
        except ValueError as error:
            raise errors.StorageError(str(error)) from None
        self.write_digests()
        return report

    def write_digests(self) -> None:
        """Writes `SHA256SUMS`, with which the directory can be verified."""
        self.write_text(archive.SUMS, archive.digests(self.path))

    def _write(self, name: str, data: bytes) -> None:
        # Archives are made in memory: an unfinished archive of NumPy on a full disk prints an error
        # when it is garbage-collected.
        mode = _storage.PRIVATE if run_files.is_private(name) else 0o666
        _storage.write_atomically(self.path / name, lambda file: file.write(data), mode)


def _key_digest(root: bytes) -> str:
    return hashlib.sha256(b'dpfl keys\n' + root).hexdigest()


def _differs(before: journal_lib.Planned, now: journal_lib.Planned) -> bool:
    """Whether settings or descriptions of a run have changed; a later day alone is no change."""
    return (before.settings, before.files, before.keys) != (now.settings, now.files, now.keys)


def _numbered(arrays: Iterable[Any]) -> bytes:
    """An archive with arrays `0`, `1`, ..."""
    return _npz.to_bytes({str(i): np.asarray(array) for i, array in enumerate(arrays)})


def _remove(path: pathlib.Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
