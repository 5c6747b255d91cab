r"""Trains an image generator by DP-FedAvg-GAN under a privacy plan ([Augenstein20], algorithm 1).

Example:
  dpfl train_gan --rounds=200 --population=850 --clients_per_round=10 \
    --sampling=without_replacement --noise_multiplier=0.01 --delta=1e-3 --output_dir=runs/gan

The output directory then has the files of a run of dpfl train, with the generator as the
model; sheets of generated images in plots/; the generator as a SavedModel in generator/; and
gan_report.md, which explains why the guarantee of the run covers the generator. Losses are those of
held-out clients.
"""

from dpfl.accounting.records import archive
from dpfl.cli.command import command_line
from dpfl.cli.flags import output_flags
from dpfl.cli.flags.settings_flags import SettingsFlags
from dpfl.cli.results import train_command
from dpfl.simulation.training import GanConfig, mechanism, privacy_config, train

_CONFIG = SettingsFlags(
    GanConfig,
    choices={'mechanism': (*mechanism.NAMES, 'none')},
    help=privacy_config.WITHOUT_AUTO,
    skip=('noise', 'memory_limit', 'clip_schedule', 'test_clients'),
)
_DIRECTORY = SettingsFlags(output_flags.RunDirectoryConfig)
_FORMAT = SettingsFlags(output_flags.FormatConfig)


def main() -> None:
    """Checks the flags, trains, and prints the result."""
    where = _DIRECTORY.read()
    output_flags.take_recorded(where, _CONFIG.names)
    config = _CONFIG.read()
    with (
        command_line.refusing_bad_values(directory='output_dir'),
        output_flags.saying_what_is_saved(where, 'train_gan'),
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
