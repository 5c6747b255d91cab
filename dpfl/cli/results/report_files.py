"""Reports in files, for `report_privacy`: compares, verifies, writes and signs them."""

import json
import pathlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from absl import flags

from dpfl import _files, _json, _storage, accounting, errors
from dpfl.accounting.records import archive, signatures
from dpfl.accounting.reports import two_reports
from dpfl.accounting.selection import Selection
from dpfl.cli.command import command_line
from dpfl.cli.flags.output_flags import FORMATS, GuaranteeConfig, ReportFilesConfig
from dpfl.reporting import comparison_page
from dpfl.simulation import run_directory


def path_of(name: str) -> pathlib.Path:
    """The file of a report, which is given as a file or as the directory of a run."""
    path = pathlib.Path(name)
    return path / archive.REPORT if path.is_dir() else path


def read(flag: str, path: pathlib.Path) -> bytes:
    """The content of a report file.

    Args:
      flag: Name of the flag that names it.
      path: The file.

    Raises:
      UsageError: If it cannot be read.
    """
    with command_line.naming(flag, path):
        return _files.read_bytes(path)


def answer(config: ReportFilesConfig, form: str) -> str | None:
    """The output of --compare or --verify; None without these flags.

    Raises:
      UsageError: If a file or another flag cannot be used.
      DataError: If a signature is missing or not valid.
    """
    if not config.compare and config.verify is None:
        return None
    purpose = 'compare' if config.compare else 'verify'
    command_line.refuse_others(purpose, 'public_key', 'format', 'output')
    if form not in FORMATS:
        raise command_line.UsageError(f'--format={form}: must be text or json with --{purpose}')
    if config.compare:
        values = _compared(config.compare)
        text = comparison_page.render(values)
    else:
        assert config.verify is not None and config.public_key is not None  # Each needs the other.
        values, text = verified(config.verify, config.public_key)
    return json.dumps(values, indent=2, allow_nan=False) if form == 'json' else text


def signer(
    config: ReportFilesConfig, run_dir: str | None, form: str
) -> Callable[[pathlib.Path, bytes], None] | None:
    """A function that signs the file of a report, with these bytes; None without --sign.

    What is signed is the file of --output, or else the report of the run. The key is read now, so
    that nothing is computed for a key that cannot be used.

    Args:
      config: The flags.
      run_dir: Directory of the run; None for the report of a plan.
      form: Format of the report.

    Raises:
      UsageError: If the key cannot be used, there is no report to sign, or it is not the one that
        the flags describe.
    """
    if config.sign is None:
        return None
    if config.output is not None:
        if form != 'json':
            raise command_line.UsageError(f'--format={form}: must be json with --sign')
        return sign_with(config.sign)
    if run_dir is None:
        raise command_line.UsageError('--sign: needs --run_dir or --output')
    for name in ('group_size', 'selected_from', 'compose_with'):
        if flags.FLAGS[name].present:
            raise command_line.UsageError(
                f'--{name}: needs --output with --sign: the report in --run_dir is another one'
            )
    return sign_with(config.sign)


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

        more = progress + _section(together)
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
    return progress + report.render() + _section(together)


def with_more(
    report: accounting.PrivacyReport, config: GuaranteeConfig
) -> accounting.PrivacyReport:
    """The report with the membership tests and the selection that the flags ask for.

    Raises:
      UsageError: If the guarantee of a selection is not known.
    """
    if config.tradeoff:
        report = report.with_tradeoff()
    if config.selected_from is None:
        return report
    with command_line.refusing_bad_values():
        return report.selected_from(Selection.from_text(config.selected_from))


def together(report: accounting.PrivacyReport, others: Sequence[str]) -> dict[str, Any] | None:
    """The joint guarantee of a report and of the other ones that --compose_with names, if any.

    Raises:
      UsageError: If a file is not a report, or the reports cannot be composed.
    """
    if not others:
        return None
    reports = [report]
    for name in others:
        content = read('compose_with', path_of(name))
        with command_line.naming('compose_with', name):
            reports.append(accounting.PrivacyReport.from_json(content))
            two_reports.check(reports)
    return two_reports.to_dict(reports)


def _section(together: Mapping[str, Any] | None) -> str:
    """The section of the page about the joint guarantee."""
    return f'\n## Composition\n\n{together["statement"]}\n' if together else ''


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


def _compared(names: Sequence[str]) -> dict[str, Any]:
    """The comparison of two reports, which are files or directories of runs.

    Raises:
      UsageError: If one of them is not a report.
    """
    contents, reports = [], []
    for name in names:
        contents.append(read('compare', path_of(name)))
        with command_line.naming('compare', name):
            reports.append(accounting.PrivacyReport.from_json(contents[-1], with_selection=True))
    with command_line.refusing_bad_values():
        values = two_reports.compare(reports[0], reports[1], (names[0], names[1]))
    for side, content in zip(two_reports.SIDES, contents, strict=True):
        if 'composition' in _json.loads(content):
            values['notes'].append(
                f'The report of the {side} also states a joint guarantee with other runs, which '
                'is not compared.'
            )
    return values


def sign_with(key_file: str) -> Callable[[pathlib.Path, bytes], None]:
    """A function that writes the signature of a report, with the bytes of its file, beside it.

    The key is read now, so that nothing is computed for a key that cannot be used.

    Args:
      key_file: file of the private key.

    Raises:
      UsageError: If it holds no private Ed25519 key, or others can read it.
    """
    with command_line.refusing_bad_values():
        key = signatures.private_key('sign', key_file)

    def sign(report: pathlib.Path, content: bytes) -> None:
        signature = key.sign(content)
        path = signatures.path_of(report)
        _storage.write_atomically(path, lambda file: file.write(signature))
        print(
            f'{path}: signed with the key of SHA-256 {signatures.fingerprint(key.public_key())}',
            file=sys.stderr,
        )

    return sign


def verified(name: str, key_file: str) -> tuple[dict[str, Any], str]:
    """Verifies the signature of a report, computes the report again, and gives the verdict.

    Args:
      name: the report, a file or the directory of a run.
      key_file: file of the public key.

    Returns:
      The verdict as values and as text.

    Raises:
      UsageError: If a file cannot be used.
      DataError: If there is no signature, it is not valid, or the report states something that
        does not follow from its plan.
    """
    with command_line.refusing_bad_values():
        key = signatures.public_key('public_key', key_file)
    path = path_of(name)
    content = read('verify', path)
    statement, notes = signatures.signed_statement(path, content, key)
    values = {
        'report': str(path),
        'signature': str(signatures.path_of(path)),
        'is_valid': True,
        'public_key_sha256': signatures.fingerprint(key),
        'statement': statement,
        'notes': notes,
    }
    lines = [
        f'{errors.shown(path)}: the signature is valid: the report is, byte by byte, what was '
        f'signed with the key of SHA-256 {values["public_key_sha256"]}.',
        f'Computed again from its plan: {statement}',
        *notes,
        'A signature says who stands by a report, not that the run was like that.',
    ]
    return values, '\n'.join(lines)
