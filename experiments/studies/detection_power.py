"""Measures how small a share of damaged text debug_text finds ([Augenstein20], section 5).

Example:
  python -m experiments.studies.detection_power \
      --flagfile=experiments/studies/detection_power_text.flags \
      --output_dir=runs/detection_power

For every seed, epsilon, fault of --inject and share of --inject_share, the generators of debug_text
are trained on text with that fault, and compared with a reference: generators of the text as it is,
from another training. Clean cells, without a fault, tell how often an alarm is false. The output
directory then has
- power.html: for each fault and epsilon the smallest share that is found with --power, with its
  interval, and a figure of power against share;
- power.json: the same numbers, and every cell; power_<fault>.png: the figures;
- cells/ with a file for each finished cell, and folders with the runs.

The same command continues where it was interrupted. More seeds, epsilons, faults and shares can be
added later; finished cells are kept.
"""

from dpfl.cli.command import command_line
from dpfl.cli.flags import output_flags, run_flags
from dpfl.cli.flags.settings_flags import SettingsFlags
from dpfl.debugging.text.config import NOT_OF_TASK, NOT_OF_TRAINING, StudyConfig
from dpfl.errors import ArgumentError
from dpfl.simulation.training import PrivacyConfig, TrainConfig, mechanism
from dpfl.tasks.config import TextTaskConfig
from experiments.studies.power import files
from experiments.studies.power.config import TextGridConfig

_TASK = SettingsFlags(TextTaskConfig, skip=NOT_OF_TASK)
_STUDY = SettingsFlags(StudyConfig, skip=('primary_model', 'wrong_accuracy', 'poor_accuracy'))
# Each cell has a seed and an epsilon of its own; its noise is secret, and so never that of another.
_CONFIG = SettingsFlags(
    TrainConfig(privacy=PrivacyConfig(mechanism='gaussian')),
    skip=(
        *NOT_OF_TRAINING,
        'seed',
        'noise_seed',
        'noise_multiplier',
        'target_epsilon',
    ),
    choices={'mechanism': mechanism.NAMES},
)
_POWER = SettingsFlags(TextGridConfig)
_DIRECTORY = SettingsFlags(
    output_flags.RunDirectoryConfig,
    only=('output_dir',),
    help={'output_dir': 'Directory of the study; finished cells in it are kept.'},
)
_FORMAT = SettingsFlags(output_flags.FormatConfig)


def main() -> None:
    """Checks the flags, makes what is missing, writes the page and prints the table."""
    config, study, base, task = _POWER.read(), _STUDY.read(), _CONFIG.read(), _TASK.read()
    directory = run_flags.directory(_DIRECTORY.read())
    with command_line.refusing_bad_values(directory='output_dir'):
        if not study.inject:
            raise ArgumentError('inject', '', 'must name at least one fault')
        from experiments.studies.power import text_cells

        cells = text_cells.make(directory, config, study, base, task)
    print(files.write(directory, cells, config.power, _FORMAT.read().format))


if __name__ == '__main__':
    command_line.run(main, threads_per_operation=1)
