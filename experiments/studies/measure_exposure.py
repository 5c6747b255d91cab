r"""Measures how far models have memorised secrets that were planted in the text of clients.

Example:
  dpfl train --flagfile=configs/synthetic_text.blt.flags \
      --output_dir=runs/secrets --secrets=20 --secret_copies=1,16
  python -m experiments.studies.measure_exposure --run_dirs=runs/secrets

A secret is a sentence with random words; its exposure is log2 of the number of candidates, less
log2 of its rank among them under the model ([Carlini19]). It is 0 if all other candidates are more
probable, and 1.44 bits on average if the model is independent of the secret. The table also has the
p-value of that hypothesis, and the largest mean exposure that the guarantee of the run allows. Runs
that differ in their seeds only are pooled. --plot draws the exposures of several runs by their
guarantees.
"""

import json

from absl import flags

from dpfl.cli.command import command_line, files
from dpfl.cli.flags import output_flags
from dpfl.cli.flags.settings_flags import SettingsFlags
from dpfl.reporting import plain_text
from experiments.studies.attacks.exposure_config import ExposureConfig

_RUNS = flags.DEFINE_list(
    'run_dirs', None, 'Directories of finished runs with secrets, comma-separated.'
)
_CONFIG = SettingsFlags(ExposureConfig)
_PLOT = SettingsFlags(output_flags.PlotConfig)
_DATA = SettingsFlags(output_flags.DataConfig)
_FORMAT = SettingsFlags(output_flags.FormatConfig)


def main() -> None:
    """Checks the flags, measures the runs, prints the table, and draws the figure."""
    config, plot, data = _CONFIG.read(), _PLOT.read().plot, _DATA.read().data
    if not _RUNS.value:
        raise command_line.UsageError('--run_dirs: must be given')
    files.check_writable(data, plot)
    # Importing TensorFlow takes seconds, so everything else is checked first.
    from experiments.studies.attacks import exposure_rows as exposures
    from experiments.studies.attacks import finished_run, secrets

    with command_line.refusing_bad_values(run_dir=_RUNS.name):
        opened = [finished_run.open_run(directory) for directory in _RUNS.value]
        found = [secrets.measure(run, config) for run in opened]
        table = exposures.rows(list(zip(opened, found, strict=True)))
        output_flags.write_rows(data, table)
    if plot is not None:
        exposures.draw(table).savefig(plot, dpi=90)
    if _FORMAT.read().format == 'json':
        values = {'rows': table, 'runs': [each.to_dict() for each in found]}
        print(json.dumps(values, allow_nan=False))
        return
    print(plain_text.columns(table))


if __name__ == '__main__':
    command_line.run(main)
