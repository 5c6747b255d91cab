"""Checks the files of a finished run, and computes its report anew.

`verify` compares all digests, names what was added or is missing, compares log and plan with the
ledger, computes every page of the report from plan, strategy and log, and compares it with the one
that is there. Digests reveal accidents and careless changes. Whoever may write the directory can
also write new digests and a new ledger; then only what is recomputed, and copies kept elsewhere,
tell.
"""

import dataclasses
import hashlib
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence

from dpfl import _files, _json, errors
from dpfl.accounting.records import archive, comparison, ledger_lines, sums
from dpfl.accounting.records.archive import LEDGER, LOG, MODEL, PAGE, PLAN, REPORT, STRATEGY, SUMS
from dpfl.accounting.reports.report import TEXT_VERSION, PrivacyReport

_NEEDED = (SUMS, PLAN, STRATEGY, LOG, LEDGER, REPORT, PAGE)
Pages = Callable[[pathlib.Path, PrivacyReport], Mapping[str, str]]


@dataclasses.dataclass(frozen=True)
class Verification:
    """What `verify` found.

    Attributes:
      records: what the report was computed from; None where they cannot be read.
      report: computed anew, or None where that is not possible.
      differences: one sentence each; empty if the directory is as it should be.
      not_compared: what belongs to the guarantee and could not be compared, one sentence each.
      content: bytes of the report's file, which were compared.
    """

    records: archive.Records | None
    report: PrivacyReport | None
    differences: tuple[str, ...]
    not_compared: tuple[str, ...] = ()
    content: bytes = b''

    @property
    def is_verified(self) -> bool:
        """Whether everything that belongs to the guarantee was compared, and nothing differs."""
        return self.report is not None and not self.differences and not self.not_compared


def verify(directory: str | os.PathLike[str], pages: Pages = archive.pages) -> Verification:
    """Checks the files of a run: their digests, and its plan, ledger, log and report together.

    Links are not followed. The words of an older version cannot be computed here, so they are
    differences. An export (`dpfl export_run`) has neither log nor ledger: its report is computed
    from the plan alone.

    Args:
      directory: of the run.
      pages: the pages of a run by the names of their files, from its directory and its report.
        Those that are there are compared.

    Raises:
      ValueError: if the directory does not hold a finished run or an export.
    """
    directory = pathlib.Path(directory)
    is_export = _is_export(directory)
    needed = tuple(name for name in _NEEDED if not (is_export and name in (LOG, LEDGER)))
    missing = [name for name in needed if not os.path.lexists(directory / name)]
    if missing:
        raise errors.ArgumentError(
            'run_dir', directory, f'must hold a finished run ({missing[0]} is missing)'
        )
    found, others = sums.walk(directory, archive.CHECKPOINTS)
    differences = [f'{errors.shown(name)}: {what}' for name, what in others.items()]
    folders = [name for name in needed if (directory / name).is_dir()]
    differences += [f'{name}: is not a file' for name in folders]
    if any(name in others or name in folders for name in needed):
        return Verification(None, None, tuple(differences))
    ledger, damage = (None, []) if is_export else _ledger(directory)
    content = _files.read_bytes(directory / REPORT)
    differences += [*_changed_files(directory, found, needed, content), *damage]
    try:
        record = archive.read_plan(directory)
        if record.exported != is_export:
            differences.append(f'{PLAN}: says that this is an export, and {LOG} is there')
        if ledger is not None:
            differences += _changed_plan(ledger, record)
            key = ledger.noise_key_digest
            record = dataclasses.replace(record, noise_key_digest=key, exported=False)
        records = archive.Records.read(directory, record)
        report = records.report()
    except ValueError as error:
        return Verification(None, None, (*differences, errors.shown(error)))
    if ledger is not None:
        differences += _changed_rounds(ledger, records, has_model=MODEL in found)
    differences += _changed_pages(directory, found, content, report, pages)
    return Verification(records, report, tuple(differences), content=content)


def _is_export(directory: pathlib.Path) -> bool:
    """Whether a directory says that it is an export, and has nothing that an export leaves out."""
    if any(os.path.lexists(directory / name) for name in (LOG, LEDGER)):
        return False
    if any((directory / name).is_symlink() for name in (PLAN, STRATEGY)):
        return False
    try:
        return archive.read_plan(directory).exported
    except ValueError:
        return False


