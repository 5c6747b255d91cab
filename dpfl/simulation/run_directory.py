"""The directory of a run: which files it has, who may read them, how they are written and checked.

Records are written as things happen and cannot be computed again. Results are made once, and the
journal has their digests. Tables and pages are functions of records. Nothing is judged by the
others, such as times and pictures. No TensorFlow.
"""

import contextlib
import dataclasses
import datetime
import fnmatch
import hashlib
import hmac
import io
import logging
import math
import os
import pathlib
import secrets
import shutil
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from dpfl import __version__, _files, _npz, _storage, accounting, errors, mechanisms
from dpfl.accounting import PrivacyReport, running
from dpfl.accounting.measured.measured import AUDIT, Scores
from dpfl.accounting.records import archive, cohorts, comparison
from dpfl.accounting.records import journal as journal_lib
from dpfl.accounting.records import verification as verification_lib
from dpfl.accounting.records.journal import State
from dpfl.accounting.records.verification import Verification
from dpfl.simulation import checkpoint
from dpfl.simulation.run_journal import RunJournal
from dpfl.simulation.training import recorded_settings
from dpfl.simulation.training.config import GanConfig

HTML_REPORT = 'privacy_report.html'
_AUDIT_PAGE = 'audit.html'
GAN_REPORT = 'gan_report.md'
RECORD, RESULT, TABLE, OTHER = 'record', 'result', 'table', 'other'
_KEYS = 'keys'
_KEY_BYTES = 32
# The strategy of a run that is about to go on with more rounds, until the journal says so.
_NEXT_STRATEGY = 'strategy.npz'
_TRAINING_PREFIX = 'train_'


class RunFile(NamedTuple):
    """A file of a run, or several.

    Attributes:
      pattern: its name in the directory of the run; `*` stands for any text.
      kind: one of the four above.
      is_private: whether the guarantee does not cover it: it holds exact counts, times that depend
        on single clients, or digests with which guesses about these can be checked. Only its owner
        may read it. docs/reference/threat_model.md gives the reasons.
      is_of_end: whether only a run whose rounds are all done has it.
    """

    pattern: str
    kind: str
    is_private: bool = False
    is_of_end: bool = False


# In the order of removal. The journal is removed last: while it exists, no other run begins.
FILES = (
    RunFile('checkpoints/*', RECORD, is_private=True),
    RunFile('tensorboard/*', OTHER, is_private=True),
    RunFile('plots/training.png', OTHER, is_private=True),
    RunFile('plots/generated_*.png', RESULT),
    RunFile('saved_model/*', RESULT, is_of_end=True),
    RunFile('generator/*', RESULT, is_of_end=True),
    RunFile(archive.SUMS, TABLE, is_private=True),
    RunFile(archive.METRICS, TABLE, is_private=True),
    RunFile(archive.REPORT, TABLE, is_of_end=True),
    RunFile(archive.SIGNATURE, OTHER, is_of_end=True),
    RunFile(archive.PAGE, TABLE, is_of_end=True),
    RunFile(HTML_REPORT, TABLE, is_private=True, is_of_end=True),
    RunFile(archive.LOG, TABLE, is_private=True, is_of_end=True),
    RunFile(archive.PLAN, TABLE),
    RunFile(archive.STRATEGY, RECORD),
    RunFile(archive.MODEL, RESULT, is_of_end=True),
    RunFile(archive.TEST, TABLE, is_private=True, is_of_end=True),
    RunFile(AUDIT, RESULT, is_of_end=True),
    RunFile(_AUDIT_PAGE, TABLE, is_of_end=True),
    RunFile(GAN_REPORT, TABLE, is_of_end=True),
    RunFile(archive.BEFORE, TABLE),
    RunFile(archive.DATA, TABLE, is_private=True),
    RunFile(archive.FLAGS, TABLE, is_private=True),
    RunFile(archive.CONFIG, TABLE, is_private=True),
    RunFile(archive.CHOICE, OTHER),
    RunFile(cohorts.NAME, RECORD, is_private=True),
    RunFile(archive.LEDGER, RECORD, is_private=True),
)


