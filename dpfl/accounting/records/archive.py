"""The files of a run's directory: their names, its plan, and the digests of all of them.

A run's directory holds

- `plan.json` and `strategy.npz`: the plan and the parameters of its mechanism, written before the
  first round;
- `participation.npz`: the participation log;
- `ledger.jsonl`: what each round released, as a chain of digests that starts from the plan's;
- `privacy_report.json`, `.md` and `.html`: the report;
- `before_training.json`, of a run that releases something before training: what it found;
- `audit.npz` and `audit.html`, of a run with an audit: what its canaries showed;
- `privacy_report.json.sig`: its signature, if somebody has signed it; see `signatures`;
- `SHA256SUMS`: digests of all other files of the directory and its folders. It is written last, in
  the form that `sha256sum --check` reads. It leaves out the signature, which comes later, and
  `checkpoints/`, which is secret and may be deleted. It is as confidential as the log: whoever
  guesses the log can check the guess against the log's digest.

`verification.verify` checks a directory.
"""

import csv
import dataclasses
import hashlib
import json
import os
import pathlib
from typing import Any

from dpfl import _files, _json, _validate, errors, mechanisms
from dpfl.accounting.gaussian import ACCOUNTANTS
from dpfl.accounting.measured import measured as measured_lib
from dpfl.accounting.plan import PrivacyPlan
from dpfl.accounting.records import stated, sums
from dpfl.accounting.reports import history, noise_keys
from dpfl.accounting.reports.about import About
from dpfl.accounting.reports.clip_course import ClipCourse
from dpfl.accounting.reports.report import PrivacyReport
from dpfl.participation import ParticipationLog

PLAN, STRATEGY, LOG = 'plan.json', 'strategy.npz', 'participation.npz'
REPORT, PAGE, SUMS = 'privacy_report.json', 'privacy_report.md', sums.NAME
SIGNATURE = sums.SIGNATURE
LEDGER, CHECKPOINTS = 'ledger.jsonl', 'checkpoints'
FLAGS, CONFIG, BEFORE = 'flags.txt', 'config.json', 'before_training.json'
CHOICE = 'mechanisms.html'
MODEL, METRICS, TEST = 'model.npz', 'metrics.csv', 'test_metrics.json'
_PLAN_VERSION = 1
_EXTENSION = ('released', 'planned', 'rounds')


