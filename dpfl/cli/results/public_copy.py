"""The public copy of a run: which runs may be copied, which files, and which metrics."""

import csv
import dataclasses
import io
import pathlib
import re
import shutil
from collections.abc import Mapping
from typing import Any

from dpfl import _storage, accounting
from dpfl.accounting.records import archive
from dpfl.cli.command import command_line
from dpfl.simulation import run_directory
from dpfl.simulation.training import recorded_settings
from dpfl.simulation.training.config import TrainConfig
from dpfl.tasks.config import has_words_of_clients

# Full names, as patterns. These files are computed from the releases of the run, so the guarantee
# covers them.
_COPIED = (
    r'model\.npz',
    r'audit\.(npz|html)',
    r'before_training\.json',
    r'plots/generated_\d+\.png',
    r'(saved_model|generator)/(saved_model\.pb|fingerprint\.pb|variables/variables\.'
    r'(index|data-\d+-of-\d+)|assets\.extra/model\.json)',
)
# Metrics that follow from the plan, and those that are private releases.
_COVERED = ('round', 'epsilon', 'clip_norm', 'clip_norm_estimate', 'clip_count', 'clip_restart')
# Metrics that are never copied: durations, and those of training clients.
_NEVER = ('seconds', 'train_')


def check(
    run: pathlib.Path,
    report: accounting.PrivacyReport,
    *,
    public_heldout: bool,
    simulation: bool,
) -> None:
    """Checks that the guarantee covers everything in a copy of a run.

    Args:
      run: Directory of the run.
      report: Its report.
      public_heldout: Whether metrics of held-out clients are copied.
      simulation: Whether a simulation may be copied.

    Raises:
      UsageError: If the run must not be copied.
    """
    config = recorded_settings.read(run)
    reason = None
    if report.observed is None:
        reason = 'is a copy already'
    elif not report.plan.noise_multiplier:
        reason = 'adds no noise: there is no guarantee'
    elif report.measured is not None and report.measured.refutations:
        reason = f'has a guarantee that its audit refutes ({report.measured.refutations[0]})'
    elif report.basis == 'log':
        reason = (
            'breaks its plan: its guarantee rests on the participation log, which is confidential'
        )
    elif not _is_whole(run, report.plan.participation.rounds):
        reason = 'must be finished'
    elif config is None:
        reason = 'must have settings in its journal, which say what the model was made from'
    elif isinstance(config, TrainConfig) and has_words_of_clients(config.task, _data(run)):
        reason = "has a vocabulary that was counted on the clients' text, without noise"
    elif _is_simulation(report) and not simulation:
        reason = 'is a simulation: its noise or cohorts came from a seed; --simulation exports it'
    if reason is not None:
        raise command_line.UsageError(f'--run_dir={run}: {reason}')


def write(
    run: pathlib.Path, output: pathlib.Path, record: archive.PlanRecord, *, public_heldout: bool
) -> list[str]:
    """Writes the whole copy, or nothing.

    Args:
      run: Directory of the run.
      output: Directory of the copy; it does not exist, or is empty.
      record: Plan of the run, from which the report of the copy is made.
      public_heldout: Whether to copy metrics of held-out clients.

    Returns:
      The names of the files of the copy.

    Raises:
      StorageError: If a file cannot be read or written.
    """
    record = dataclasses.replace(record, exported=True)
    output = output.resolve()
    partial = output.with_name(output.name + '.partial')
    with _storage.naming(output):
        partial.mkdir(parents=True)
        try:
            for name in archive.listed(run):
                is_covered = any(re.fullmatch(pattern, name) for pattern in _COPIED)
                if is_covered or public_heldout and name == archive.TEST:
                    (partial / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(run / name, partial / name)
            shutil.copyfile(run / archive.STRATEGY, partial / archive.STRATEGY)
            (partial / archive.METRICS).write_text(_metrics(run / archive.METRICS, public_heldout))
            (partial / archive.PLAN).write_text(record.to_json())
            report = archive.Records.read(partial).report()
            for name, text in run_directory.pages_of(partial, report).items():
                (partial / name).write_text(text)
            (partial / archive.SUMS).write_text(archive.digests(partial))
            if output.exists():
                output.rmdir()
            partial.rename(output)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return sorted([archive.SUMS, *archive.listed(output)])


def _data(run: pathlib.Path) -> Mapping[str, Any]:
    """What the journal of a run says about its data."""
    journal = archive.read_journal(run)
    return {} if journal is None or journal.state.built is None else journal.state.built.data


def _is_whole(run: pathlib.Path, rounds: int) -> bool:
    """Whether a run has ended with all of its rounds."""
    journal = archive.read_journal(run) if archive.has_ended(run) else None
    return journal is not None and journal.state.begun >= rounds


def _is_simulation(report: accounting.PrivacyReport) -> bool:
    seeded_cohorts = report.sampling_is_seeded and report.uses_sampling
    return report.noise_is_seeded or seeded_cohorts


def _metrics(path: pathlib.Path, public_heldout: bool) -> str:
    """The columns of metrics.csv that may be published."""
    with open(path, newline='') as file:
        reader = csv.DictReader(file)
        columns = [
            name
            for name in reader.fieldnames or ()
            if name in _COVERED or public_heldout and not name.startswith(_NEVER)
        ]
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, extrasaction='ignore', lineterminator='\n')
        writer.writeheader()
        writer.writerows(reader)
    return text.getvalue()
