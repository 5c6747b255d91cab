"""Measures how small a share of faulty devices debug_images finds ([Augenstein20], section 6).

Example:
  python -m experiments.studies.detection_power_images \
      --flagfile=experiments/studies/detection_power_images.flags \
      --output_dir=runs/detection_power_images

For every seed, noise multiplier, fault of --inject and share of --inject_shares, a GAN is trained
on all clients, of which that share has the fault, and compared with a GAN of public images. Clean
cells, without a fault, tell how often an alarm is false. The files are those of detection_power;
the same command continues where it was interrupted.
"""

from dpfl.cli.command import command_line
from dpfl.cli.flags import output_flags, run_flags
from dpfl.cli.flags.settings_flags import SettingsFlags
from dpfl.debugging.images.config import PrimaryConfig, StudyConfig
from dpfl.errors import ArgumentError
from dpfl.simulation.training import (
    EvaluationConfig,
    ExecutionConfig,
    GanConfig,
    PrivacyConfig,
    SamplingConfig,
)
from dpfl.tasks.selection_config import ImageSelectionConfig
from experiments.studies.power import files
from experiments.studies.power.config import ImageGridConfig

_DEFAULTS = GanConfig(
    privacy=PrivacyConfig(mechanism='gaussian', clip_norm=1.0, noise_multiplier=0.01),
    sampling=SamplingConfig(rounds=100, population=1_000, clients_per_round=10),
    evaluation=EvaluationConfig(eval_clients=5),
    execution=ExecutionConfig(checkpoint_every=25),
)
_CONFIG = SettingsFlags(
    _DEFAULTS,
    # Mechanism, schema and sampling are those of [Augenstein20], algorithm 1.
    skip={
        *PrivacyConfig().flat(),
        *SamplingConfig().flat(),
        *ImageSelectionConfig().flat(),
        'eval_every',
        'release_train_metrics',
        'inject_share',
        'seed',
        'noise_seed',
    }
    - {'clip_norm', 'adjacency', 'rounds', 'population', 'clients_per_round'},
)
_PRIMARY = SettingsFlags(PrimaryConfig)
_STUDY = SettingsFlags(StudyConfig, only=('samples',))
_GRID = SettingsFlags(ImageGridConfig)
_DIRECTORY = SettingsFlags(
    output_flags.RunDirectoryConfig,
    only=('output_dir',),
    help={'output_dir': 'Directory of the study; finished cells in it are kept.'},
)
_FORMAT = SettingsFlags(output_flags.FormatConfig)


def main() -> None:
    """Checks the flags, makes what is missing, writes the page and prints the table."""
    config, base, how = _GRID.read(), _CONFIG.read(), _PRIMARY.read()
    directory = run_flags.directory(_DIRECTORY.read())
    with command_line.refusing_bad_values(directory='output_dir'):
        if not base.task.faults.inject:
            raise ArgumentError('inject', '', 'must name at least one fault')
        if not how.is_trained:
            raise ArgumentError('primary_model', how.primary_model, 'must be trained here')
        from experiments.studies.power.image_cells import ImageStudy

        cells = ImageStudy(
            config=config,
            base=base,
            primary=how,
            samples=_STUDY.read().samples,
            directory=directory,
        ).make()
    print(files.write(directory, cells, config.power, _FORMAT.read().format))


if __name__ == '__main__':
    command_line.run(main, threads_per_operation=1)
