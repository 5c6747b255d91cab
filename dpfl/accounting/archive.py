"""A run's plan, log and report as files that can be checked afterwards.

A run's directory holds

- `plan.json` and `strategy.npz`: the plan and the parameters of its mechanism, written before the
  first round;
- `participation.npz`: the log;
- `privacy_report.json`, `.md` and `.html`: the report;
- `SHA256SUMS`: digests of all of these and of what else the run left, written last, in the form
  that `sha256sum --check` reads.

`verify` compares the digests, computes the report anew from plan, strategy and log, and compares
it with the one that is there. Digests show accidents and careless changes; whoever may write the
directory can make new ones, and only the recomputation and copies kept elsewhere tell then.
"""

import dataclasses
import hashlib
import json
import math
import pathlib

from dpfl import mechanisms
from dpfl.accounting import plan_file
from dpfl.accounting.plan import PrivacyPlan
from dpfl.accounting.report import PrivacyReport
from dpfl.participation import ParticipationLog

PLAN, STRATEGY, LOG = 'plan.json', 'strategy.npz', 'participation.npz'
REPORT, PAGE, SUMS = 'privacy_report.json', 'privacy_report.md', 'SHA256SUMS'
_NEEDED = (SUMS, PLAN, STRATEGY, LOG, REPORT, PAGE)
_PLAN_VERSION = 1
# Other releases of the numerical libraries may differ in the last digits.
_TOLERANCE = 1e-9


@dataclasses.dataclass(frozen=True)
class PlanRecord:
    """What `plan.json` and `strategy.npz` say: all that a report needs but the log."""

    plan: PrivacyPlan
    deltas: tuple[float, ...]
    accountant: str
    noise_is_seeded: bool
    sampling_is_seeded: bool = False
    also_not_covered: tuple[str, ...] = ()
    train_metrics_released: bool = False

    def report(self, log: ParticipationLog | None) -> PrivacyReport:
        """The report of the plan and of a log."""
        return PrivacyReport.from_plan(
            self.plan, self.deltas, log, self.accountant, self.noise_is_seeded,
            self.sampling_is_seeded, self.also_not_covered, self.train_metrics_released,
        )

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
            'train_metrics_released': self.train_metrics_released,
        }
        return json.dumps(values, indent=2, allow_nan=False) + '\n'


def read_plan(directory) -> PlanRecord:
    """The record of `plan.json` and `strategy.npz`.

    Raises:
      ValueError: if a file cannot be read, is no such file, or the two do not belong together.
    """
    path = pathlib.Path(directory) / PLAN
    try:
        values = json.loads(path.read_text())
        if values['schema_version'] != _PLAN_VERSION:
            raise ValueError(f'schema version {values["schema_version"]}')
        strategy = mechanisms.load(path.with_name(STRATEGY))
        return PlanRecord(
            plan=plan_file.from_dict(values, strategy.to_dict()),
            deltas=tuple(values['deltas']),
            accountant=values['accountant'],
            noise_is_seeded=bool(values['noise_is_seeded']),
            sampling_is_seeded=bool(values['sampling_is_seeded']),
            also_not_covered=tuple(values.get('also_not_covered', ())),
            train_metrics_released=bool(values.get('train_metrics_released', False)),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f'{path}: not the plan of a run ({_one_line(error)})') from None


def digests(directory) -> str:
    """The text of `SHA256SUMS` for the files of a directory, not for those in folders."""
    files = sorted(
        path for path in pathlib.Path(directory).iterdir() if path.is_file() and path.name != SUMS
    )
    return ''.join(f'{_sha256(path)}  {path.name}\n' for path in files)


@dataclasses.dataclass(frozen=True)
class Verification:
    """What `verify` found.

    Attributes:
      report: computed anew, or None where that is not possible.
      differences: one sentence each; empty if the directory is as it should be.
    """

    report: PrivacyReport | None
    differences: tuple[str, ...]


def verify(directory) -> Verification:
    """Checks the files of a finished run against their digests and its report against its log.

    Raises:
      ValueError: if the directory does not hold a finished run.
    """
    directory = pathlib.Path(directory)
    missing = [name for name in _NEEDED if not (directory / name).is_file()]
    if missing:
        raise ValueError(f'run_dir={directory}: must hold a finished run ({missing[0]} is missing)')
    differences = _changed_files(directory)
    try:
        record = read_plan(directory)
        report = record.report(ParticipationLog.load(directory / LOG))
    except ValueError as error:
        return Verification(None, (*differences, _one_line(error)))
    differences += _changed_report(directory, report)
    return Verification(report, tuple(differences))


def _changed_files(directory: pathlib.Path) -> list[str]:
    """How the files differ from `SHA256SUMS`, a sentence each."""
    expected = {}
    for number, line in enumerate(
        (directory / SUMS).read_text(errors='replace').splitlines(), 1
    ):
        digest, separator, name = line.partition('  ')
        if not separator or len(digest) != 64 or pathlib.Path(name).name != name:
            return [f'{SUMS}: line {number} is not a digest and a file name']
        expected[name] = digest
    differences = [f'{SUMS}: {name} is not listed' for name in _NEEDED[1:] if name not in expected]
    for name, digest in expected.items():
        path = directory / name
        if not path.is_file():
            differences.append(f'{name}: is missing, {SUMS} lists it')
        elif _sha256(path) != digest:
            differences.append(f'{name}: its SHA-256 is not the one in {SUMS}: it was changed')
    return differences


def _changed_report(directory: pathlib.Path, report: PrivacyReport) -> list[str]:
    """How the report in the directory differs from the one computed anew."""
    try:
        stated_text = (directory / REPORT).read_text()
        stated = json.loads(stated_text)
    except ValueError as error:
        return [f'{REPORT}: not a privacy report ({_one_line(error)})']
    differences = [
        f'{REPORT}: {where} is {was}, computed from plan and log {now}'
        for where, was, now in _compare(stated, report.to_dict())
    ]
    if not differences and (directory / PAGE).read_text(errors='replace') != report.render():
        differences.append(f'{PAGE}: is not the page of {REPORT}')
    return differences


def _compare(stated, computed, where: str = '') -> list[tuple[str, str, str]]:
    """Where two JSON values differ by more than rounding: (path, stated, computed)."""
    if isinstance(stated, dict) and isinstance(computed, dict):
        names = [*computed, *(name for name in stated if name not in computed)]
        return [
            difference
            for name in names
            for difference in _compare(
                stated.get(name, 'missing'), computed.get(name, 'not a key'),
                f'{where}.{name}' if where else name,
            )
        ]
    if isinstance(computed, (list, tuple)) and isinstance(stated, list) \
            and len(stated) == len(computed):
        return [
            difference
            for i, (was, now) in enumerate(zip(stated, computed, strict=True))
            for difference in _compare(was, now, f'{where}[{i}]')
        ]
    if _is_number(stated) and _is_number(computed):
        same = math.isclose(stated, computed, rel_tol=_TOLERANCE)
    else:
        same = type(stated) is type(computed) and stated == computed
    return [] if same else [(where, _short(stated), _short(computed))]


def _is_number(value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _short(value) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + '...'


def _one_line(error: Exception) -> str:
    return ' '.join(str(error).split())


def _sha256(path: pathlib.Path) -> str:
    digest = hashlib.sha256()
    with open(path, 'rb') as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