def _top(file: RunFile) -> str:
    """The name of a file, or of its folder, in the directory of the run."""
    return file.pattern.partition('/')[0]


# Without repetitions.
NAMES = tuple(dict.fromkeys(map(_top, FILES)))


def _is_private(name: str) -> bool:
    """Whether only the owner may read the file of this name."""
    return any(file.is_private for file in _of_table(name))


def results(path: pathlib.Path) -> dict[str, str]:
    """Digests of the results in the directory of a run but the audit's, by name."""
    files, _ = archive.walk(path, archive.CHECKPOINTS)
    return {
        name: archive.sha256(file)
        for name, file in files.items()
        if name != AUDIT and any(run_file.kind == RESULT for run_file in _of_table(name))
    }


def tables(path: pathlib.Path) -> list[str]:
    """Names of the tables and pages in the directory of a run."""
    return [file.pattern for file in FILES if file.kind == TABLE and (path / file.pattern).exists()]


def not_judged(names: Iterable[str], *, has_ended: bool = True) -> str:
    """The sentence that names the files verification does not judge.

    Args:
      names: of the files that the directory has.
      has_ended: whether the journal has the digests of the results.
    """
    alone = dict.fromkeys(
        f'{name.partition("/")[0]}/' if '/' in name else name
        for name in sorted(names)
        if all(file.kind == OTHER or _is_unknown(file, has_ended) for file in _of_table(name))
    )
    shown = ', '.join(map(errors.shown, alone))
    return (
        f'not judged: checkpoints/, {archive.SIGNATURE}, lines of {archive.LEDGER} outside of its '
        f'chain; by digest alone: {shown or "nothing"}'
    )


def _is_unknown(file: RunFile, has_ended: bool) -> bool:
    """Whether a file is a result of whose digest the journal of a run knows nothing yet."""
    return file.kind == RESULT and not has_ended and file.pattern != AUDIT


def _of_table(name: str) -> list[RunFile]:
    return [file for file in FILES if fnmatch.fnmatchcase(name, file.pattern)]


def _earlier(path: str | os.PathLike[str]) -> list[str]:
    """Names of the files and folders of an earlier run in a directory, in the order of removal."""
    return [name for name in NAMES if os.path.lexists(os.path.join(path, name))]


def _refuse(path: str | os.PathLike[str], *, overwrite: bool) -> None:
    """Checks that a new run may begin in a directory, or replace what is there.

    Raises:
      ArgumentError: if the directory holds an earlier run, or with `overwrite` files that are not
        of a run; it names `directory`.
    """
    names = _earlier(path)
    if overwrite and names and archive.LEDGER not in names:
        raise errors.ArgumentError(
            'directory',
            os.fspath(path),
            f'must not hold {names[0]}: overwrite deletes an earlier run, whose {archive.LEDGER} '
            'is missing here',
        )
    if names and not overwrite:
        raise errors.ArgumentError(
            'directory',
            os.fspath(path),
            f'must not hold an earlier run ({names[0]} exists), unless resume (to continue it) or '
            'overwrite (to delete it) is set',
        )


def html_report(directory: pathlib.Path, report: accounting.PrivacyReport, more: str = '') -> str:
    """The report for people, with the course of its run.

    Args:
      directory: of a run, or of an export.
      report: of the run.
      more: Markdown text to put after the statement.

    Raises:
      ValueError: if a record in the directory is damaged.
    """
    from dpfl.reporting import privacy_page  # Loads matplotlib.

    journal = archive.read_journal(directory)
    if journal is None:  # An export is from anybody.
        rows = [row for row in archive.read_rows(directory) if 'round' in row]
        return privacy_page.render(report, more, rows=rows)
    built = journal.state.built
    references = None if built is None else built.references
    return privacy_page.render(report, more, rows=journal.rows(), references=references)


