"""Checks the files of a finished run, and computes its report anew.

`verify` compares all digests, names what was added or is missing, compares log and plan with the
ledger, computes the report from plan, strategy and log, and compares it with the report that is
there. Digests reveal accidents and careless changes. Whoever may write the directory can also write
new digests and a new ledger; then only the recomputed report, and copies kept elsewhere, tell.
"""

import dataclasses
import os
import pathlib
from collections.abc import Sequence

from dpfl import _files, _json, errors
from dpfl.accounting.records import archive, comparison, ledger_lines, sums
from dpfl.accounting.records.archive import LEDGER, LOG, MODEL, PAGE, PLAN, REPORT, STRATEGY, SUMS
from dpfl.accounting.reports.report import TEXT_VERSION, PrivacyReport
from dpfl.participation import ParticipationLog

_NEEDED = (SUMS, PLAN, STRATEGY, LOG, LEDGER, REPORT, PAGE)
# Keys of a report that hold sentences or their version, or that older versions did not have.
_SENTENCES = (
    'text_version',
    'statement',
    'assumptions',
    'not_covered',
    'also_not_covered',
    'history',
    'tradeoff',
    'membership',
)
# Keys that older versions did not have, and that are compared if they are there.
_ADDED = ('noise_key_digest',)
# Numbers that later versions have lowered, where a tighter accountant came to be known.
_LOOSER = ('epsilon', 'epsilons', 'accountants')
# How many of the files that are not checked a note names.
_MOST_NAMES = 5


@dataclasses.dataclass(frozen=True)
class Verification:
    """What `verify` found.

    Attributes:
      report: computed anew, or None where that is not possible.
      differences: one sentence each; empty if the directory is as it should be.
      notes: what could not be checked, one sentence each.
      has_old_ledger: whether the ledger has format 1, which ties the run to no plan.
    """

    report: PrivacyReport | None
    differences: tuple[str, ...]
    notes: tuple[str, ...] = ()
    has_old_ledger: bool = False


def verify(directory: str | os.PathLike[str]) -> Verification:
    """Checks the files of a run: their digests, and its plan, ledger, log and report together.

    Links are not followed. A ledger of format 1 comes from an older version: then neither the files
    in folders nor the plan against the ledger nor the words of the report are checked, and the
    notes say so. The words of a report with an older `text_version` are not checked either. An
    export (`dpfl export_run`) has neither log nor ledger: its report is
    computed from the plan alone.

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
        return Verification(None, tuple(differences))
    ledger, damage = (None, []) if is_export else _ledger(directory)
    is_old = ledger is not None and ledger.format == 1
    changed, unchecked = _changed_files(directory, found, needed, is_old)
    differences += changed + damage
    notes = _notes(unchecked) if is_old else ()
    try:
        record = archive.read_plan(directory)
        log = None if is_export else ParticipationLog.load(directory / LOG)
        course = archive.read_clip_course(directory, record.plan)
        if ledger is not None and not is_old:
            differences += _changed_key(ledger, record)
            record = dataclasses.replace(record, noise_key_digest=ledger.noise_key_digest)
        report = record.report(log, course, archive.read_measured(directory, record))
    except ValueError as error:
        return Verification(None, (*differences, errors.shown(error)), notes, is_old)
    if ledger is not None:
        differences += _changed_plan(ledger, record)
        differences += [] if log is None else _changed_log(ledger, log)
        stops_early = record.stop_at_accuracy is not None
        has_all = len(ledger.entries) == record.plan.participation.rounds
        if MODEL in found and not has_all and not stops_early:
            differences.append(
                f'{MODEL}: is there, though {LEDGER} has {len(ledger.entries)} of '
                f'{record.plan.participation.rounds} rounds'
            )
    changed, more_notes = _changed_report(directory, report, is_old)
    return Verification(report, (*differences, *changed), (*notes, *more_notes), is_old)


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
    directory: pathlib.Path, found: dict[str, pathlib.Path], needed: Sequence[str], is_old: bool
) -> tuple[list[str], list[str]]:
    """How the files differ from `SHA256SUMS`, a sentence each; and files that it need not list."""
    try:
        expected = sums.parse(_files.read_bytes(directory / SUMS).decode(errors='replace'))
    except (OSError, ValueError) as error:
        return [f'{SUMS}: {error}'], []
    differences = [f'{SUMS}: {name} is not listed' for name in needed[1:] if name not in expected]
    unchecked = []
    for name in found:
        if name in expected or name in needed:
            continue
        # Before format 2, folders were not listed, and a profile was written after the digests.
        if is_old and ('/' in name or name == 'profile.json'):
            unchecked.append(name)
        else:
            differences.append(f'{errors.shown(name)}: was added, {SUMS} does not list it')
    for name, digest in expected.items():
        if name not in found:
            differences.append(f'{errors.shown(name)}: is missing, {SUMS} lists it')
        elif sums.sha256(found[name]) != digest:
            differences.append(
                f'{errors.shown(name)}: its SHA-256 is not the one in {SUMS}: it was changed'
            )
    return differences, unchecked


def _notes(unchecked: Sequence[str]) -> tuple[str, ...]:
    """What was not checked in a run of an older version."""
    notes = [
        f'{LEDGER} has format 1, of an older version: not checked are the plan against the ledger, '
        'the data of the rounds, and the words of the report'
    ]
    if unchecked:
        left = len(unchecked) - _MOST_NAMES
        more = f' and {left} more' if left > 0 else ''
        names = ', '.join(unchecked[:_MOST_NAMES])
        notes.append(f'not listed in {SUMS} and not checked: {names}{more}')
    return tuple(notes)


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
    if ledger.format == 1:
        return []
    extensions = ledger.history
    if ledger.plan == record.digest() and extensions == record.extensions:
        return []
    if ledger.plan == record.digest():
        return [f'{PLAN}: has other extensions than {LEDGER}: it was changed']
    return [f'{PLAN}: is not the plan with which {LEDGER} begins: it was changed']


def _changed_key(ledger: ledger_lines.Ledger, record: archive.PlanRecord) -> list[str]:
    """How the digest of the noise keys differs from the ledger's; older versions wrote none."""
    if record.noise_key_digest in (None, ledger.noise_key_digest):
        return []
    return [f'{PLAN}: has another noise_key_digest than {LEDGER}: it was changed']


