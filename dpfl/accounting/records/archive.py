"""What a run's directory has recorded, and the tables that are computed from it.

The records of a run are `ledger.jsonl` (its journal), `cohorts.bin`, `strategy.npz` and, for what
only the run itself needs, `checkpoints/`. `plan.json`, `metrics.csv`, `participation.npz` and the
other tables are functions of these, and so is the report. `SHA256SUMS` has digests of all other
files of the directory and its folders, in the form that `sha256sum --check` reads; it leaves out
`checkpoints/`, which is secret and may be deleted, and `privacy_report.json.sig`, which comes
later. It is as confidential as the log: whoever guesses the log can check the guess against the
log's digest. A public copy of a run (`dpfl export_run`) has no journal: its `plan.json` is what its
report is computed from.

`verification.verify` checks a directory. Links are never followed: `SHA256SUMS` lists only
files that are in the directory itself.
"""

import csv
import dataclasses
import hashlib
import io
import json
import os
import pathlib
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dpfl import _files, _json, _validate, errors, mechanisms
from dpfl.accounting.clipping import ClipCourse
from dpfl.accounting.gaussian import ACCOUNTANTS
from dpfl.accounting.measured import measured as measured_lib
from dpfl.accounting.plan import PrivacyPlan
from dpfl.accounting.records import cohorts, signatures
from dpfl.accounting.records import journal as journal_lib
from dpfl.accounting.reports import inputs
from dpfl.accounting.reports.inputs import About, Inputs
from dpfl.accounting.reports.report import PrivacyReport
from dpfl.participation import ParticipationLog

PLAN, STRATEGY, LOG = 'plan.json', 'strategy.npz', 'participation.npz'
REPORT, PAGE, SUMS = 'privacy_report.json', 'privacy_report.md', 'SHA256SUMS'
LEDGER, CHECKPOINTS = 'ledger.jsonl', 'checkpoints'
FLAGS, CONFIG, BEFORE = 'flags.txt', 'config.json', 'before_training.json'
CHOICE = 'mechanisms.html'
MODEL, METRICS, TEST = 'model.npz', 'metrics.csv', 'test_metrics.json'
DATA = 'data.json'
_PLAN_VERSION = 1
# What the guarantee of a training loop of one's own rests on besides: nobody has its settings.
OWN_LOOP = (
    'Whether the training loop did what its plan says, and whether its noise keys were secret: it '
    "is not dpfl's own, and the journal of the run does not have its settings."
)
# Version of a package without its local part, which may be any word.
RELEASE = r'\d{1,9}(?:\.\d{1,9})*(?:(?:a|b|-?rc|\.post|[.-]dev)\d{1,9})*'
_STACK = re.compile(rf'(?:TensorFlow {RELEASE}, )?NumPy {RELEASE}', re.ASCII)
# A journal of a million rounds.
_MOST_JOURNAL_BYTES = 1 << 30
_REQUIRED = (
    'noise_is_seeded',
    'sampling_is_seeded',
    'also_not_covered',
    'train_metrics_released',
)
SIGNATURE = f'privacy_report.json{signatures.SUFFIX}'
_ESCAPES = {'\\': '\\\\', '\n': '\\n', '\r': '\\r'}
_UNESCAPED = {'\\\\': '\\', '\\n': '\n', '\\r': '\r'}


