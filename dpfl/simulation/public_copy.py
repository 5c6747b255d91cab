"""A public copy of a finished run: what its guarantee covers, and nothing else."""

import csv
import dataclasses
import io
import pathlib
import re
import shutil

from dpfl import _storage, accounting
from dpfl.accounting.records import archive
from dpfl.simulation import run_directory
from dpfl.simulation.training import recorded_settings
from dpfl.simulation.training.config import TrainConfig
from dpfl.tasks.config import COUNTED_WORDS, has_words_of_clients

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


def obstacle(run: pathlib.Path, report: accounting.PrivacyReport) -> str | None:
    """Why a run must not be copied; None if the guarantee covers everything in a copy of it.

    Args:
      run: Directory of the run.
      report: Its report.
    """
    config, journal = recorded_settings.read(run), archive.read_journal(run)
    begun = 0 if journal is None else journal.state.begun
    built = None if journal is None else journal.state.built
    if report.observed is None:
        return 'is a copy already'
    if not report.plan.noise_multiplier:
        return 'adds no noise: there is no guarantee'
    if report.measured is not None and report.measured.refutations:
        return f'has a guarantee that its audit refutes ({report.measured.refutations[0]})'
    if report.basis == 'log':
        return (
            'breaks its plan: its guarantee rests on the participation log, which is confidential'
        )
    if not archive.has_ended(run) or begun < report.plan.participation.rounds:
        return 'must be finished, with all planned rounds'
    if config is None:
        return 'must have settings in its journal, which say what the model was made from'
    if COUNTED_WORDS in report.also_not_covered or (  # Also of the run that it continues from.
        isinstance(config, TrainConfig)
        and has_words_of_clients(config.task, {} if built is None else built.data)
    ):
        return "has a vocabulary that was counted on the clients' text, without noise"
    if report.noise_is_seeded or (report.sampling_is_seeded and report.uses_sampling):
        return 'is a simulation: its noise or cohorts came from a seed'
    return None


def write(run: pathlib.Path, output: pathlib.Path, record: archive.PlanRecord) -> list[str]:
    """Writes the whole copy, or nothing.

    Args:
      run: Directory of the run.
      output: Directory of the copy; it does not exist, or is empty.
      record: Plan of the run, from which the report of the copy is made.

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
                if any(re.fullmatch(pattern, name) for pattern in _COPIED):
                    (partial / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(run / name, partial / name)
            shutil.copyfile(run / archive.STRATEGY, partial / archive.STRATEGY)
            (partial / archive.METRICS).write_text(_metrics(run / archive.METRICS))
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


def _metrics(path: pathlib.Path) -> str:
    """The columns of metrics.csv that may be published."""
    with open(path, newline='') as file:
        reader = csv.DictReader(file)
        columns = [name for name in reader.fieldnames or () if name in _COVERED]
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, extrasaction='ignore', lineterminator='\n')
        writer.writeheader()
        writer.writerows(reader)
    return text.getvalue()
