"""Directories of runs as files, for tests of what verifies them."""

import dataclasses
import json
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from dpfl import ParticipationLog, _npz, _setting_texts, accounting, mechanisms
from dpfl.accounting import running
from dpfl.accounting.records import archive, cohorts, journal, verification
from dpfl.accounting.reports import inputs
from dpfl.simulation import run_directory
from dpfl.simulation.training import PrivacyConfig, SamplingConfig, TrainConfig, plan
from tests.accounting import plans


def make_record(**changes):
    plan = plans.plan(**changes)
    accountant = 'analytic_gaussian' if plan.sampling is None else 'rdp'
    return archive.PlanRecord(
        plan, (1e-6, 1e-10), accountant, noise_is_seeded=False, noise_key_digest=NOISE_KEY
    )


# As of the first round of `rounds`.
NOISE_KEY = inputs.noise_key_digest('0' * 64)
LOG = plans.LOG
_WEIGHTS = {'0': np.array([0.5, 2.0], np.float32)}
_MODEL = _npz.to_bytes(_WEIGHTS)
_OF_MODEL = journal.digest(_WEIGHTS.values())
DATA = {'clients': {'training': 7, 'heldout': 0}}


def encoded(events: Iterable[journal.Event], head: str = '') -> bytes:
    """The lines of events, with a chain of their own, after a line that ends with `head`."""
    text = b''
    for event in events:
        line, head = journal.line(head, event)
        text += line
    return text


def began(t: int, cohort: Iterable[int] = (0, 1), **changes: Any) -> journal.Began:
    """A round as it begins, whose noise is another one than that of all other rounds."""
    fields = dict(
        cohort=journal.cohort_digest([*cohort]), model=_OF_MODEL, noise=f'{t:064x}', data='d' * 64
    )
    return journal.Began(round=t, **fields | changes)


def released(t: int, metrics: Mapping[str, float] | None = None) -> journal.Released:
    return journal.Released(
        round=t, model=_OF_MODEL, state='b' * 64, metrics=metrics or {'loss': 2.0}
    )


def rounds(
    log: ParticipationLog, metrics: Mapping[int, Mapping[str, float]] | None = None
) -> list[journal.Event]:
    """What a journal has of the rounds of a log, with the metrics of some."""
    of_rounds = metrics or {}
    return [
        event
        for t in range(log.rounds)
        for event in (began(t, log.cohort(t).tolist()), released(t, of_rounds.get(t)))
    ]


PLANNED = journal.Planned(
    settings=None, files={}, date='2026-11-23', version='0.1.0', keys='c' * 64
)


def ended(results: Mapping[str, str] | None = None) -> journal.Ended:
    return journal.Ended(why='all rounds are done', results=results or {})


def built(record: Mapping[str, Any], **changes: Any) -> journal.Built:
    return journal.Built(**dict(record=record, configuration={}, data={}) | changes)


def make_journal(
    record: archive.PlanRecord,
    log: ParticipationLog = LOG,
    metrics: Mapping[int, Mapping[str, float]] | None = None,
) -> bytes:
    """The journal of a loop of one's own; it has ended if the log has all rounds of the plan."""
    over = [ended()] if log.rounds == record.plan.participation.rounds else []
    return encoded([PLANNED, built(record.to_dict()), *rounds(log, metrics), *over])


def make_cohorts(log: ParticipationLog = LOG) -> bytes:
    return b''.join(cohorts.record(t, log.cohort(t)) for t in range(log.rounds))


def write(directory: pathlib.Path, record=None, log=LOG, metrics=None) -> pathlib.Path:
    """A run of a loop of one's own, with a folder of another program."""
    record = record or make_record()
    _write_records(directory, record, log, make_journal(record, log, metrics))
    (directory / 'saved_model').mkdir()
    (directory / 'saved_model' / 'data').write_text('weights')
    with_everything_computed_anew(directory)
    return directory