@dataclasses.dataclass(frozen=True)
class PlanRecord(Inputs):
    """The content of `plan.json` and `strategy.npz`: what a report needs besides the log.

    Attributes:
      exported: whether the files are a public copy of a run, without its log and its ledger.
    """

    exported: bool = False

    def report(self, log: ParticipationLog | None, **of_run: Any) -> PrivacyReport:
        """The report of the plan and of a log.

        Args:
          log: of the run; None without one.
          **of_run: further inputs from the run, as in `PrivacyReport`.
        """
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(Inputs)}
        return PrivacyReport.from_plan(log=log, with_tradeoff=True, **values, **of_run)

    def to_json(self) -> str:
        """The text of `plan.json`."""
        return _pretty(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """The content of `plan.json`, without the parameters of the mechanism."""
        return {
            'schema_version': _PLAN_VERSION,
            'mechanism': self.plan.mechanism.name,
            **self.plan.to_dict(),
            'deltas': list(self.deltas),
            'accountant': self.accountant,
            **self.of_run(_REQUIRED),
            **({'exported': True} if self.exported else {}),
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any], mechanism: mechanisms.Mechanism) -> 'PlanRecord':
        """The record of `values`.

        Args:
          values: what `to_dict` gave.
          mechanism: of `strategy.npz`.

        Raises:
          ValueError: if a value is not allowed, a key is unknown (ArgumentError names it), or the
            mechanism is not the one that the plan was written with.
          KeyError: if a key is missing.
        """
        of_plan = dict(values)
        version = of_plan.pop('schema_version')
        if version != _PLAN_VERSION:
            raise errors.ArgumentError('schema_version', version, f'must be {_PLAN_VERSION}')
        of_plan.pop('mechanism', None)  # The name, for people; `strategy.npz` has it too.
        fields: dict[str, Any] = dict(
            deltas=inputs.deltas(of_plan.pop('deltas')),
            accountant=_validate.choice('accountant', of_plan.pop('accountant'), ACCOUNTANTS),
            exported=_validate.truth('exported', of_plan.pop('exported', False)),
            **inputs.read(of_plan, _REQUIRED),
        )
        of_plan = {name: value for name, value in of_plan.items() if name not in inputs.OF_RUN}
        return cls(plan=PrivacyPlan.from_dict(of_plan, mechanism), **fields)


def read_journal(directory: str | os.PathLike[str]) -> journal_lib.Journal | None:
    """The journal of a run; None if the directory has none.

    Raises:
      ValueError: if it cannot be read or is damaged.
    """
    path = pathlib.Path(directory) / LEDGER
    try:
        data = _files.read_bytes_or_none(path, _MOST_JOURNAL_BYTES)
        return None if data is None else journal_lib.parse(data)
    except (OSError, ValueError) as error:
        raise ValueError(f'{path}: {errors.shown(error)}') from None


def read_plan(directory: str | os.PathLike[str]) -> PlanRecord:
    """The record in a directory's journal, or in the `plan.json` of an export.

    Raises:
      ValueError: if a file cannot be read or is not valid, or does not belong to `strategy.npz`.
    """
    return _plan(pathlib.Path(directory), read_journal(directory))


def _plan(path: pathlib.Path, journal: journal_lib.Journal | None) -> PlanRecord:
    where = path / (PLAN if journal is None else LEDGER)
    try:
        if journal is None:
            values = _json.loads(_files.read_bytes(path / PLAN))
        elif journal.state.record is None:
            raise ValueError('the run has no plan yet')
        else:
            values = dict(journal.state.record)
        return PlanRecord.from_dict(values, mechanisms.load(path / STRATEGY))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f'{where}: not the plan of a run ({errors.shown(error)})') from None


def _cohorts(
    path: pathlib.Path, journal: journal_lib.Journal, is_running: bool
) -> ParticipationLog | None:
    """The log of a run, whose cohorts must be those of its journal; None if they are not known."""
    where = path / cohorts.NAME
    state = journal.state
    if state.built is not None and not state.built.shows_clients:
        return None
    begun = state.begun
    try:
        drawn, _, is_whole = cohorts.load(where)
        if is_running:
            # The journal was read before, and its last round has a cohort before it is computed.
            is_whole, drawn = True, drawn[:begun]
            if not state.is_released and len(drawn) == begun - 1:
                begun -= 1
        log = ParticipationLog(drawn)
    except (OSError, ValueError) as error:
        raise ValueError(f'{where}: {errors.shown(error)}') from None
    if log.rounds != begun:
        raise ValueError(f'{where}: has {log.rounds} rounds, {LEDGER} has {begun}')
    if not is_whole:
        raise ValueError(f'{where}: has more than the records of its rounds')
    for event in journal.of_kind(journal_lib.Began)[:begun]:
        if journal_lib.cohort_digest(log.cohort(event.round)) != event.cohort:
            number = event.round + 1
            raise ValueError(f'{where}: has another cohort than {LEDGER} in round {number}')
    return log


