"""A finished run: verified, with a message if something differs, and shown."""

import contextlib
import pathlib
import shutil
import sys
import webbrowser
from collections.abc import Callable, Iterator
from importlib import metadata

from dpfl import _storage, accounting, errors
from dpfl.accounting.records import archive, comparison
from dpfl.accounting.records.journal import Journal
from dpfl.accounting.records.verification import Verification
from dpfl.accounting.reports import report as report_lib
from dpfl.cli.command import command_line
from dpfl.cli.results import report_files
from dpfl.simulation import run_directory

_DIFFERS = 1


def verify(path: pathlib.Path) -> accounting.PrivacyReport:
    """Checks a run against its own files and its settings, and returns its report.

    If something differs, or could not be compared, prints the difference on standard error and
    exits with status 1.

    Raises:
      UsageError: If `path` is not the directory of a finished run.
    """
    with _locked(path, to_read=True):
        return _verified(path)[1]


def verified(
    directory: str,
    group_size: int | None = None,
    sign: Callable[[pathlib.Path, bytes], None] | None = None,
    *,
    forget_keys: bool = False,
    after: str | None = None,
) -> accounting.PrivacyReport:
    """Verifies a run and returns its report; prints the verdict on standard error.

    Args:
      directory: of the run.
      group_size: number of clients that the report is to be for; None for that of the run.
      sign: called with the file of the report and the bytes that were compared, while nothing else
        can use the directory; None to sign nothing.
      forget_keys: delete keys and checkpoints of a run that has ended.
      after: an earlier report of the run, whose journal that of the run must continue.

    Raises:
      UsageError: If it is not the directory of a finished run, or is an export and is to be signed,
        or has not ended and is to forget its keys; or if the earlier report cannot be used.
      DataError: If its audit refutes its guarantee, or it does not continue the earlier report.
    """
    path = pathlib.Path(directory)
    earlier = None if after is None else _earlier(after)
    with _locked(path, to_read=sign is None and not forget_keys):
        verification, report = _verified(path)
        if report.measured is not None and report.measured.refutations:
            reason = report.measured.refutations[0]
            raise errors.DataError.of_file(path, f'the audit refutes the guarantee ({reason})')
        assert verification.records is not None  # As the report was computed from them.
        journal = verification.records.journal
        is_export = journal is None
        if earlier is not None:
            _require_continued(path, earlier, report, journal)
        if sign is not None and is_export:
            raise command_line.UsageError(
                f'--run_dir={path}: is an export, whose plan was compared with nothing; sign the '
                'report of its run'
            )
        print(f'{path}: {_verdict(is_export)}', file=sys.stderr)
        if earlier is not None:
            print(f'{path}: its journal continues that of {after}', file=sys.stderr)
        is_over = journal is None or journal.state.ended is not None
        note = run_directory.not_judged(archive.listed(path), has_ended=is_over)
        print(f'{path}: note: {note}', file=sys.stderr)
        _note_versions(path)
        if sign is not None:
            sign(path / archive.REPORT, verification.content)
        if forget_keys:
            if journal is None or journal.state.ended is None:
                raise command_line.UsageError('--forget_keys: needs a run that has ended')
            with _storage.naming(path / archive.CHECKPOINTS):
                if (path / archive.CHECKPOINTS).exists():
                    shutil.rmtree(path / archive.CHECKPOINTS)
            print(f'{path}: keys and checkpoints are deleted', file=sys.stderr)
    if group_size is None:
        return report
    with command_line.refusing_bad_values():
        return verification.records.report(group_size)


def _note_versions(path: pathlib.Path) -> None:
    """Says which figures were drawn by another Matplotlib, so that only their values are judged."""
    for page in sorted(path.glob('*.html')):
        stated = comparison.drawn_by(page.read_text(encoding='utf-8', errors='replace'))
        if others := stated - {metadata.version('matplotlib')}:
            shown = ', '.join(map(errors.shown, sorted(others)))
            print(
                f'{path}: note: {page.name}: figures that Matplotlib {shown} drew are judged by '
                'the values that they show',
                file=sys.stderr,
            )


