"""Checks the files of a finished run, and computes its tables and its report anew.

`verify` reads the journal, compares digests, strategy, cohorts and results with it, names what was
added or is missing, computes every table and every page from them, and compares each with the one
that is there. Whoever may write the directory can also write a new journal with new digests; then
only copies kept elsewhere tell, such as an earlier report or `SHA256SUMS`.
"""

import dataclasses
import hashlib
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dpfl import _files, _json, _npz, errors
from dpfl.accounting.measured.measured import AUDIT
from dpfl.accounting.records import archive, cohorts, comparison
from dpfl.accounting.records import journal as journal_lib
from dpfl.accounting.records.archive import LEDGER, PAGE, PLAN, REPORT, STRATEGY, SUMS
from dpfl.accounting.records.journal import Audited, Began, State
from dpfl.accounting.reports import inputs
from dpfl.accounting.reports.report import TEXT_VERSION, PrivacyReport
from dpfl.participation import ParticipationLog

# What may change in the record of a plan when its run goes on with more rounds: the guarantee of
# all rounds does not depend on it, or it is compared by itself.
_OF_MORE_ROUNDS = frozenset(
    ('mechanism', 'mechanism_digest', 'participation', 'extensions', 'about')
    + ('stop_at_accuracy', 'remarks', 'also_not_covered')
)
_NEEDED = (SUMS, PLAN, STRATEGY, LEDGER, REPORT, PAGE)
Pages = Callable[[pathlib.Path, PrivacyReport], Mapping[str, str]]


@dataclasses.dataclass(frozen=True)
class Verification:
    """The result of `verify`.

    Attributes:
      records: inputs of the report; None where they cannot be read.
      report: computed anew, or None where that is not possible.
      differences: one sentence each; empty if the directory is as it should be.
      content: bytes of the report's file, which were compared.
    """

    records: archive.Records | None
    report: PrivacyReport | None
    differences: tuple[str, ...]
    content: bytes = b''

    @property
    def is_verified(self) -> bool:
        """Whether the report could be computed, and nothing differs."""
        return self.report is not None and not self.differences


def verify(directory: str | os.PathLike[str], pages: Pages = archive.pages) -> Verification:
    """Checks the files of a run: their digests, and its journal, tables and report together.

    Links are not followed. The words of an older version cannot be computed here, so they are
    differences. An export (`dpfl export_run`) has no journal: its report is computed from the plan
    alone.

    Args:
      directory: of the run.
      pages: the pages of a run by the names of their files, from its directory and its report.
        Those that are there are compared.

    Raises:
      ValueError: if the directory does not hold a finished run or an export.
    """
    directory = pathlib.Path(directory)
    is_export = _is_export(directory)
    needed = tuple(name for name in _NEEDED if not (is_export and name == LEDGER))
    missing = [name for name in needed if not os.path.lexists(directory / name)]
    if missing:
        raise errors.ArgumentError(
            'run_dir', directory, f'must hold a finished run ({missing[0]} is missing)'
        )
    files, others = archive.walk(directory, archive.CHECKPOINTS)
    differences = [f'{errors.shown(name)}: {what}' for name, what in others.items()]
    folders = [name for name in needed if (directory / name).is_dir()]
    differences += [f'{name}: is not a file' for name in folders]
    if any(name in others or name in folders for name in needed):
        return Verification(None, None, tuple(differences))
    try:
        content = _files.read_bytes(directory / REPORT)
        differences += _changed_files(directory, files, needed, content)
        try:
            records = archive.Records.read(directory)
            if records.record.exported != is_export:
                differences.append(f'{PLAN}: says that this is an export, and it is not')
            report = records.report()
            if records.journal is not None:
                differences += _changed_plans(records)
        except ValueError as error:
            return Verification(None, None, (*differences, errors.shown(error)))
        if records.journal is not None:
            differences += _changed_results(directory, files, records)
            differences += _changed_tables(files, records)
        differences += _changed_pages(directory, files, content, report, pages)
        return Verification(records, report, tuple(differences), content=content)
    except OSError as error:
        name = errors.shown(pathlib.Path(error.filename or directory).name)
        differences.append(f'{name}: cannot be read ({error.strerror or errors.shown(error)})')
        return Verification(None, None, tuple(differences))


