"""Directories of runs as files, for tests of what verifies them."""

import json
import pathlib

from dpfl import ParticipationLog, _setting_texts, accounting, mechanisms
from dpfl.accounting import running
from dpfl.accounting.records import archive, ledger_lines, verification
from dpfl.accounting.reports import noise_keys
from dpfl.simulation import pages
from dpfl.simulation.training import PrivacyConfig, SamplingConfig, TrainConfig, plan
from tests.accounting import plans


def make_record(**changes):
    plan = plans.plan(**changes)
    accountant = 'rdp' if plan.sampling == 'poisson' else 'analytic_gaussian'
    return archive.PlanRecord(
        plan, (1e-6, 1e-10), accountant, noise_is_seeded=False, noise_key_digest=NOISE_KEY
    )


# As of the first round of `make_ledger`.
NOISE_KEY = noise_keys.digest('0' * 64)
LOG = ParticipationLog([[0, 1], [2, 3], [4, 5], [0, 2], [1, 3], [4, 6]])


def make_ledger(record, log) -> bytes:
    text, chain = ledger_lines.first_line(record.digest())
    for t in range(log.rounds):
        entry = ledger_lines.Entry(
            ledger_lines.cohort_digest(log.cohort(t)), 'm' * 64, f'{t:064}', 'd' * 64
        )
        line, chain = ledger_lines.line(chain, t, entry)
        text += line
    return text


def write(directory: pathlib.Path, record=None, log=LOG) -> pathlib.Path:
    record = record or make_record()
    (directory / archive.PLAN).write_text(record.to_json())
    mechanisms.save(record.plan.mechanism, directory / archive.STRATEGY)
    log.save(directory / archive.LOG)
    (directory / archive.LEDGER).write_bytes(make_ledger(record, log))
    report = record.report(log)
    (directory / archive.REPORT).write_text(report.to_json() + '\n')
    (directory / archive.PAGE).write_text(report.render())
    (directory / 'metrics.csv').write_text('round,loss\n1,2.0\n')
    (directory / 'saved_model' / 'variables').mkdir(parents=True)
    (directory / 'saved_model' / 'variables' / 'data').write_text('weights')
    (directory / archive.CHECKPOINTS).mkdir()
    (directory / archive.CHECKPOINTS / 'data.key').write_text('secret')
    (directory / archive.SUMS).write_text(archive.digests(directory))
    return directory


def with_new_digests(directory):
    (directory / archive.SUMS).write_text(archive.digests(directory))
    return verification.verify(directory).differences


def with_everything_computed_anew(directory, record, log=LOG):
    """As whoever forges a run would: the ledger alone is as it was."""
    (directory / archive.PLAN).write_text(record.to_json())
    log.save(directory / archive.LOG)
    report = record.report(log)
    (directory / archive.REPORT).write_text(report.to_json() + '\n')
    (directory / archive.PAGE).write_text(report.render())
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
        accountant=plan.accountant(config.privacy, made),
        noise_is_seeded=config.noise_seed is not None,
        sampling_is_seeded=made.sampling != 'none',
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
    directory.mkdir(exist_ok=True)
    flags = _setting_texts.flags(config.flat())
    files = {
        archive.CONFIG: json.dumps(config.to_dict()),
        archive.FLAGS: ''.join(f'{line}\n' for line in flags),
        archive.PLAN: record.to_json(),
        archive.LEDGER: make_ledger(record, log).decode(),
        archive.METRICS: _metrics(record, log.rounds, config.evaluation.release_train_metrics),
        archive.MODEL: 'weights',
        'data.json': '{}',
    }
    for name, text in files.items():
        (directory / name).write_text(text)
    mechanisms.save(record.plan.mechanism, directory / archive.STRATEGY)
    log.save(directory / archive.LOG)
    for name, text in pages.of_run(directory, record.report(log)).items():
        (directory / name).write_text(text)
    (directory / archive.CHECKPOINTS).mkdir(exist_ok=True)
    (directory / archive.CHECKPOINTS / 'data.key').write_text('secret')
    (directory / archive.SUMS).write_text(archive.digests(directory))
    return directory


def _metrics(record, rounds: int, has_training: bool) -> str:
    epsilon = running.RunningEpsilon(record.plan, record.deltas[0], record.accountant)
    names = 'round,epsilon,train_loss' if has_training else 'round,epsilon'
    more = ',2.5' if has_training else ''
    rows = (f'{t},{epsilon.after(t)}{more}' for t in range(1, rounds + 1))
    return '\n'.join([names, *rows]) + '\n'