def _changed_files(
    directory: pathlib.Path,
    found: Mapping[str, pathlib.Path],
    needed: Sequence[str],
    report: bytes,
) -> list[str]:
    """How the files differ from `SHA256SUMS`, a sentence each; `report` was read already."""
    try:
        expected = sums.parse(_files.read_bytes(directory / SUMS).decode(errors='replace'))
    except (OSError, ValueError) as error:
        return [f'{SUMS}: {error}']
    differences = [f'{SUMS}: {name} is not listed' for name in needed[1:] if name not in expected]
    differences += [
        f'{errors.shown(name)}: was added, {SUMS} does not list it'
        for name in found
        if name not in expected and name not in needed
    ]
    for name, digest in expected.items():
        if name not in found:
            differences.append(f'{errors.shown(name)}: is missing, {SUMS} lists it')
            continue
        is_report = name == REPORT
        now = hashlib.sha256(report).hexdigest() if is_report else sums.sha256(found[name])
        if now != digest:
            differences.append(
                f'{errors.shown(name)}: its SHA-256 is not the one in {SUMS}: it was changed'
            )
    return differences


def _ledger(directory: pathlib.Path) -> tuple[ledger_lines.Ledger | None, list[str]]:
    """The ledger of a run, and what is wrong with it."""
    try:
        data = _files.read_bytes(directory / LEDGER)
        found = ledger_lines.parse(data)
    except (OSError, ledger_lines.LineError) as error:
        return None, [f'{LEDGER}: {error}']
    if len(data) != found.complete:
        return found, [f'{LEDGER}: ends with a line that was cut off']
    return found, []


def _changed_plan(ledger: ledger_lines.Ledger, record: archive.PlanRecord) -> list[str]:
    """How the plan differs from the one that the ledger began with."""
    differences = []
    if ledger.plan != record.digest():
        differences.append(f'{PLAN}: is not the plan with which {LEDGER} begins: it was changed')
    elif ledger.history != record.extensions:
        differences.append(f'{PLAN}: has other extensions than {LEDGER}: it was changed')
    if record.noise_key_digest not in (None, ledger.noise_key_digest):
        differences.append(f'{PLAN}: has another noise_key_digest than {LEDGER}: it was changed')
    return differences


def _changed_rounds(
    ledger: ledger_lines.Ledger, records: archive.Records, has_model: bool
) -> list[str]:
    """How the log, and whether there is a final model, differ from the rounds of the ledger."""
    log, record, rounds = records.log, records.record, len(ledger.entries)
    planned = record.plan.participation.rounds
    differences = []
    if has_model and rounds != planned and record.stop_at_accuracy is None:
        differences.append(f'{MODEL}: is there, though {LEDGER} has {rounds} of {planned} rounds')
    if log is None:
        return differences
    if log.rounds != rounds:
        return [*differences, f'{LOG}: has {log.rounds} rounds, {LEDGER} has {rounds}']
    for t, entry in enumerate(ledger.entries):
        if ledger_lines.cohort_digest(log.cohort(t).tolist()) != entry.cohort:
            return [*differences, f'{LOG}: has another cohort than {LEDGER} in round {t}']
    return differences


def _changed_pages(
    directory: pathlib.Path,
    found: Mapping[str, pathlib.Path],
    content: bytes,
    report: PrivacyReport,
    pages: Pages,
) -> list[str]:
    """How the pages in the directory differ from those computed anew."""
    try:
        written = _json.checked_object(REPORT, _json.loads(content))
    except ValueError as error:
        return [f'{REPORT}: not a privacy report ({errors.shown(error)})']
    version = written.get('text_version', 1)
    if type(version) is int and version < TEXT_VERSION:
        return [
            f'{REPORT}: has the words of text version {version}, and this version of dpfl computes '
            f'those of {TEXT_VERSION}; {_older(report)}'
        ]
    basis = 'the plan' if report.observed is None else 'plan and log'
    differences = []
    for where, *values in comparison.differences(written, report.to_dict()):
        was, now = comparison.short_pair(*values)
        differences.append(f'{REPORT}: {where} is {was}, computed from {basis} {now}')
    try:
        made = pages(directory, report)
    except (OSError, ValueError) as error:
        return [*differences, errors.shown(error)]
    for name, page in made.items():
        if name != REPORT and name in found:
            stated = _files.read_bytes(found[name]).decode(errors='replace')
            difference = comparison.page_difference(stated, page)
            differences += [] if difference is None else [f'{name}: {difference}']
    return differences


def _older(report: PrivacyReport) -> str:
    """Which version of dpfl can verify a run of an older one."""
    version = '' if report.about is None else report.about.version
    return f'verify the run with dpfl {version or "of its day"}'
