"""Trains a model by federated learning under a privacy plan, and reports the guarantee.

Example:
  dpfl train --flagfile=configs/synthetic_text.blt.flags --output_dir=runs/blt

The output directory then has metrics.csv, the privacy report, the participation log, the ledger,
the model, checkpoints, plots and events for TensorBoard. Accuracy and loss are measured on held-out
clients. With --resume, an interrupted run continues from its last checkpoint. With --dry_run,
nothing is trained or written, and size, noise and guarantee of the run are printed.
"""

from dpfl.accounting.records import archive
from dpfl.cli.command import command_line, program
from dpfl.cli.flags import output_flags
from dpfl.cli.flags.settings_flags import SettingsFlags
from dpfl.cli.results import train_command
from dpfl.reporting import plain_text
from dpfl.simulation.training import TrainConfig, dry_run, mechanism, train
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
    program.require('tensorflow_federated')
    where = _DIRECTORY.read()
    output_flags.take_recorded(where, _CONFIG.names)
    config = _CONFIG.read()
    if _DRY_RUN.read().dry_run:
        output_flags.refuse_earlier_run(where)
        with command_line.refusing_bad_values():
            cost = dry_run(config).to_dict()
        output_flags.show(_FORMAT, cost, plain_text.table(cost))
        return
    with (
        command_line.refusing_bad_values(directory='output_dir'),
        output_flags.saying_what_is_saved(where, 'train'),
    ):
        result = train(
            config,
            output_flags.directory(where),
            resume=where.resume,
            overwrite=where.overwrite,
            files={archive.FLAGS: output_flags.flags_text()},
            notice=output_flags.how_to_watch(where),
        )
    train_command.print_result(result, _FORMAT.read().format)


if __name__ == '__main__':
    command_line.run(main, threads_per_operation=1)
