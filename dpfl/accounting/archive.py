"""A run's plan, log and report as files that can be checked afterwards.

A run's directory holds

- `plan.json` and `strategy.npz`: the plan and the parameters of its mechanism, written before the
  first round;
- `participation.npz`: the log;
- `ledger.jsonl`: what each round released, chained, from the digest of the plan on;
- `privacy_report.json`, `.md` and `.html`: the report;
- `SHA256SUMS`: digests of all of these and of what else the run left, its folders included, but for
  `checkpoints/`, which is secret and may be deleted. It is written last, in the form that
  `sha256sum --check` reads, and is as confidential as the log: a digest of the log tests guesses.

`verify` compares the digests, names what was added or is missing, compares log and plan with the
ledger, computes the report anew from plan, strategy and log, and compares it with the one that is
there. Digests show accidents and careless changes; whoever may write the directory can make new
ones, and the ledger too, and only the recomputation and copies kept elsewhere tell then.
"""

import dataclasses
import hashlib
import json
import math
import os
import pathlib
from collections.abc import Sequence

from dpfl import _files, _json, _validate, errors, mechanisms
from dpfl.accounting import ledger_lines, plan_file, stated, sums
from dpfl.accounting.gaussian import ACCOUNTANTS
from dpfl.accounting.plan import PrivacyPlan
from dpfl.accounting.report import PrivacyReport
from dpfl.participation import ParticipationLog

PLAN, STRATEGY, LOG = 'plan.json', 'strategy.npz', 'participation.npz'
REPORT, PAGE, SUMS = 'privacy_report.json', 'privacy_report.md', sums.NAME
LEDGER, CHECKPOINTS = 'ledger.jsonl', 'checkpoints'
FLAGS, CONFIG = 'flags.txt', 'config.json'
MODEL = 'model.npz'
_NEEDED = (SUMS, PLAN, STRATEGY, LOG, LEDGER, REPORT, PAGE)
# Keys of a report that say something in words, which other versions may say in others.
_WORDS = ('schema_version', 'statement', 'assumptions', 'not_covered', 'also_not_covered')
_PLAN_VERSION = 1
# Other releases of the numerical libraries may differ in the last digits.
_TOLERANCE = 1e-9


@dataclasses.dataclass(frozen=True)
class PlanRecord:
    """What `plan.json` and `strategy.npz` say: all that a report needs but the log.

    Attributes:
      plan: the privacy plan.
      deltas: at which epsilon is reported, at least one.
      accountant: by which the report computes epsilon.
      noise_is_seeded, sampling_is_seeded: as in `PrivacyReport`.
      also_not_covered: what else the guarantee says nothing about, a sentence each.
      exported: the files are a public copy of a run, without its log and its ledger.
    """

    plan: PrivacyPlan
    deltas: tuple[float, ...]
    accountant: str
    noise_is_seeded: bool
    sampling_is_seeded: bool = False
    also_not_covered: tuple[str, ...] = ()
    exported: bool = False
    train_metrics_released: bool = False

    def report(self, log: ParticipationLog | None) -> PrivacyReport:
        """The report of the plan and of a log."""
        return PrivacyReport.from_plan(
            self.plan,
            self.deltas,
            log,
            self.accountant,
            self.noise_is_seeded,
            self.sampling_is_seeded,
            self.also_not_covered,
            self.train_metrics_released,
        )

    def digest(self) -> str:
        """SHA-256 of what the guarantee follows from: the plan, and whether secrets were seeded."""
        values = [plan_digest(self.plan), self.noise_is_seeded, self.sampling_is_seeded]
        return hashlib.sha256(json.dumps(values).encode()).hexdigest()

    def to_json(self) -> str:
        """The text of `plan.json`."""
        values = {
            'schema_version': _PLAN_VERSION,
            'mechanism': self.plan.mechanism.name,
            **plan_file.to_dict(self.plan),
            'deltas': list(self.deltas),
            'accountant': self.accountant,
            'noise_is_seeded': self.noise_is_seeded,
            'sampling_is_seeded': self.sampling_is_seeded,
            'also_not_covered': list(self.also_not_covered),
            **({'exported': True} if self.exported else {}),
            'train_metrics_released': self.train_metrics_released,
        }
        return json.dumps(values, indent=2, allow_nan=False) + '\n'