def _changed_log(ledger: ledger_lines.Ledger, log: ParticipationLog) -> list[str]:
    """How the log differs from the cohorts of the ledger."""
    rounds = len(ledger.entries)
    if log.rounds != rounds:
        return [f'{LOG}: has {log.rounds} rounds, {LEDGER} has {rounds}']
    for t, entry in enumerate(ledger.entries):
        if ledger_lines.cohort_digest(log.cohort(t).tolist()) != entry.cohort:
            return [f'{LOG}: has another cohort than {LEDGER} in round {t}']
    return []


def _changed_report(
    directory: pathlib.Path, report: PrivacyReport, is_old: bool
) -> tuple[list[str], list[str]]:
    """How the report in the directory differs from the one computed anew; and notes.

    Args:
      directory: of the run.
      report: computed anew.
      is_old: whether the ledger has format 1; of the report, only the numbers are compared then.
    """
    try:
        written = _json.loads(_files.read_bytes(directory / REPORT))
    except (OSError, ValueError) as error:
        return [f'{REPORT}: not a privacy report ({errors.shown(error)})'], []
    computed: dict = report.to_dict()
    version = written.get('text_version', 1) if isinstance(written, dict) else TEXT_VERSION
    has_older_text = is_old or (type(version) is int and version < TEXT_VERSION)
    if has_older_text and isinstance(written, dict):
        no_sentences = dict.fromkeys(_SENTENCES)
        added = {name: computed[name] for name in _ADDED if name not in written}
        written, computed = written | added | no_sentences, computed | no_sentences
        written = comparison.without_looser(written, computed, _LOOSER)
    if is_old and isinstance(written, dict):
        same_version = {'schema_version': None}
        written, computed = comparison.with_common_keys(
            written | same_version, computed | same_version
        )
    basis = 'the plan' if report.observed is None else 'plan and log'
    differences = [
        f'{REPORT}: {where} is {was}, computed from {basis} {now}'
        for where, was, now in comparison.differences(written, computed)
    ]
    if is_old:
        return differences, []
    if has_older_text:
        note = f'{REPORT} has text version {version}, of an older version: its words and {PAGE} are'
        return differences, [f'{note} not checked']
    page = _files.read_bytes(directory / PAGE).decode(errors='replace')
    if not differences and page != report.render():
        differences.append(f'{PAGE}: is not the page of {REPORT}')
    return differences, []