@dataclasses.dataclass(frozen=True)
class Records:
    """The inputs of the tables and pages of a run.

    Attributes:
      record: the plan, and what the report states besides.
      journal: of the run; None for an export.
      log: the participation log; None for an export, and for a run whose clients are not known.
      clip_course: of an adaptive clip norm; None for a fixed one.
      measured: what an audit measured, from `audit.npz`; None without one.
    """

    record: PlanRecord
    journal: journal_lib.Journal | None
    log: ParticipationLog | None
    clip_course: ClipCourse | None
    measured: measured_lib.Measured | None

    @classmethod
    def read(cls, directory: str | os.PathLike[str], *, is_running: bool = False) -> 'Records':
        """The records in the directory of a run or an export.

        Args:
          directory: of the run. Nobody may write to it meanwhile.
          is_running: the run itself may write. The log then has the rounds that had begun when the
            journal was read, but for a last one that has no cohort yet: nothing of it is released.

        Raises:
          ValueError: if a file is damaged, or is not that of a run with this plan.
        """
        path, journal = pathlib.Path(directory), read_journal(directory)
        record, log = _plan(path, journal), None
        if journal is None:
            course = _clip_course(path / METRICS, record.plan)
        else:
            losses = [  # No check depends on these lines.
                _validate.integer('ray_losses', values['ray_losses'], minimum=0)
                for values in journal.notes
                if 'ray_losses' in values
            ]
            if losses:
                about = dataclasses.replace(record.about or About(), ray_losses=sum(losses))
                record = dataclasses.replace(record, about=about)
            log = _cohorts(path, journal, is_running)
            course = ClipCourse.from_rows(journal.rows()) if record.plan.adaptive_clip else None
        measured = None
        if journal is None or journal.state.audited:
            measured = measured_lib.read(path, record.plan, record.deltas[0], record.accountant)
        return cls(record, journal, log, course, measured)

    def stages(self) -> list[PlanRecord]:
        """The record of the plan with which the run began, and that of each extension.

        Raises:
          ValueError: if one before an extension is damaged.
        """
        assert self.journal is not None and self.journal.state.built is not None
        extended = self.journal.state.extended
        events: Sequence[Any] = (self.journal.state.built, *extended)
        stages = []
        try:
            for event, following in zip(events, extended, strict=False):
                # The plan that follows has the same matrix in these rounds (`extension.check`).
                mechanism = self.record.plan.mechanism.with_rounds(following.planned)
                values = {**event.record, 'mechanism_digest': mechanism.digest()}
                stages.append(PlanRecord.from_dict(values, mechanism))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f'{LEDGER}: an earlier plan: {errors.shown(error)}') from None
        return [*stages, self.record]

    def plans(self) -> Iterator[PrivacyPlan]:
        """The plan in force when each round was computed: the run may have been extended since.

        Raises:
          ValueError: if a plan before an extension is damaged.
        """
        assert self.journal is not None
        stages, number = self.stages(), 0
        for event in self.journal.events:
            number += event in self.journal.state.extended
            if isinstance(event, journal_lib.Released):
                yield stages[number].plan

    def report(self, group_size: int | None = None) -> PrivacyReport:
        """The report of the run, or for groups of clients, for which no audit measures anything."""
        record, measured = self.record, self.measured
        if group_size is not None:
            earlier = tuple(
                dataclasses.replace(plan, group_size=group_size) for plan in record.plan.earlier
            )
            plan = dataclasses.replace(record.plan, group_size=group_size, earlier=earlier)
            record, measured = dataclasses.replace(record, plan=plan), None
        head = None
        if self.journal is not None:
            head = self.journal.released_head()
            # Not in the record, which follows from the settings.
            remarks = (*record.remarks, *_stack_changes(self.journal))
            record = dataclasses.replace(record, remarks=remarks)
        return record.report(
            self.log, clip_course=self.clip_course, measured=measured, journal_head=head
        )