def plan_digest(plan: PrivacyPlan) -> str:
    """SHA-256 of a plan, the numbers of its mechanism included, in hexadecimal."""
    values = {field.name: getattr(plan, field.name) for field in dataclasses.fields(plan)}
    values['mechanism'] = plan.mechanism.digest()
    text = json.dumps(values, sort_keys=True, default=dataclasses.asdict)
    return hashlib.sha256(text.encode()).hexdigest()


def read_plan(directory) -> PlanRecord:
    """The record of `plan.json` and `strategy.npz`.

    Raises:
      ValueError: if a file cannot be read, is no such file, or the two do not belong together.
    """
    path = pathlib.Path(directory) / PLAN
    try:
        values = _json.loads(_files.read_bytes(path))
        if values['schema_version'] != _PLAN_VERSION:
            raise ValueError(f'schema version {values["schema_version"]}')
        strategy = mechanisms.load(path.with_name(STRATEGY))
        return PlanRecord(
            plan=plan_file.from_dict(values, strategy.to_dict()),
            deltas=stated.deltas(values['deltas']),
            accountant=_validate.choice('accountant', values['accountant'], ACCOUNTANTS),
            noise_is_seeded=_validate.truth('noise_is_seeded', values['noise_is_seeded']),
            sampling_is_seeded=_validate.truth('sampling_is_seeded', values['sampling_is_seeded']),
            also_not_covered=stated.texts('also_not_covered', values.get('also_not_covered', ())),
            exported=_validate.truth('exported', values.get('exported', False)),
            train_metrics_released=_validate.truth(
                'train_metrics_released', values.get('train_metrics_released', False)
            ),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f'{path}: not the plan of a run ({_one_line(error)})') from None


def digests(directory) -> str:
    """The text of `SHA256SUMS` for a directory and its folders, but for the checkpoints."""
    return sums.render(sums.walk(pathlib.Path(directory), CHECKPOINTS)[0])


def listed(directory) -> list[str]:
    """Names of the files that `SHA256SUMS` lists; none if it is not there or damaged."""
    try:
        return list(sums.parse((pathlib.Path(directory) / SUMS).read_text(errors='replace')))
    except (OSError, ValueError):
        return []


def has_ended(directory) -> bool:
    """Whether a run whose last round is done has also written all else, of which digests are last.

    They are written for a run that fails, too, but without a model.
    """
    return MODEL in listed(directory)


@dataclasses.dataclass(frozen=True)
class Verification:
    """What `verify` found.

    Attributes:
      report: computed anew, or None where that is not possible.
      differences: one sentence each; empty if the directory is as it should be.
      notes: what could not be checked, one sentence each.
    """

    report: PrivacyReport | None
    differences: tuple[str, ...]
    notes: tuple[str, ...] = ()


