"""Trains a model by federated learning under a privacy plan, and reports the guarantee.

Example:
  dpfl train --flagfile=configs/synthetic_text.blt.flags --output_dir=runs/blt

The output directory then has metrics.csv, the privacy report, the participation log, the ledger,
the model, checkpoints, plots and events for TensorBoard. Accuracy and loss are measured on held-out
clients. With --resume, an interrupted run continues from its last checkpoint. With --dry_run,
nothing is trained or written, and size, noise and guarantee of the run are printed.
"""

from dpfl.cli.command import command_line
from dpfl.cli.flags import output_flags
from dpfl.cli.flags.settings_flags import SettingsFlags
from dpfl.cli.results import train_command
from dpfl.simulation.training import TrainConfig, mechanism
from dpfl.tasks import config as tasks

_CONFIG = SettingsFlags(
    TrainConfig,
    choices={
        'mechanism': (*mechanism.NAMES, 'auto', 'none'),
        'task': (*tasks.TEXT_TASKS, *tasks.IMAGE_TASKS),
    },
)
_DIRECTORY = SettingsFlags(output_flags.RunDirectoryConfig)
_DRY_RUN = SettingsFlags(output_flags.DryRunConfig)
_FORMAT = SettingsFlags(output_flags.FormatConfig)


def main() -> None:
    """Checks the flags, trains, and prints the result; or only what the run would be."""
    train_command.main('train', _CONFIG, _DIRECTORY, _DRY_RUN, _FORMAT)


if __name__ == '__main__':
    command_line.run(main, threads_per_operation=1)