def pages_of(directory: pathlib.Path, report: accounting.PrivacyReport) -> dict[str, str]:
    """The texts of the pages by the names of their files.

    Args:
      directory: of a run whose rounds are done, or of an export.
      report: of the run.

    Raises:
      ValueError: if a record in the directory is damaged.
    """
    from dpfl.reporting import audit_page, gan_page  # Loads matplotlib.

    pages = archive.pages(directory, report)
    pages[HTML_REPORT] = html_report(directory, report)
    if report.measured is not None:
        scores = Scores.load(directory / AUDIT)
        pages[_AUDIT_PAGE] = audit_page.render(scores, report.measured)
    journal = archive.read_journal(directory)
    if journal is not None and isinstance(recorded_settings.of_state(journal.state), GanConfig):
        pages[GAN_REPORT] = gan_page.render(report)
    return pages


_log = logging.getLogger(__name__)


class RunDirectory:
    """The directory of one run. Everything but `path` needs `in_use`.

    Args:
      path: the directory; created when it is first in use.
      overwrite: delete the files of an earlier run in it, when the new one begins.
      resume: keep the files of an earlier run, to continue it.

    Raises:
      ValueError: if the directory holds an earlier run and neither `overwrite` nor `resume` is set,
        or `overwrite` would delete files that are not of a run.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, overwrite: bool = False, resume: bool = False
    ):
        self.path = pathlib.Path(path)
        self._overwrite = overwrite
        self._journal: RunJournal | None = None
        self._kept: RunJournal | None = None  # Of the last use.
        self._thread = 0  # The one that uses the directory, if there is a journal.
        if not resume:
            _refuse(self.path, overwrite=overwrite)

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """A context in which nobody else can use the directory. Contexts of a thread may be nested.

        Raises:
          ValueError: if the directory cannot be written.
          RunError: if its journal is damaged, or shows less than its other files.
          StorageError: if another run, or another thread of this one, uses the directory.
        """
        if self._journal is not None and self._thread == threading.get_ident():
            yield
            return
        made = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
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
                self._thread = threading.get_ident()
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
            heads = checkpoint.heads(folder)
            self._kept.require_whole(heads)
        self._journal = journal = self._kept
        left = [name for name in _earlier(self.path) if name != archive.LEDGER]
        if left and not journal.heads:
            raise errors.RunError(
                f'{self.path / archive.LEDGER}: is missing, and {left[0]} is there: the run cannot '
                'continue'
            )
        following = folder / _NEXT_STRATEGY
        if following.exists() and journal.state.record is not None:
            # The process ended between the event and the file that it speaks of.
            if mechanisms.load(following).digest() == journal.state.record.get('mechanism_digest'):
                os.replace(following, self.path / archive.STRATEGY)

    def reopen(self) -> None:
        """Reads the journal again if the disk has events that it does not know. It is in use.

        Raises:
          RunError: as `in_use`.
          StorageError: if a file cannot be read or written.
        """
        self._open()

    @property
    def journal(self) -> RunJournal:
        """The journal of the run. The directory must be in use."""
        assert self._journal is not None
        return self._journal

    @property
    def state(self) -> journal_lib.State:
        """The state of the journal; empty while the files of an earlier run are to be deleted."""
        return journal_lib.State() if self._journal is None else self._journal.state

    def begin(self, settings: Mapping[str, Any] | None, files: Mapping[str, str]) -> None:
        """Records that the run is about to read data, unless that is recorded already.

        Until the first round, other settings may be recorded; draws that were made are kept.

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
        earlier = _earlier(self.path)
        if not earlier:
            return
        try:
            journal = archive.read_journal(self.path)
        except ValueError:
            journal = None
        if journal is not None and (journal.state.begun or journal.state.drawn):
            _log.warning(
                '%s: overwrite forgets %d released rounds%s: they are released all the same, and '
                'no report of the new run counts them',
                self.path,
                journal.state.begun,
                ''.join(f', {draw}' for draw in journal.state.drawn),
            )
        with _storage.naming(self.path):
            # Left by a run that was killed while it wrote them.
            for partial in self.path.glob('*.partial'):
                if partial.name.removesuffix('.partial') in NAMES:
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
        for name in dict.fromkeys(_top(file) for file in FILES if file.is_of_end):
            if (self.path / name).exists():
                with _storage.naming(self.path / name):
                    _remove(self.path / name)

    def write_model(self, weights: Any) -> None:
        """Writes `model.npz`: the trainable weights as arrays `0`, `1`, ..."""
        self._write(archive.MODEL, _numbered(weights.trainable))

    def write_audit(self, scores: Scores) -> None:
        """Writes `audit.npz`: the scores of an audit's canaries."""
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
            for name, text in pages_of(self.path, report).items():
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
        mode = _storage.PRIVATE if _is_private(name) else 0o666
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


