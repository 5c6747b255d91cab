r"""Trains an image generator by DP-FedAvg-GAN under a privacy plan ([Augenstein20], algorithm 1).

Example:
  dpfl train_gan --rounds=200 --population=850 --clients_per_round=10 \
    --sampling=without_replacement --noise_multiplier=0.01 --delta=1e-3 --output_dir=runs/gan

The output directory then has the files of a run of dpfl train, with the generator as the
model; sheets of generated images in plots/; the generator as a SavedModel in generator/; and
gan_report.md, which explains why the guarantee of the run covers the generator. Losses are those of
held-out clients. With --dry_run, nothing is trained or written, and size, noise and guarantee of
the run are printed; the size is that of the discriminator, which clients train.
"""

from dpfl.cli.command import command_line
from dpfl.cli.flags import output_flags
from dpfl.cli.flags.settings_flags import SettingsFlags
from dpfl.cli.results import train_command
from dpfl.simulation.training import GanConfig, mechanism

_CONFIG = SettingsFlags(
    GanConfig,
    choices={'mechanism': (*mechanism.NAMES, 'auto', 'none')},
    skip=('test_clients',),
)
_DIRECTORY = SettingsFlags(output_flags.RunDirectoryConfig)
_DRY_RUN = SettingsFlags(output_flags.DryRunConfig)
_FORMAT = SettingsFlags(output_flags.FormatConfig)


def main() -> None:
    """Checks the flags, trains, and prints the result; or only what the run would be."""
    train_command.main('train_gan', _CONFIG, _DIRECTORY, _DRY_RUN, _FORMAT)


if __name__ == '__main__':
    command_line.run(main, threads_per_operation=1)