def _write_records(directory: pathlib.Path, record, log, text: bytes) -> None:
    directory.mkdir(exist_ok=True)
    mechanisms.save(record.plan.mechanism, directory / archive.STRATEGY)
    (directory / cohorts.NAME).write_bytes(make_cohorts(log))
    (directory / archive.LEDGER).write_bytes(text)
    (directory / archive.CHECKPOINTS).mkdir(exist_ok=True)
    (directory / archive.CHECKPOINTS / 'keys').write_text('secret')


def with_new_digests(directory):
    (directory / archive.SUMS).write_text(archive.digests(directory))
    return verification.verify(directory).differences


def with_everything_computed_anew(directory, record=None, log=None, make_pages=archive.pages):
    """As whoever forges tables and pages would, from another plan or log: records are as they are.

    Args:
      directory: of a run.
      record: what tables and pages are made from; None for that of the journal.
      log: the same.
      make_pages: the texts of all pages, as `verification.verify` takes them.
    """
    found = archive.Records.read(directory)
    changed = dataclasses.replace(found, record=record or found.record, log=log or found.log)
    for name, data in archive.tables(found).items():
        (directory / name).write_bytes(data)
    (directory / archive.PLAN).write_text(changed.record.to_json())
    changed.log.save(directory / archive.LOG)
    for name, text in make_pages(directory, changed.report()).items():
        (directory / name).write_text(text)
    return with_new_digests(directory)


CONFIG = TrainConfig(
    privacy=PrivacyConfig(
        mechanism='blt',
        blt_decay=(0.9, 0.4),
        blt_scale=(0.2, 0.3),
        clip_norm=0.5,
        noise_multiplier=4.0,
        delta=1e-6,
        accountant='analytic_gaussian',
    ),
    sampling=SamplingConfig(
        rounds=6, min_separation=2, max_participations=3, clients_per_round=2, population=7
    ),
)


def record_of(config: TrainConfig = CONFIG, **changes) -> archive.PlanRecord:
    """What a run of a configuration of synthetic text would have recorded."""
    made = plan.build_plan(
        config.privacy, config.sampling, population=lambda: 7, dimension=lambda: 9
    )
    fields = dict(
        plan=made,
        deltas=(config.privacy.delta,),
        accountant=config.privacy.accountant_of(made),
        noise_is_seeded=config.noise_seed is not None,
        sampling_is_seeded=made.sampling is not None,
        also_not_covered=config.not_covered,
        train_metrics_released=config.evaluation.release_train_metrics,
        stop_at_accuracy=config.course.stop_at_accuracy,
        remarks=config.remarks(made.participation.rounds),
        about=accounting.About('2026-11-23', '0.1.0', config.task.task, 'small', 5),
        noise_key_digest=NOISE_KEY,
    )
    return archive.PlanRecord(**fields | changes)


def write_run(
    directory: pathlib.Path,
    config: TrainConfig = CONFIG,
    record: archive.PlanRecord | None = None,
    log: ParticipationLog = LOG,
) -> pathlib.Path:
    """A finished run with its settings, metrics and pages; the record may contradict them."""
    record = record or record_of(config)
    lines = _setting_texts.flags(config.flat())
    flags = ''.join(f'{line}\n' for line in lines)
    settings = json.loads(json.dumps(config.to_dict()))
    planned = dataclasses.replace(PLANNED, settings=settings, files={archive.FLAGS: flags})
    made: list[journal.Event] = [
        planned,
        built(record.to_dict(), data=DATA, configuration={'seed': 0}),
    ]
    epsilon = running.RunningEpsilon(record.plan, record.deltas[0], record.accountant)
    training = {'train_loss': 2.5} if config.evaluation.release_train_metrics else {}
    metrics = {t: {'epsilon': epsilon.after(t + 1), **training} for t in range(log.rounds)}
    made += rounds(log, metrics)
    directory.mkdir(exist_ok=True)
    (directory / archive.MODEL).write_bytes(_MODEL)
    made.append(ended({archive.MODEL: archive.sha256(directory / archive.MODEL)}))
    _write_records(directory, record, log, encoded(made))
    with_everything_computed_anew(directory, make_pages=run_directory.pages_of)
    return directory
