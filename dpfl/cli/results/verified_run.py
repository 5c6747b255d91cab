"""Verifies the directory of a finished run; ends the binary with a message if something differs."""

import contextlib
import pathlib
import shutil
import sys
from collections.abc import Callable, Iterator

from dpfl import _storage, accounting
from dpfl.accounting.records import archive
from dpfl.accounting.records.verification import Verification
from dpfl.cli.command import command_line
from dpfl.simulation import outputs, run_files, verification

_DIFFERS = 1


def verify(path: pathlib.Path) -> tuple[Verification, accounting.PrivacyReport]:
    """Checks a run against its own files and its settings.

    If something differs, or could not be compared, prints what on standard error and exits with
    status 1.

    Returns:
      What the verification found, and the report of the run.

    Raises:
      UsageError: If `path` is not the directory of a finished run.
    """
    with _locked(path, to_read=True):
        return _verified(path)


def verified(
    directory: str,
    group_size: int | None = None,
    sign: Callable[[pathlib.Path, bytes], None] | None = None,
    *,
    forget_keys: bool = False,
) -> accounting.PrivacyReport:
    """Verifies a run and returns its report; prints the verdict on standard error.

    Args:
      directory: of the run.
      group_size: number of clients that the report is to be for; None for that of the run.
      sign: called with the file of the report and the bytes that were compared, while nothing else
        can use the directory; None to sign nothing.
      forget_keys: delete keys and checkpoints of a run that has ended.

    Raises:
      UsageError: If it is not the directory of a finished run, or is an export and is to be signed,
        or has not ended and is to forget its keys.
    """
    path = pathlib.Path(directory)
    with _locked(path, to_read=sign is None and not forget_keys):
        found, report = _verified(path)
        if report.measured is not None and report.measured.refutations:
            reason = report.measured.refutations[0]
            print(f'error: {path}: the audit refutes the guarantee ({reason})', file=sys.stderr)
            sys.exit(_DIFFERS)
        assert found.records is not None  # As the report was computed from them.
        is_export = found.records.journal is None
        if sign is not None and is_export:
            raise command_line.UsageError(
                f'--run_dir={path}: is an export, whose plan was compared with nothing; sign the '
                'report of its run'
            )
        print(f'{path}: {_verdict(path, is_export)}', file=sys.stderr)
        print(f'{path}: note: {run_files.not_judged(archive.listed(path))}', file=sys.stderr)
        if sign is not None:
            sign(path / archive.REPORT, found.content)
        if forget_keys:
            journal = found.records.journal
            if journal is None or journal.state.ended is None:
                raise command_line.UsageError('--forget_keys: needs a run that has ended')
            with _storage.naming(path / archive.CHECKPOINTS):
                if (path / archive.CHECKPOINTS).exists():
                    shutil.rmtree(path / archive.CHECKPOINTS)
            print(f'{path}: keys and checkpoints are deleted', file=sys.stderr)
    if group_size is None:
        return report
    with command_line.refusing_bad_values():
        return found.records.report(group_size)


def write_pages(directory: str) -> None:
    """Writes all tables and pages of a run again, as they follow from its journal.

    Raises:
      UsageError: If it is not the directory of a run.
    """
    path = pathlib.Path(directory)
    if not (path / archive.LEDGER).is_file():
        raise command_line.UsageError(f'--run_dir={path}: must hold {archive.LEDGER}')
    run = outputs.RunDirectory(path, resume=True)
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
    found = verification.verify(path)
    for difference in found.differences:
        print(f'error: {path}: {difference}', file=sys.stderr)
    if found.report is None or not found.is_verified:
        sys.exit(_DIFFERS)
    return found, found.report


def _verdict(path: pathlib.Path, is_export: bool) -> str:
    """What was verified, in one sentence."""
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
