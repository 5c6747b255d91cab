r"""Trains on text in which secrets are planted, to measure how far the model memorises them.

Example:
  python -m experiments.studies.plant_secrets --flagfile=configs/synthetic_text.blt.flags \
      --output_dir=runs/secrets --secrets=20 --secret_copies=1,16
  python -m experiments.studies.measure_exposure --run_dirs=runs/secrets

The run is one of dpfl train with the same flags, on a task of its own. data.json counts what was
planted.
"""

from dpfl.cli.command import command_line, program
from dpfl.cli.flags import output_flags
from dpfl.cli.flags.settings_flags import SettingsFlags
from dpfl.cli.results import train_command
from dpfl.simulation.training import TrainConfig, mechanism
from dpfl.tasks import config as tasks
from experiments.studies.shared import planting

_CONFIG = SettingsFlags(
    TrainConfig,
    choices={'mechanism': (*mechanism.NAMES, 'auto', 'none'), 'task': tasks.TEXT_TASKS},
)
_SECRETS = SettingsFlags(planting.PlantingConfig, defaults={'secrets': 20})
_DIRECTORY = SettingsFlags(output_flags.RunDirectoryConfig)
_FORMAT = SettingsFlags(output_flags.FormatConfig)


def main() -> None:
    """Checks the flags, trains, and prints the result."""
    program.require('tensorflow_federated')
    where, config, planted = _DIRECTORY.read(), _CONFIG.read(), _SECRETS.read()
    with command_line.refusing_bad_values(directory='output_dir'):
        result = planting.train(
            config,
            planted,
            output_flags.directory(where),
            resume=where.resume,
            overwrite=where.overwrite,
        )
    train_command.print_result(result, _FORMAT.read().format)


if __name__ == '__main__':
    command_line.run(main, threads_per_operation=1)
