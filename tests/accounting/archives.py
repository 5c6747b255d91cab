"""Directories of runs as files, for tests of what verifies them."""

import pathlib

from dpfl import ParticipationLog, mechanisms
from dpfl.accounting.records import archive, ledger_lines, verification
from dpfl.accounting.reports import noise_keys
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