def _is_export(directory: pathlib.Path) -> bool:
    """Whether a directory says that it is an export, and has nothing that an export leaves out."""
    if any(os.path.lexists(directory / name) for name in (cohorts.NAME, LEDGER)):
        return False
    if any((directory / name).is_symlink() for name in (PLAN, STRATEGY)):
        return False
    try:
        return archive.read_plan(directory).exported
    except ValueError:
        return False


def _changed_files(
    directory: pathlib.Path,
    files: Mapping[str, pathlib.Path],
    needed: Sequence[str],
    report: bytes,
) -> list[str]:
    """How the files differ from `SHA256SUMS`, a sentence each; `report` was read already."""
    try:
        expected = archive.parse(_files.read_bytes(directory / SUMS).decode(errors='replace'))
    except (OSError, ValueError) as error:
        return [f'{SUMS}: {error}']
    differences = [f'{SUMS}: {name} is not listed' for name in needed[1:] if name not in expected]
    differences += [
        f'{errors.shown(name)}: was added, {SUMS} does not list it'
        for name in files
        if name not in expected and name not in needed
    ]
    for name, digest in expected.items():
        if name not in files:
            differences.append(f'{errors.shown(name)}: is missing, {SUMS} lists it')
            continue
        is_report = name == REPORT
        now = hashlib.sha256(report).hexdigest() if is_report else archive.sha256(files[name])
        if now != digest:
            differences.append(
                f'{errors.shown(name)}: its SHA-256 is not the one in {SUMS}: it was changed'
            )
    return differences


def _changed_results(
    directory: pathlib.Path, files: Mapping[str, pathlib.Path], records: archive.Records
) -> list[str]:
    """How the results differ from the journal, and what is wrong with its end, a sentence each."""
    journal = records.journal
    assert journal is not None
    state, record, differences = journal.state, records.record, []
    if (directory / LEDGER).stat().st_size != journal.complete:
        differences.append(f'{LEDGER}: ends with a line that was cut off')
    if record.extensions != tuple(extended.step for extended in state.extended):
        differences.append(f'{LEDGER}: its plan has other extensions than its events')
    noises = [event.noise for event in journal.of_kind(Began)]
    if noises and record.noise_key_digest != inputs.noise_key_digest(noises[0]):
        differences.append(f'{LEDGER}: its plan has another noise_key_digest than its first round')
    if len({*noises}) < len(noises):
        differences.append(f'{LEDGER}: has two rounds with the same noise')
    if state.built is not None and not state.built.shows_clients:
        if state.settings is not None:
            differences.append(f'{LEDGER}: has settings, and says that its clients are not known')
        if cohorts.NAME in files:
            differences.append(
                f'{cohorts.NAME}: is there, and {LEDGER} says that its clients are not known'
            )
    planned = record.plan.participation.rounds
    ended, begun = state.ended, state.begun
    if begun > planned:
        differences.append(f'{LEDGER}: has {begun} rounds, and its plan {planned}')
    elif ended is not None and begun != planned and record.stop_at_accuracy is None:
        differences.append(
            f'{LEDGER}: has {begun} of {planned} rounds, and says that the run ended'
        )
    results = {} if ended is None else dict(ended.results)
    if state.audited is not None:
        results[AUDIT] = state.audited.scores
    for name, digest in results.items():
        if name not in files:
            differences.append(f'{errors.shown(name)}: is missing, {LEDGER} has its digest')
        elif archive.sha256(files[name]) != digest:
            differences.append(
                f'{errors.shown(name)}: its SHA-256 is not the one in {LEDGER}: it was changed'
            )
    if ended is not None and archive.MODEL in files and not _is_of_rounds(files, state):
        differences.append(f'{archive.MODEL}: is not the model after the last round of {LEDGER}')
    if ended is None and archive.MODEL in files:
        differences.append(
            f'{archive.MODEL}: is there, and {LEDGER} does not say that the run ended'
        )
    return differences