@dataclasses.dataclass(frozen=True)
class PlanRecord:
    """The content of `plan.json` and `strategy.npz`: what a report needs besides the log.

    Attributes:
      plan: the privacy plan.
      deltas: at which epsilon is reported, at least one.
      accountant: by which the report computes epsilon.
      noise_is_seeded, sampling_is_seeded: as in `PrivacyReport`.
      also_not_covered: what else the guarantee does not cover, one sentence each.
      exported: whether the files are a public copy of a run, without its log and its ledger.
      train_metrics_released, remarks, about, noise_key_digest, earlier_noise_key_digests,
        warm_start_is_public: as in `PrivacyReport`.
      extensions: how the run went on with more rounds, in order.
      stop_at_accuracy: accuracy at which the run stops before its last round; None without such a
        rule.
    """

    plan: PrivacyPlan
    deltas: tuple[float, ...]
    accountant: str
    noise_is_seeded: bool
    sampling_is_seeded: bool = False
    also_not_covered: tuple[str, ...] = ()
    exported: bool = False
    train_metrics_released: bool = False
    extensions: tuple[history.Extension, ...] = ()
    stop_at_accuracy: float | None = None
    remarks: tuple[str, ...] = ()
    about: About | None = None
    noise_key_digest: str | None = None
    earlier_noise_key_digests: tuple[str, ...] = ()
    warm_start_is_public: bool = False

    def report(
        self,
        log: ParticipationLog | None,
        clip_course: ClipCourse | None = None,
        measured: measured_lib.Measured | None = None,
    ) -> PrivacyReport:
        """The report of the plan and of a log.

        Args:
          log: of the run; None without one.
          clip_course: that of an adaptive clip norm.
          measured: what an audit measured.
        """
        return PrivacyReport.from_plan(
            self.plan,
            self.deltas,
            log,
            self.accountant,
            self.noise_is_seeded,
            self.sampling_is_seeded,
            self.also_not_covered,
            self.train_metrics_released,
            clip_course,
            history.sentences(
                self.plan,
                self.extensions,
                self.stop_at_accuracy,
                None if log is None else log.rounds,
            ),
            self.remarks,
            with_tradeoff=True,
            measured=measured,
            about=self.about,
            stops_by_rule=self.stop_at_accuracy is not None,
            noise_key_digest=self.noise_key_digest,
            earlier_noise_key_digests=self.earlier_noise_key_digests,
            warm_start_is_public=self.warm_start_is_public,
        )

    def digest(self) -> str:
        """SHA-256 of what the guarantee depends on: the plan, and which secrets were seeded."""
        values = [self.plan.digest(), self.noise_is_seeded, self.sampling_is_seeded]
        return hashlib.sha256(json.dumps(values).encode()).hexdigest()

    def to_json(self) -> str:
        """The text of `plan.json`."""
        values = {
            'schema_version': _PLAN_VERSION,
            'mechanism': self.plan.mechanism.name,
            **self.plan.to_dict(),
            'deltas': list(self.deltas),
            'accountant': self.accountant,
            'noise_is_seeded': self.noise_is_seeded,
            'sampling_is_seeded': self.sampling_is_seeded,
            'also_not_covered': list(self.also_not_covered),
            **({'exported': True} if self.exported else {}),
            'train_metrics_released': self.train_metrics_released,
            **({'remarks': list(self.remarks)} if self.remarks else {}),
        }
        if self.noise_key_digest is not None:
            values['noise_key_digest'] = self.noise_key_digest
        if self.earlier_noise_key_digests:
            values['earlier_noise_key_digests'] = list(self.earlier_noise_key_digests)
        if self.warm_start_is_public:
            values['warm_start_is_public'] = True
        if self.about is not None:
            values['about'] = self.about.to_dict()
        if self.extensions:
            values['extensions'] = [each._asdict() for each in self.extensions]
        if self.stop_at_accuracy is not None:
            values['stop_at_accuracy'] = self.stop_at_accuracy
        return json.dumps(values, indent=2, allow_nan=False) + '\n'

    @classmethod
    def from_dict(cls, values: dict[str, Any], mechanism: mechanisms.Mechanism) -> 'PlanRecord':
        """The record that `to_json` wrote as `values`.

        Args:
          values: the object of `plan.json`.
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
            deltas=stated.deltas(of_plan.pop('deltas')),
            accountant=_validate.choice('accountant', of_plan.pop('accountant'), ACCOUNTANTS),
            noise_is_seeded=_validate.truth('noise_is_seeded', of_plan.pop('noise_is_seeded')),
            sampling_is_seeded=_validate.truth(
                'sampling_is_seeded', of_plan.pop('sampling_is_seeded')
            ),
            also_not_covered=stated.texts('also_not_covered', of_plan.pop('also_not_covered')),
            exported=_validate.truth('exported', of_plan.pop('exported', False)),
            train_metrics_released=_validate.truth(
                'train_metrics_released', of_plan.pop('train_metrics_released')
            ),
            extensions=_extensions(of_plan.pop('extensions', [])),
            stop_at_accuracy=_accuracy(of_plan.pop('stop_at_accuracy', None)),
            remarks=stated.texts('remarks', of_plan.pop('remarks', ())),
            about=About.from_dict(of_plan.pop('about')) if 'about' in of_plan else None,
            noise_key_digest=noise_keys.checked(
                'noise_key_digest', of_plan.pop('noise_key_digest', None)
            ),
            earlier_noise_key_digests=noise_keys.checked_list(
                'earlier_noise_key_digests', of_plan.pop('earlier_noise_key_digests', ())
            ),
            warm_start_is_public=_validate.truth(
                'warm_start_is_public', of_plan.pop('warm_start_is_public', False)
            ),
        )
        return cls(plan=PrivacyPlan.from_dict(of_plan, mechanism), **fields)


def _extensions(values: Any) -> tuple[history.Extension, ...]:
    """`extensions` from its JSON form, a list of objects."""
    if not isinstance(values, list):
        raise errors.ArgumentError('extensions', values, 'must be a list')
    found = []
    for value in values:
        if 'switched' in _json.checked_object('extensions', value):
            raise errors.ArgumentError(
                'extensions', errors.NOT_SHOWN, errors.removed('has another matrix')
            )
        _json.refuse_unknown(value, [*_EXTENSION], 'it')
        released, planned, rounds = (
            _validate.integer(name, value.get(name), minimum=0) for name in _EXTENSION
        )
        if not released <= planned < rounds:
            raise errors.ArgumentError('rounds', rounds, f'must be above {planned}')
        found.append(history.Extension(released, planned, rounds))
    return tuple(found)


def _accuracy(value: Any) -> float | None:
    return None if value is None else _validate.number('stop_at_accuracy', value, minimum=0)


def read_plan(directory: str | os.PathLike[str]) -> PlanRecord:
    """The record in a directory's `plan.json` and `strategy.npz`.

    Raises:
      ValueError: if a file cannot be read or is not valid, or the two do not belong together.
    """
    path = pathlib.Path(directory) / PLAN
    try:
        values = _json.loads(_files.read_bytes(path))
        return PlanRecord.from_dict(values, mechanisms.load(path.with_name(STRATEGY)))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f'{path}: not the plan of a run ({errors.shown(error)})') from None


@dataclasses.dataclass(frozen=True)
class Records:
    """What the pages of a run are computed from, as its directory holds it.

    Attributes:
      record: the plan, and what the report states besides.
      log: the participation log; None in an export.
      clip_course: of an adaptive clip norm, from `metrics.csv`; None for a fixed one, and without
        such a file.
      measured: what an audit measured, from `audit.npz`; None without one.
    """

    record: PlanRecord
    log: ParticipationLog | None
    clip_course: ClipCourse | None
    measured: measured_lib.Measured | None

    @classmethod
    def read(cls, directory: str | os.PathLike[str], record: PlanRecord | None = None) -> 'Records':
        """The records in the directory of a finished run or an export.

        Args:
          directory: of the run.
          record: its plan, if that is known already.

        Raises:
          ValueError: if a file is damaged, or is not that of a run with this plan.
        """
        path, record = pathlib.Path(directory), record or read_plan(directory)
        return cls(
            record,
            None if record.exported else ParticipationLog.load(path / LOG),
            _clip_course(path / METRICS, record.plan),
            read_measured(path, record),
        )

    def report(self, group_size: int | None = None) -> PrivacyReport:
        """The report of the run, or for groups of clients, for which no audit measures anything."""
        if group_size is None:
            return self.record.report(self.log, self.clip_course, self.measured)
        plan = dataclasses.replace(self.record.plan, group_size=group_size)
        return dataclasses.replace(self.record, plan=plan).report(self.log, self.clip_course)


def pages(directory: pathlib.Path, report: PrivacyReport) -> dict[str, str]:
    """The texts of the report for programs and for people, by the names of their files."""
    return {REPORT: report.to_json() + '\n', PAGE: report.render()}


def read_measured(
    directory: str | os.PathLike[str], record: PlanRecord
) -> measured_lib.Measured | None:
    """What the audit of a run measured, from its `audit.npz`; None for a run without an audit.

    Raises:
      ValueError: if the file is damaged, or is not that of a run with this plan.
    """
    return measured_lib.read(directory, record.plan, record.deltas[0], record.accountant)


def _clip_course(path: pathlib.Path, plan: PrivacyPlan) -> ClipCourse | None:
    if plan.adaptive_clip is None or not path.exists():
        return None
    try:
        return ClipCourse.from_csv(_files.read_bytes(path).decode())
    except (OSError, ValueError, TypeError, csv.Error) as error:
        raise ValueError(f'{path}: not the metrics of a run ({errors.shown(error)})') from None


def digests(directory: str | os.PathLike[str]) -> str:
    """The text of `SHA256SUMS` for a directory and its folders, without the checkpoints."""
    return sums.render(sums.walk(pathlib.Path(directory), CHECKPOINTS)[0])


def listed(directory: str | os.PathLike[str]) -> list[str]:
    """Names of the files that `SHA256SUMS` lists; none if it is missing or damaged."""
    try:
        return list(sums.parse((pathlib.Path(directory) / SUMS).read_text(errors='replace')))
    except (OSError, ValueError):
        return []


def has_ended(directory: str | os.PathLike[str]) -> bool:
    """Whether a run whose last round is done has also written all its other files.

    The digests are the last of them. A run that fails writes them too, but it writes no model.
    """
    return MODEL in listed(directory)
