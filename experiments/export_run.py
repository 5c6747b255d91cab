"""Makes a public copy of a finished run that contains only what the guarantee covers.

Example:
  dpfl export_run --public --run_dir=runs/blt --output_dir=runs/blt_public

The run is verified first. The copy has the model, the plan, a report made from the plan alone, and
epsilon round by round; for a GAN also the images that its generator made. It has neither the
participation log, the ledger and what is known about the data, nor times, paths and flags. It has
no other metrics, because they are measured without noise. docs/reference/threat_model.md says what
each file of a run reveals. dpfl report_privacy --run_dir also verifies a copy.
"""

import dataclasses
import pathlib

from absl import flags

from dpfl.accounting.records import archive
from dpfl.accounting.reports import page
from dpfl.cli.command import command_line
from dpfl.cli.flags import output_flags
from dpfl.cli.flags.settings_flags import SettingsFlags
from dpfl.cli.results import verified_run
from dpfl.simulation import public_copy

_RUN = SettingsFlags(output_flags.RunDirConfig)
_COPY = SettingsFlags(
    output_flags.RunDirectoryConfig,
    only=('output_dir',),
    help={'output_dir': 'Directory of the copy; must not exist, or be empty.'},
)
_PUBLIC = flags.DEFINE_bool(
    'public', False, 'Confirm that the copy may become public. This flag must be given.'
)
_FORMAT = SettingsFlags(output_flags.FormatConfig)


def main() -> None:
    """Checks the flags, verifies the run, and writes the copy."""
    run = pathlib.Path(command_line.required(_RUN.read(), 'run_dir'))
    output = pathlib.Path(command_line.required(_COPY.read(), 'output_dir'))
    if not _PUBLIC.value:
        raise command_line.UsageError('--public: must be given; the copy is made to be public')
    _check_output(run, output)
    report = verified_run.verify(run)
    if reason := public_copy.obstacle(run, report):
        raise command_line.UsageError(f'--run_dir={run}: {reason}')
    record = dataclasses.replace(archive.read_plan(run), exported=True)
    names = public_copy.write(run, output, record)
    statement = page.statement(record.report(None))
    values = {'output_dir': str(output), 'statement': statement, 'files': names}
    output_flags.show(_FORMAT, values, '\n'.join([f'{output}: {statement}', *names]))


def _check_output(run: pathlib.Path, output: pathlib.Path) -> None:
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise command_line.UsageError(f'--output_dir={output}: must not exist, or be empty')
    if run.resolve() in (output.resolve(), *output.resolve().parents):
        raise command_line.UsageError(f'--output_dir={output}: must not be within --run_dir')


if __name__ == '__main__':
    command_line.run(main)