def _earlier(name: str) -> accounting.PrivacyReport:
    """An earlier report of a run, from the file or the directory that --after names.

    Its words may be those of an older version: only the digests of the run are used.
    """
    path = report_files.path_of(name)
    try:
        report, _ = report_lib.read(report_files.read('after', path), with_selection=True)
    except ValueError as error:
        raise command_line.UsageError(
            f'--after={path}: not a privacy report ({errors.shown(error)})'
        ) from None
    if report.journal_head is None:
        raise command_line.UsageError(
            f'--after={path}: must have journal_head, as reports of runs have; that of an export '
            'or of a plan has none'
        )
    return report


def _require_continued(
    path: pathlib.Path,
    earlier: accounting.PrivacyReport,
    report: accounting.PrivacyReport,
    journal: Journal | None,
) -> None:
    """Checks that a run has the noise of an earlier report, and continues its journal.

    Raises:
      DataError: If it does not.
    """
    reason = None
    if journal is None:
        reason = 'is an export, without a journal that could be compared'
    elif report.noise_key_digest != earlier.noise_key_digest:
        reason = 'is another run than that of --after: its noise_key_digest is another one'
    elif earlier.journal_head not in journal.chain:
        reason = (
            f'{archive.LEDGER} does not continue that of --after: it has no line with the digest '
            f'{earlier.journal_head}. The run was rolled back and went another way, or is a copy '
            'that did: what the earlier report counts is a further release'
        )
    if reason is not None:
        raise errors.DataError.of_file(path, reason)


def in_progress(directory: str) -> archive.Records | None:
    """The records so far of a run that another process trains now; None for any other directory.

    Holds a lock only to see whether there is one, and writes nothing. A run that has ended is none:
    only its pages are written.

    Raises:
      UsageError: If the run has no round yet, or its records cannot be read.
    """
    path = pathlib.Path(directory)
    if not path.is_dir() or not _storage.is_locked(path):
        return None
    with command_line.naming('run_dir', path):
        journal = archive.read_journal(path)
        if journal is None or journal.state.ended is not None:
            return None
        has_round = journal.state.begun > 0
        if has_round:
            records = archive.Records.read(path, is_running=True)
            has_round = records.log is None or records.log.rounds > 0
        if not has_round:
            raise ValueError('is in use by a run that has no round yet')
    print(f'{path}: in progress, nothing was verified', file=sys.stderr)
    return records


def show_page(directory: str) -> None:
    """Shows the page of a run's report in a browser, or says where it is."""
    page = pathlib.Path(directory, run_directory.HTML_REPORT).resolve()
    if not page.is_file():
        raise command_line.UsageError(f'--open: {page}: is not there; --write_pages writes it')
    if not webbrowser.open(page.as_uri()):
        print(f'{page}: there is no browser to open it', file=sys.stderr)


def write_pages(directory: str) -> None:
    """Writes all tables and pages of a run again, as they follow from its journal.

    Raises:
      UsageError: If it is not the directory of a run.
    """
    path = pathlib.Path(directory)
    if not (path / archive.LEDGER).is_file():
        raise command_line.UsageError(f'--run_dir={path}: must hold {archive.LEDGER}')
    run = run_directory.RunDirectory(path, resume=True)
    with command_line.refusing_bad_values(), run.in_use():
        run.write_pages()


@contextlib.contextmanager
def _locked(path: pathlib.Path, *, to_read: bool) -> Iterator[None]:
    """A context in which no run writes to the directory, and without `to_read` nobody reads it."""
    if not path.is_dir():
        raise command_line.UsageError(f'--run_dir={path}: must be a directory')
    with command_line.refusing_bad_values(), _storage.locked(path, to_read=to_read):
        yield


def _verified(path: pathlib.Path) -> tuple[Verification, accounting.PrivacyReport]:
    verification = run_directory.verify(path)
    for difference in verification.differences:
        print(f'error: {path}: {difference}', file=sys.stderr)
    if verification.report is None or not verification.is_verified:
        sys.exit(_DIFFERS)
    return verification, verification.report


def _verdict(is_export: bool) -> str:
    """The verified facts, in one sentence."""
    listed = f'verified: every file that {archive.SUMS} lists is as it was, none was added'
    if is_export:
        return (
            f'{listed}, and the report follows from the plan; this is an export, without the '
            'journal of its run'
        )
    return (
        f'{listed}, journal, cohorts, settings and plan agree, and every table and page follows '
        'from them'
    )