def stacks(journal: journal_lib.Journal) -> dict[int, str]:
    """The packages that computed rounds, by the first of these rounds.

    Runs of before this was noted have computed with `an earlier TensorFlow`.

    Raises:
      ValueError: if a note is not of this form: it is outside of the chain, and could have any
        words for the report.
    """
    noted: dict[int, str] = {}
    for values in journal.notes:
        if 'stack' in values:
            first, stack = values.get('first'), str(values['stack'])
            is_round = isinstance(first, int) and 0 <= first <= journal.state.begun
            if first is None or not is_round or not _STACK.fullmatch(stack):
                raise ValueError(f'{LEDGER}: has a note that does not say what computed a round')
            noted[first] = stack
    is_known = not journal.state.begun or 0 in noted
    return noted if is_known else {0: 'an earlier TensorFlow', **noted}


def _stack_changes(journal: journal_lib.Journal) -> Sequence[str]:
    """What a report says of a run that went on with other versions of TensorFlow or NumPy."""
    packages = stacks(journal)
    return [
        f'From round {t + 1} on the run was computed with {packages[t]}, before with '
        f'{before}. Another version sums with other last digits, on which the draw '
        'of the noise depends: the run cannot be repeated bit by bit. Its guarantee is the same.'
        for before, t in zip(list(packages.values()), list(packages)[1:], strict=False)
        if t < journal.state.begun
    ]


def pages(directory: pathlib.Path, report: PrivacyReport) -> dict[str, str]:
    """The texts of the report for programs and for people, by the names of their files."""
    return {REPORT: report.to_json() + '\n', PAGE: report.render()}


def _clip_course(path: pathlib.Path, plan: PrivacyPlan) -> ClipCourse | None:
    if plan.adaptive_clip is None or not path.exists():
        return None
    try:
        text = _files.read_bytes(path).decode()
        return ClipCourse.from_rows(csv.DictReader(io.StringIO(text, newline='')))
    except (OSError, ValueError, TypeError, KeyError, csv.Error) as error:
        raise ValueError(f'{path}: not the metrics of a run ({errors.shown(error)})') from None


def first_tables(state: journal_lib.State) -> dict[str, bytes]:
    """The tables that describe a run before its first round, by the names of their files."""
    by_file = {name: text.encode() for name, text in state.files.items()}
    if state.settings is not None:
        by_file[CONFIG] = _pretty(state.settings).encode()
    if state.record is not None:
        by_file[PLAN] = _pretty(state.record).encode()
    if state.built is not None and state.built.data:
        by_file[DATA] = _pretty(state.built.data).encode()
    drawn = {name: draw.result for name, draw in state.drawn.items() if draw.result is not None}
    if drawn:
        releases = [draw.intent['release'] for draw in state.drawn.values()]
        by_file[BEFORE] = _pretty({'releases': releases, **drawn}).encode()
    return by_file


def tables(records: Records) -> dict[str, bytes]:
    """The tables of a run, by the names of their files."""
    if records.journal is None:
        return {}
    state = records.journal.state
    by_file = first_tables(state)
    if rows := records.journal.rows():
        by_file[METRICS] = metrics_table(rows).encode()
    if records.log is not None:
        file = io.BytesIO()
        records.log.save(file)
        by_file[LOG] = file.getvalue()
    if state.ended is not None and state.ended.test is not None:
        test = {name: _json.finite(value) for name, value in state.ended.test.items()}
        by_file[TEST] = _pretty({'rounds': state.begun, 'metrics': test}).encode()
    return by_file


def read_rows(directory: str | os.PathLike[str]) -> list[dict[str, float]]:
    """The metrics of the rounds of a run or of an export, `round` first, counted from 1.

    Raises:
      ValueError: if they cannot be read.
    """
    journal = read_journal(directory)
    if journal is not None:
        return journal.rows()
    path = pathlib.Path(directory) / METRICS
    if not path.exists():
        return []
    try:
        rows = csv.DictReader(io.StringIO(_files.read_bytes(path).decode(), newline=''))
        return [{name: float(value) for name, value in row.items() if value} for row in rows]
    except (OSError, ValueError, TypeError, csv.Error) as error:
        raise ValueError(f'{path}: not the metrics of a run ({errors.shown(error)})') from None


def metrics_table(rows: Sequence[Mapping[str, float]]) -> str:
    """The text of `metrics.csv`, as the release manager writes the rows one after the other."""
    names = dict.fromkeys(['round', *(name for row in rows for name in row)])
    file = io.StringIO()
    writer = csv.DictWriter(file, list(names))
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def _pretty(values: Mapping[str, Any]) -> str:
    return json.dumps(values, indent=2, allow_nan=False) + '\n'