def verify(directory: str | os.PathLike[str]) -> Verification:
    """Checks the directory of a run, or of an export, which has neither settings nor journal.

    `dpfl.accounting.records.verification` computes tables and report again from the journal. Here
    the plan, and the other statements of the report, are also compared with the settings of the
    run, epsilon of each round with the plan, and every other page is computed again.

    Raises:
      ValueError: if the directory does not hold a finished run or an export.
    """
    path = pathlib.Path(directory)
    made: dict[str, str] = {}

    def of_run(directory: pathlib.Path, report: PrivacyReport) -> dict[str, str]:
        made.update(pages_of(directory, report))
        return made

    verification = verification_lib.verify(path, of_run)
    if verification.records is None or verification.records.journal is None:
        return verification
    state = verification.records.journal.state
    differences = recorded_settings.differences(state, verification.records.record)
    of_metrics = [*_of_metrics(verification.records), *_of_results(path, state)]
    if made:  # Pages in the words of an older version are refused as a whole.
        of_metrics += _of_tables(path, {*made, *archive.tables(verification.records), archive.SUMS})
    return dataclasses.replace(
        verification,
        differences=tuple(dict.fromkeys((*verification.differences, *differences, *of_metrics))),
    )


def _of_metrics(records: archive.Records) -> Iterator[str]:
    """How the metrics of the journal differ from the plan, a sentence each."""
    assert records.journal is not None
    name, record, rows = archive.METRICS, records.record, records.journal.rows()
    columns = [column for row in rows for column in row if column.startswith(_TRAINING_PREFIX)]
    if columns and not record.train_metrics_released:
        yield f'{name}: has {columns[0]}, which {archive.PLAN} does not say'
    epsilon = plan = None
    for row, in_force in zip(rows, records.plans(), strict=True):
        t = int(row['round'])
        if 'epsilon' not in row and records.journal.state.settings is None:
            continue  # A loop of one's own measures nothing.
        if epsilon is None or in_force is not plan:
            plan = in_force
            epsilon = running.RunningEpsilon(plan, record.deltas[0], record.accountant)
        if t > plan.participation.rounds:
            return  # The journal has more rounds than its plan, which is a difference.
        if not _is_number(row.get('epsilon', math.nan), epsilon.after(t)):
            yield f'{name}: epsilon after round {t} must be {epsilon.after(t)}'
            return


def _of_results(directory: pathlib.Path, state: State) -> Iterator[str]:
    """Which results are there that the journal of a run does not have."""
    for name in results(directory):
        shown = errors.shown(name)
        if state.ended is not None and name not in state.ended.results:
            yield f'{shown}: is there, and {archive.LEDGER} does not have its digest'
        elif state.ended is None and any(file.is_of_end for file in _of_table(name)):
            yield f'{shown}: is there, and {archive.LEDGER} does not say that the run ended'
    if state.audited is None and (directory / AUDIT).exists():
        yield f'{AUDIT}: is there, and {archive.LEDGER} does not have its digest'


def _of_tables(directory: pathlib.Path, known: Collection[str]) -> Iterator[str]:
    """Which tables and pages are there that a run with these records does not write."""
    for name in tables(directory):
        if name not in known:
            yield f'{name}: is there, and does not follow from {archive.LEDGER}'


def _is_number(stated: float, value: float) -> bool:
    """Whether a number is the stated one, up to its last digits."""
    return stated == value or comparison.is_close(stated, value)
