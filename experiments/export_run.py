"""Copies of a finished run what its guarantee covers, for everyone to see, and nothing else.

Example:
  python -m experiments.export_run --public --run_dir=runs/blt --output_dir=runs/blt_public

The run is verified first. The copy has the model, the plan, a report made from the plan alone, and
epsilon round by round; for a GAN also the images that its generator made. Neither the participation
log, the ledger and what is known of the data are there, nor times, paths and flags, nor metrics:
they are measured without noise. --public_heldout adds those of held-out data that are public.
docs/threat_model.md says what each file of a run reveals. experiments.report_privacy --run_dir
verifies a copy, too.
"""

import csv
import dataclasses
import io
import json
import pathlib
import re
import shutil

from absl import flags

from dpfl import _storage, accounting
from dpfl.accounting import checklist
from dpfl.accounting.records import archive
from experiments.command import command_line
from experiments.flags import output_flags, recorded_flags
from experiments.flags.settings_flags import SettingsFlags
from experiments.pages import verified_run

_RUN = SettingsFlags(output_flags.RunDirConfig)
_COPY = SettingsFlags(
    output_flags.RunDirectoryConfig,
    only=('output_dir',),
    help={'output_dir': 'Directory of the copy; must not exist, or be empty.'},
)
_PUBLIC = flags.DEFINE_bool(
    'public', False, 'Confirm that the copy is to be public: there is no other kind.'
)
_PUBLIC_HELDOUT = flags.DEFINE_bool(
    'public_heldout',
    False,
    'Also copy loss, accuracy and other metrics of held-out clients. They have no noise: use this '
    'only if the held-out data are public or synthetic, and not of clients that are trained on.',
)
_SIMULATION = flags.DEFINE_bool(
    'simulation',
    False,
    'Also copy a simulation, whose noise or cohorts came from a known seed; its report says so.',
)
_FORMAT = SettingsFlags(output_flags.FormatConfig)

# Computed from the released model: the guarantee covers them. Whole names, as patterns.
_COPIED = (
    r'model\.npz',
    r'plots/generated_\d+\.png',
    r'(saved_model|generator)/(saved_model\.pb|fingerprint\.pb|variables/variables\.'
    r'(index|data-\d+-of-\d+)|assets\.extra/model\.json)',
)
_HTML, _METRICS = 'privacy_report.html', 'metrics.csv'
# Metrics that follow from the plan, and those that never leave: of training clients, and times.
_FROM_PLAN = ('round', 'epsilon')
_NEVER = ('seconds', 'train_')
_HELDOUT = (
    'The metrics in metrics.csv but for epsilon: they were measured without noise, on held-out '
    'data that whoever made this copy declared to be public.'
)


def main() -> None:
    """Checks the flags, verifies the run, and writes the copy."""
    run = pathlib.Path(command_line.required(_RUN.read(), 'run_dir'))
    output = pathlib.Path(command_line.required(_COPY.read(), 'output_dir'))
    if not _PUBLIC.value:
        raise command_line.UsageError('--public: must be given; the copy is made to be public')
    _check_output(run, output)
    found, report = verified_run.verify(run)
    _check_run(run, report, found.has_old_ledger)
    record = archive.read_plan(run)
    added = (_HELDOUT,) if _PUBLIC_HELDOUT.value else ()
    record = dataclasses.replace(
        record, exported=True, also_not_covered=(*record.also_not_covered, *added)
    )
    names = _write(run, output, record)
    statement = checklist.statement(record.report(None))
    if _FORMAT.read().format == 'json':
        print(json.dumps({'output_dir': str(output), 'statement': statement, 'files': names}))
    else:
        print('\n'.join([f'{output}: {statement}', *names]))


def _check_output(run: pathlib.Path, output: pathlib.Path) -> None:
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise command_line.UsageError(f'--output_dir={output}: must not exist, or be empty')
    if run.resolve() in (output.resolve(), *output.resolve().parents):
        raise command_line.UsageError(f'--output_dir={output}: must not be within --run_dir')


def _check_run(run: pathlib.Path, report: accounting.PrivacyReport, has_old_ledger: bool) -> None:
    """Refuses a run of which a copy would reveal what no guarantee covers."""
    made_with = recorded_flags.read_config(run) or recorded_flags.read(run)
    reason = None
    if report.observed is None:
        reason = 'is a copy already'
    elif has_old_ledger:
        reason = 'was made by an older version, and cannot be verified as a whole'
    elif not report.plan.noise_multiplier:
        reason = 'adds no noise: there is no guarantee'
    elif report.basis == 'log':
        reason = (
            'breaks its plan: its guarantee rests on the participation log, which is confidential'
        )
    elif not archive.has_ended(run) or _rounds(run) < report.plan.participation.rounds:
        reason = 'must be finished'
    elif made_with is None:
        reason = f'must have {archive.FLAGS}, which says what the model was made from'
    elif made_with.get('vocabulary_from_private_data') == 'true':
        reason = "has a vocabulary that was counted on the clients' text, without noise"
    elif _PUBLIC_HELDOUT.value and made_with.get('task') == 'emnist':
        raise command_line.UsageError(
            '--public_heldout: with --task=emnist, metrics are those of training clients'
        )
    elif _is_simulation(report) and not _SIMULATION.value:
        reason = 'is a simulation: its noise or cohorts came from a seed; --simulation exports it'
    if reason is not None:
        raise command_line.UsageError(f'--run_dir={run}: {reason}')


def _rounds(run: pathlib.Path) -> int:
    with open(run / _METRICS, newline='') as file:
        return sum(1 for _ in csv.DictReader(file))


def _is_simulation(report: accounting.PrivacyReport) -> bool:
    seeded_cohorts = report.sampling_is_seeded and checklist.uses_sampling(report)
    return report.noise_is_seeded or seeded_cohorts


def _write(run: pathlib.Path, output: pathlib.Path, record: archive.PlanRecord) -> list[str]:
    """Writes the copy as a whole, or nothing; names of its files."""
    from dpfl.reporting import privacy_page  # matplotlib takes a second to import.

    partial = output.with_name(output.name + '.partial')
    with _storage.naming(output):
        partial.mkdir(parents=True)
        try:
            for name in archive.listed(run):
                if any(re.fullmatch(pattern, name) for pattern in _COPIED):
                    (partial / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(run / name, partial / name)
            shutil.copyfile(run / archive.STRATEGY, partial / archive.STRATEGY)
            report = record.report(None)
            for name, text in (
                (archive.PLAN, record.to_json()),
                (archive.REPORT, report.to_json() + '\n'),
                (archive.PAGE, report.render()),
                (_HTML, privacy_page.render(report)),
                (_METRICS, _metrics(run / _METRICS)),
            ):
                (partial / name).write_text(text)
            (partial / archive.SUMS).write_text(archive.digests(partial))
            if output.exists():
                output.rmdir()
            partial.rename(output)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return sorted([archive.SUMS, *archive.listed(output)])


def _metrics(path: pathlib.Path) -> str:
    """The columns of metrics.csv that may be seen."""
    with open(path, newline='') as file:
        reader = csv.DictReader(file)
        columns = [
            name
            for name in reader.fieldnames or ()
            if name in _FROM_PLAN or _PUBLIC_HELDOUT.value and not name.startswith(_NEVER)
        ]
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, extrasaction='ignore', lineterminator='\n')
        writer.writeheader()
        writer.writerows(reader)
    return text.getvalue()


if __name__ == '__main__':
    command_line.run(main)