def digests(directory: str | os.PathLike[str]) -> str:
    """The text of `SHA256SUMS` for a directory and its folders, without the checkpoints."""
    lines = []
    for name, path in walk(pathlib.Path(directory), CHECKPOINTS)[0].items():
        escaped = ''.join(_ESCAPES.get(letter, letter) for letter in name)
        mark = '' if escaped == name else '\\'
        lines.append(f'{mark}{sha256(path)}  {escaped}\n')
    return ''.join(lines)


def listed(directory: str | os.PathLike[str]) -> list[str]:
    """Names of the files that `SHA256SUMS` lists; none if it is missing or damaged."""
    try:
        return list(parse((pathlib.Path(directory) / SUMS).read_text(errors='replace')))
    except (OSError, ValueError):
        return []


def has_ended(directory: str | os.PathLike[str]) -> bool:
    """Whether a run has ended, and has written all its files: `SHA256SUMS` is the last of them.

    So has a public copy of a run, which has no journal, if it has a model.
    """
    try:
        journal = read_journal(directory)
    except ValueError:
        return False
    if journal is None:
        return MODEL in listed(directory)
    is_over = journal.state.ended is not None
    return is_over and (pathlib.Path(directory) / SUMS).exists()


def walk(directory: pathlib.Path, without: str) -> tuple[dict[str, pathlib.Path], dict[str, str]]:
    """The files of a directory and of its folders, and everything else in them.

    Args:
      directory: the directory.
      without: name of a folder in it that is left out.

    Returns:
      The files by their names in the list, sorted, without the list itself and the signature of the
      report, which comes later; and by name, what is wrong with links, sockets and the like.
    """
    files: dict[str, pathlib.Path] = {}
    others: dict[str, str] = {}

    def listed_as(path: pathlib.Path) -> str:
        # In names that are not UTF-8, the other bytes are listed as escapes.
        name = os.fsencode(path.relative_to(directory).as_posix())
        return name.decode('utf-8', 'backslashreplace')

    def cannot_be_read(error: OSError) -> None:
        others[listed_as(pathlib.Path(error.filename))] = f'cannot be read ({error.strerror})'

    for folder, folders, names in os.walk(directory, onerror=cannot_be_read):
        here = pathlib.Path(folder)
        if here == directory:
            folders[:] = [name for name in folders if name != without or (here / name).is_symlink()]
        for name in (*folders, *names):
            path = here / name
            listed, mode = listed_as(path), os.lstat(path).st_mode
            if listed in files:
                others[listed] = 'is the name of two files in the list'
            elif stat.S_ISLNK(mode):
                others[listed] = 'is a link; links are not followed, and no file of a run is one'
            elif stat.S_ISREG(mode):
                files[listed] = path
            elif not stat.S_ISDIR(mode):
                others[listed] = 'is neither a file nor a folder'
    files.pop(SUMS, None)
    if SIGNATURE in files and os.lstat(files[SIGNATURE]).st_size == signatures.BYTES:
        del files[SIGNATURE]
    return dict(sorted(files.items())), others


def parse(text: str) -> dict[str, str]:
    """The digests by name that the text of a list holds.

    Raises:
      ValueError: if a line is not a digest and the name of a file, or a name occurs twice.
    """
    digests: dict[str, str] = {}
    lines = text.split('\n')  # Not `splitlines`: it also cuts at characters that a name may have.
    for number, line in enumerate(lines[:-1] if lines[-1] == '' else lines, 1):
        digest, separator, name = line.removeprefix('\\').partition('  ')
        if line.startswith('\\'):
            name = re.sub(r'\\[nr\\]', lambda match: _UNESCAPED[match[0]], name)
        is_digest = len(digest) == 64 and not set(digest) - set('0123456789abcdef')
        parts = pathlib.PurePosixPath(name).parts
        is_inside = bool(parts) and not name.startswith('/') and '..' not in parts
        if not (separator and is_digest and is_inside) or name in digests:
            raise ValueError(f'line {number} is not a digest and the name of another file')
        digests[name] = digest
    return digests


def sha256(path: pathlib.Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with _files.open_regular(path) as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
