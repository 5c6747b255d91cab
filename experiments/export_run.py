"""Makes a public copy of a finished run that contains only what the guarantee covers.

Example:
  dpfl export_run --public --run_dir=runs/blt --output_dir=runs/blt_public

The run is verified first. The copy has the model, the plan, a report made from the plan alone, and
epsilon round by round; for a GAN also the images that its generator made. It has neither the
participation log, the ledger and what is known about the data, nor times, paths and flags. It has
no other metrics, because they are measured without noise; --public_heldout adds the metrics of
held-out data and of test data that are public. docs/reference/threat_model.md says what each file
of a run reveals. dpfl report_privacy --run_dir also verifies a copy.
"""

import dataclasses
import json
import pathlib

from absl import flags

from dpfl.accounting.records import archive
from dpfl.accounting.reports import page
from dpfl.cli.command import command_line
from dpfl.cli.flags import output_flags
from dpfl.cli.flags.settings_flags import SettingsFlags
from dpfl.cli.results import verified_run

_RUN = SettingsFlags(output_flags.RunDirConfig)
_COPY = SettingsFlags(
    output_flags.RunDirectoryConfig,
    only=('output_dir',),
    help={'output_dir': 'Directory of the copy; must not exist, or be empty.'},
)
_PUBLIC = flags.DEFINE_bool(
    'public', False, 'Confirm that the copy may become public. This flag must be given.'
)
_PUBLIC_HELDOUT = flags.DEFINE_bool(
    'public_heldout',
    False,
    'Also copy loss, accuracy and other metrics of held-out clients, and of test clients if there '
    'are any. They have no noise: use this only if these data are public or synthetic, and do not '
    'belong to training clients.',
)
_SIMULATION = flags.DEFINE_bool(
    'simulation',
    False,
    'Also copy a simulation, whose noise or cohorts came from a known seed; its report says so.',
)
_FORMAT = SettingsFlags(output_flags.FormatConfig)

_HELDOUT = (
    'The metrics in metrics.csv except epsilon, and those in test_metrics.json if there is one: '
    'they were measured without noise, on held-out or test data that whoever made this copy '
    'declared to be public.'
)


def main() -> None:
    """Checks the flags, verifies the run, and writes the copy."""
    run = pathlib.Path(command_line.required(_RUN.read(), 'run_dir'))
    output = pathlib.Path(command_line.required(_COPY.read(), 'output_dir'))
    if not _PUBLIC.value:
        raise command_line.UsageError('--public: must be given; the copy is made to be public')
    _check_output(run, output)
    _, report = verified_run.verify(run)
    verified_run.check_copy(
        run,
        report,
        public_heldout=_PUBLIC_HELDOUT.value,
        simulation=_SIMULATION.value,
    )
    record = archive.read_plan(run)
    added = (_HELDOUT,) if _PUBLIC_HELDOUT.value else ()
    record = dataclasses.replace(
        record, exported=True, also_not_covered=(*record.also_not_covered, *added)
    )
    names = verified_run.write_copy(run, output, record, public_heldout=_PUBLIC_HELDOUT.value)
    statement = page.statement(record.report(None))
    if _FORMAT.read().format == 'json':
        print(json.dumps({'output_dir': str(output), 'statement': statement, 'files': names}))
    else:
        print('\n'.join([f'{output}: {statement}', *names]))


def _check_output(run: pathlib.Path, output: pathlib.Path) -> None:
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise command_line.UsageError(f'--output_dir={output}: must not exist, or be empty')
    if run.resolve() in (output.resolve(), *output.resolve().parents):
        raise command_line.UsageError(f'--output_dir={output}: must not be within --run_dir')


if __name__ == '__main__':
    command_line.run(main)
