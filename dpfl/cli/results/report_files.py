"""Reports in files, for `report_privacy`: compares, verifies, writes and signs them."""

import json
import pathlib
import sys
from collections.abc import Callable

from absl import flags

from dpfl import _storage, accounting
from dpfl.accounting.records import archive
from dpfl.cli.command import command_line
from dpfl.cli.flags import composition
from dpfl.cli.flags.report_files_flags import ReportFilesConfig
from dpfl.cli.results import compared_reports, signed_report
from dpfl.simulation import run_directory


def answer(config: ReportFilesConfig, form: str) -> str | None:
    """The output of --compare or --verify; None without these flags.

    Raises:
      UsageError: If a file or another flag cannot be used.
      DataError: If a signature is missing or not valid.
    """
    if config.compare:
        _refuse_others('compare', 'format', 'output')
        return compared_reports.render(config.compare, form)
    if config.verify is not None and config.public_key is not None:
        _refuse_others('verify', 'public_key', 'format', 'output')
        return signed_report.verified(config.verify, config.public_key, form)
    return None


def signer(
    config: ReportFilesConfig, run_dir: str | None, form: str
) -> Callable[[pathlib.Path, bytes], None] | None:
    """A function that signs the file of a report, with these bytes; None without --sign.

    The key is read now, so that nothing is computed for a key that cannot be used.

    Args:
      config: The flags.
      run_dir: Directory of the run; None for the report of a plan.
      form: Format of the report.

    Raises:
      UsageError: If the key cannot be used, or there is no report to sign.
    """
    if config.sign is None:
        return None
    _check_signed(config, run_dir, form)
    return signed_report.signer(config.sign)


def rendered(
    report: accounting.PrivacyReport,
    together: dict | None,
    form: str,
    run_dir: str | None,
    running: archive.Records | None = None,
) -> str:
    """A report in a format, with the joint guarantee of several runs, if there are any.

    Args:
      report: of a plan or of a run.
      together: the joint guarantee.
      form: Format of the report.
      run_dir: Directory of the run; None for the report of a plan.
      running: records of a run that is in progress, from which the report follows, and says so. As
        JSON it is none that `PrivacyReport.from_json` reads.
    """
    progress = '' if running is None else _in_progress(report, running)
    if form == 'html':
        from dpfl.reporting import privacy_page  # matplotlib takes a second to import.

        more = progress + (composition.render(together) if together else '')
        if run_dir is None:
            return privacy_page.render(report, more)
        return run_directory.html_report(pathlib.Path(run_dir), report, more)
    if form == 'json':
        values = report.to_dict()
        if progress:
            values = {'in_progress': progress.strip(), **values}
        if together:
            values['composition'] = together
        return json.dumps(values, indent=2, allow_nan=False)
    return progress + report.render() + (composition.render(together) if together else '')


def _in_progress(report: accounting.PrivacyReport, running: archive.Records) -> str:
    """The first paragraph of a report of a run that is in progress."""
    assert running.journal is not None  # As the run has one.
    log, planned = running.log, report.plan.participation.rounds
    rounds = running.journal.state.begun if log is None else log.rounds
    whose = 'all planned rounds' if report.so_far is None else 'the rounds so far'
    return (
        f'**The run is in progress**: {rounds} of {planned} planned rounds have begun, and epsilon '
        f'is that of {whose}. This is the report that the run would have if it ended now; nothing '
        'was verified.\n\n'
    )


def show(
    text: str, output: str | None, sign: Callable[[pathlib.Path, bytes], None] | None = None
) -> None:
    """Prints a text, or writes it to the file of --output and signs the file.

    Raises:
      StorageError: If it cannot be written.
    """
    if output is None:
        print(text)
        return
    path, content = pathlib.Path(output), text.encode() + b'\n'
    _storage.write_atomically(path, lambda file: file.write(content))
    if sign is not None:
        sign(path, content)


def _refuse_others(purpose: str, *allowed: str) -> None:
    """Refuses the flags of the binary that do not apply to a purpose.

    Args:
      purpose: Name of the flag that gives the purpose.
      *allowed: Names of the other flags that apply.

    Raises:
      UsageError: If another flag is given.
    """
    for flag in flags.FLAGS.get_key_flags_for_module(sys.argv[0]):
        if flag.present and flag.name not in (purpose, *allowed):
            raise command_line.UsageError(f'--{flag.name}: cannot be combined with --{purpose}')


def _check_signed(config: ReportFilesConfig, run_dir: str | None, form: str) -> None:
    """Checks that there is something to sign: the file of --output, or else the run's report.

    Args:
      config: The flags.
      run_dir: Directory of the run; None for the report of a plan.
      form: Format of the report.

    Raises:
      UsageError: If there is no such file, or it is not the report that the flags describe.
    """
    if config.output is not None:
        if form != 'json':
            raise command_line.UsageError(f'--format={form}: must be json with --sign')
        return
    if run_dir is None:
        raise command_line.UsageError('--sign: needs --run_dir or --output')
    for name in ('group_size', 'selected_from', 'compose_with'):
        if flags.FLAGS[name].present:
            raise command_line.UsageError(
                f'--{name}: needs --output with --sign: the report in --run_dir is another one'
            )