def _changed_plans(records: archive.Records) -> list[str]:
    """How a run that went on with more rounds went on with another plan, a sentence each.

    The report counts all of its rounds by the last plan.
    """
    assert records.journal is not None
    events, stages, differences = records.journal.events, records.stages(), []
    for at, step in enumerate(records.journal.state.extended):
        before, now = stages[at], stages[at + 1]
        was, is_now = before.plan.participation, now.plan.participation
        fits = (was.rounds, was.min_separation) == (step.planned, is_now.min_separation)
        if not fits or is_now.rounds != step.rounds or is_now.count < was.count:
            differences.append(
                f'{LEDGER}: participation with {step.rounds} rounds does not continue that with '
                f'{step.planned}'
            )
        kept, again = _same_in_more_rounds(before), _same_in_more_rounds(now)
        for where, *values in comparison.differences(kept, again):
            stated, changed = comparison.short_pair(*values)
            differences.append(
                f'{LEDGER}: {where} is {changed} with {step.rounds} rounds, and was {stated}'
            )
        if any(isinstance(event, Audited) for event in events[: events.index(step)]):
            differences.append(f'{LEDGER}: goes on to {step.rounds} rounds after its audit')
    return differences


def _same_in_more_rounds(record: archive.PlanRecord) -> dict[str, Any]:
    """What a run keeps of the record of its plan when it goes on with more rounds."""
    return {name: value for name, value in record.to_dict().items() if name not in _OF_MORE_ROUNDS}


def _is_of_rounds(files: Mapping[str, pathlib.Path], state: State) -> bool:
    """Whether `model.npz` has the weights that the last round released, as far as it has all."""
    if state.model is None or (state.built is not None and state.built.has_fixed_weights):
        return True
    try:
        weights = _npz.load(files[archive.MODEL])
        return journal_lib.digest(weights[str(i)] for i in range(len(weights))) == state.model
    except (OSError, ValueError, KeyError):
        return False


def _changed_tables(files: Mapping[str, pathlib.Path], records: archive.Records) -> list[str]:
    """How the tables in the directory differ from those computed anew, a sentence each."""
    differences = []
    for name, computed in archive.tables(records).items():
        if name not in files:
            differences.append(f'{errors.shown(name)}: is missing')
            continue
        if name == archive.LOG:  # Of any size.
            try:
                is_same = ParticipationLog.load(files[name]) == records.log
            except (OSError, ValueError):
                is_same = False
            if not is_same:
                differences.append(f'{name}: is not the one of the journal and the cohorts')
            continue
        stated = _files.read_bytes(files[name])
        if stated != computed:
            texts = _table_differences(name, stated, computed)
            differences += [f'{name}: {text}' for text in texts]
    return differences


def _table_differences(name: str, stated: bytes, computed: bytes) -> list[str]:
    if name.endswith('.json'):
        try:
            was = _json.loads(stated)
        except ValueError as error:
            return [f'not a JSON document ({errors.shown(error)})']
        return [
            '{} is {}, computed from the journal {}'.format(where, *comparison.short_pair(*values))
            for where, *values in comparison.differences(was, _json.loads(computed))
        ]
    texts = [table.decode(errors='replace') for table in (stated, computed)]
    difference = comparison.page_difference(*texts)
    return [] if difference is None else [difference]


def _changed_pages(
    directory: pathlib.Path,
    files: Mapping[str, pathlib.Path],
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
        begun_with = '' if report.about is None else report.about.version
        return [
            f'{REPORT}: has the words of text version {version}, and this version of dpfl computes '
            f'those of {TEXT_VERSION}; verify the run with dpfl {begun_with or "of its day"}'
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
        if name != REPORT and name in files:
            stated = _files.read_bytes(files[name]).decode(errors='replace')
            difference = comparison.page_difference(stated, page)
            differences += [] if difference is None else [f'{name}: {difference}']
    return differences