def verify(directory) -> Verification:
    """Checks the files of a run: their digests, and its plan, ledger, log and report together.

    Nothing that a link points to is read. A run of which the ledger has format 1 was made by an
    older version: the files in its folders are not checked, nor is its plan against the ledger, nor
    are the words of its report; the notes say so. An export (`experiments.export_run`) has neither
    log nor ledger: its report is computed from the plan alone.

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
    found, others = sums.walk(directory, CHECKPOINTS)
    differences = [f'{errors.shown(name)}: {what}' for name, what in others.items()]
    differences += [f'{name}: is not a file' for name in needed if (directory / name).is_dir()]
    if any(difference.partition(': ')[0] in needed for difference in differences):
        return Verification(None, tuple(differences))
    ledger, damage = (None, []) if is_export else _ledger(directory)
    is_old = ledger is not None and ledger.format == 1
    changed, unchecked = _changed_files(directory, found, needed, is_old)
    differences += changed + damage
    notes = _notes(unchecked, is_old)
    try:
        record = read_plan(directory)
        log = None if is_export else ParticipationLog.load(directory / LOG)
        report = record.report(log)
    except ValueError as error:
        return Verification(None, (*differences, _one_line(error)), notes)
    if ledger is not None:
        differences += _changed_plan(ledger, record) + _changed_log(ledger, log)
        if MODEL in found and len(ledger.entries) != record.plan.participation.rounds:
            differences.append(
                f'{MODEL}: is there, though {LEDGER} has {len(ledger.entries)} of '
                f'{record.plan.participation.rounds} rounds'
            )
    differences += _changed_report(directory, report, is_old)
    return Verification(report, tuple(differences), notes)


def _is_export(directory: pathlib.Path) -> bool:
    """Whether a directory says that it is an export, and has nothing that an export leaves out."""
    if any(os.path.lexists(directory / name) for name in (LOG, LEDGER)):
        return False
    if any((directory / name).is_symlink() for name in (PLAN, STRATEGY)):
        return False
    try:
        return read_plan(directory).exported
    except ValueError:
        return False


def _changed_files(
    directory: pathlib.Path, found: dict[str, pathlib.Path], needed: Sequence[str], is_old: bool
) -> tuple[list[str], list[str]]:
    """How the files differ from `SHA256SUMS`, a sentence each; and those that it need not list."""
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


def _notes(unchecked: Sequence[str], is_old: bool) -> tuple[str, ...]:
    """What was not checked."""
    if not is_old:
        return ()
    more = f' and {len(unchecked) - 5} more' if len(unchecked) > 5 else ''
    return (
        f'{LEDGER} has format 1, of an older version: not checked are the plan against the ledger, '
        'the data of the rounds, and the words of the report',
        *(
            [f'not listed in {SUMS} and not checked: {", ".join(unchecked[:5])}{more}']
            if unchecked
            else []
        ),
    )


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


def _changed_plan(ledger: ledger_lines.Ledger, record: PlanRecord) -> list[str]:
    """How the plan differs from the one that the ledger began with."""
    if ledger.format == 1 or ledger.plan == record.digest():
        return []
    return [f'{PLAN}: is not the plan with which {LEDGER} begins: it was changed']


def _changed_log(ledger: ledger_lines.Ledger, log: ParticipationLog) -> list[str]:
    """How the log differs from the cohorts of the ledger."""
    rounds = len(ledger.entries)
    if log.rounds != rounds:
        return [f'{LOG}: has {log.rounds} rounds, {LEDGER} has {rounds}']
    for t, entry in enumerate(ledger.entries):
        if ledger_lines.cohort_digest(log.cohort(t)) != entry.cohort:
            return [f'{LOG}: has another cohort than {LEDGER} in round {t}']
    return []


def _changed_report(directory: pathlib.Path, report: PrivacyReport, is_old: bool) -> list[str]:
    """How the report in the directory differs from the one computed anew.

    Of an older version, only its numbers are compared.
    """
    basis = 'the plan' if report.observed is None else 'plan and log'
    try:
        written = _json.loads(_files.read_bytes(directory / REPORT))
    except (OSError, ValueError) as error:
        return [f'{REPORT}: not a privacy report ({_one_line(error)})']
    computed = report.to_dict()
    if is_old and isinstance(written, dict):
        words = {name: None for name in _WORDS}
        written, computed = _in_both(written | words, computed | words)
    differences = [
        f'{REPORT}: {where} is {was}, computed from {basis} {now}'
        for where, was, now in _compare(written, computed)
    ]
    if is_old:
        return differences
    page = _files.read_bytes(directory / PAGE).decode(errors='replace')
    if not differences and page != report.render():
        differences.append(f'{PAGE}: is not the page of {REPORT}')
    return differences


def _in_both(one: dict, other: dict) -> tuple[dict, dict]:
    """Two dictionaries without the keys, at any depth, that only one of them has."""
    pairs = {
        name: _in_both(one[name], other[name])
        if isinstance(one[name], dict) and isinstance(other[name], dict)
        else (one[name], other[name])
        for name in one
        if name in other
    }
    return tuple({name: pair[i] for name, pair in pairs.items()} for i in (0, 1))


def _compare(stated, computed, where: str = '') -> list[tuple[str, str, str]]:
    """Where two JSON values differ by more than rounding: (path, stated, computed)."""
    if isinstance(stated, dict) and isinstance(computed, dict):
        names = [*computed, *(name for name in stated if name not in computed)]
        return [
            difference
            for name in names
            for difference in _compare(
                stated.get(name, 'missing'),
                computed.get(name, 'not a key'),
                f'{where}.{name}' if where else name,
            )
        ]
    if (
        isinstance(computed, (list, tuple))
        and isinstance(stated, list)
        and len(stated) == len(computed)
    ):
        return [
            difference
            for i, (was, now) in enumerate(zip(stated, computed, strict=True))
            for difference in _compare(was, now, f'{where}[{i}]')
        ]
    if _is_number(stated) and _is_number(computed):
        same = math.isclose(stated, computed, rel_tol=_TOLERANCE)
    else:
        same = type(stated) is type(computed) and stated == computed
    return [] if same else [(errors.shown(where), _short(stated), _short(computed))]


def _is_number(value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _short(value) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + '...'


def _one_line(error: Exception) -> str:
    return errors.shown(error)
