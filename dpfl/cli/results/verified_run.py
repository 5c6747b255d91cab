"""Verifies the directory of a finished run; ends the binary with a message if something differs."""

import dataclasses
import pathlib
import sys

from dpfl import ParticipationLog, _storage, accounting
from dpfl.accounting.records import archive, verification
from dpfl.cli.command import command_line
from dpfl.cli.flags import recorded_flags

_DIFFERS = 1


def verify(path: pathlib.Path) -> tuple[verification.Verification, accounting.PrivacyReport]:
    """Checks a run against its own files and its flags.

    If something differs, prints what on standard error and exits with status 1.

    Returns:
      What the verification found, and the report of the run.

    Raises:
      UsageError: If `path` is not the directory of a finished run.
    """
    if not path.is_dir():
        raise command_line.UsageError(f'--run_dir={path}: must be a directory')
    # The lock keeps runs from writing to the directory meanwhile.
    with command_line.refusing_bad_values(), _storage.locked(path, to_read=True):
        found = verification.verify(path)
    differences = [*found.differences]
    if found.report is not None:
        differences += recorded_flags.differences(path, found.report)
    for difference in differences:
        print(f'error: {path}: {difference}', file=sys.stderr)
    if differences or found.report is None:
        sys.exit(_DIFFERS)
    return found, found.report


def verified(directory: str, group_size: int | None = None) -> accounting.PrivacyReport:
    """Verifies a run and returns its report; prints the verdict on standard error.

    Args:
      directory: of the run.
      group_size: number of clients that the report is to be for; None for that of the run.
    """
    path = pathlib.Path(directory)
    found, report = verify(path)
    if report.measured is not None and report.measured.refutations:
        reason = report.measured.refutations[0]
        print(f'error: {path}: the audit refutes the guarantee ({reason})', file=sys.stderr)
        sys.exit(_DIFFERS)
    is_export = report.observed is None
    print(f'{path}: {_verdict(path, found, is_export)}', file=sys.stderr)
    for note in found.notes:
        print(f'{path}: note: {note}', file=sys.stderr)
    if (path / archive.SIGNATURE).exists():
        print(
            f'{path}: note: {archive.SIGNATURE} is not checked here; --verify does',
            file=sys.stderr,
        )
    return report if group_size is None else _for_groups(path, group_size, is_export)


def _for_groups(path: pathlib.Path, size: int, is_export: bool) -> accounting.PrivacyReport:
    """The report of a verified run for groups of clients."""
    with command_line.refusing_bad_values():
        record = archive.read_plan(path)
        log = None if is_export else ParticipationLog.load(path / archive.LOG)
        plan = dataclasses.replace(record.plan, group_size=size)
        course = archive.read_clip_course(path, plan)
        return dataclasses.replace(record, plan=plan).report(log, course)


def _verdict(path: pathlib.Path, found: verification.Verification, is_export: bool) -> str:
    """What was verified, in one sentence."""
    listed = f'verified: every file that {archive.SUMS} lists is as it was'
    if found.notes:
        return f'{listed}, log and ledger agree, and the numbers follow from plan and log'
    if is_export:
        return (
            f'{listed}, none was added, and the report follows from the plan; this is an export, '
            'without the log and the ledger of its run'
        )
    has_flags = (path / archive.FLAGS).exists() or (path / archive.CONFIG).exists()
    return (
        f'{listed}, none was added (except in {archive.CHECKPOINTS}/, which is secret and not '
        f'checked), log, ledger{", flags" if has_flags else ""} and plan agree, and the report '
        'follows from plan and log'
    )
