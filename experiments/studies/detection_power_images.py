r"""Measures how small a share of faulty devices debug_images finds ([Augenstein20], section 6).

Example:
  python -m experiments.studies.detection_power_images \
      --flagfile=experiments/studies/detection_power_images.flags \
      --output_dir=runs/detection_power_images

For every seed, noise multiplier, fault of --inject and share of --inject_shares, a GAN is trained
on all clients, of which that share has the fault, and compared with a GAN of public images of the
same task. Clean cells, without a fault, tell how often an alarm is false. The files are those of
detection_power; the same command continues where it was interrupted.
"""

import dataclasses
import itertools
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np

from dpfl._settings import setting
from dpfl.cli.command import command_line
from dpfl.cli.flags import output_flags
from dpfl.cli.flags.settings_flags import SettingsFlags
from dpfl.debugging.diagnosis import Contrast, Generated
from dpfl.debugging.images.config import PrimaryConfig, StudyConfig
from dpfl.errors import ArgumentError
from dpfl.simulation.training import (
    EvaluationConfig,
    ExecutionConfig,
    GanConfig,
    PrivacyConfig,
    SamplingConfig,
)
from dpfl.tasks.config import ImageFaultConfig
from experiments.studies.shared import detection
from experiments.studies.shared.detection import Cell


@dataclasses.dataclass(frozen=True, kw_only=True)
class GridConfig(detection.GridConfig):
    """The grid of the cells; faults are those of --inject, one by one."""

    noise_multipliers: tuple[float, ...] = setting(
        (0.01,),
        'Noise multipliers of a GAN, comma-separated. Each has clean cells of its own.',
        minimum=0,
    )
    inject_shares: tuple[float, ...] = setting(
        (0.1, 0.3, 0.5, 1.0), 'Shares of the devices with a fault.', above=0, maximum=1
    )


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
_GRID = SettingsFlags(GridConfig)
_DIRECTORY = SettingsFlags(
    output_flags.RunDirectoryConfig,
    only=('output_dir',),
    help={'output_dir': 'Directory of the study; finished cells in it are kept.'},
)
_FORMAT = SettingsFlags(output_flags.FormatConfig)


def main() -> None:
    """Checks the flags, makes what is missing, writes the page and prints the table."""
    grid, base, primary = _GRID.read(), _CONFIG.read(), _PRIMARY.read()
    samples, directory = _STUDY.read().samples, output_flags.directory(_DIRECTORY.read())
    with command_line.refusing_bad_values(directory='output_dir'):
        if not primary.is_trained:
            raise ArgumentError('primary_model', primary.primary_model, 'must be trained here')
        settings = {**primary.flat(), **base.flat(), 'samples': samples}
        for name in ('inject', 'inject_share', 'noise_multiplier', 'seed', 'noise_seed'):
            settings.pop(name)

        def begin(seed: int, noise: float) -> Callable[[Cell], Cell]:
            own = base.with_values({'seed': seed, 'noise_multiplier': noise})
            return _diagnosed(own, primary, samples, directory / f'seed_{seed}')

        faults = [(None, 0.0), *itertools.product(base.task.faults.inject, grid.inject_shares)]
        cells = detection.cells(
            directory,
            settings,
            grid.seeds,
            'noise_multiplier',
            grid.noise_multipliers,
            faults,
            begin,
        )
    output_flags.show(_FORMAT, *detection.report(directory, cells, grid.power))


def _diagnosed(
    base: GanConfig, primary: PrimaryConfig, samples: int, folder: pathlib.Path
) -> Callable[[Cell], Cell]:
    """Fills in the diagnosis of a cell of one seed at one noise multiplier, those of `base`."""
    from dpfl.debugging.images import clients, diagnosis, study, traits
    from dpfl.debugging.images import primary as primary_lib
    from dpfl.simulation.training.round_config import required
    from dpfl.tasks.images.image_task import open_clients

    def opened(faults: ImageFaultConfig) -> Any:
        return open_clients(base.task.task, base.task.data, faults, base.seed)

    clean = opened(ImageFaultConfig())
    heldout, _ = clean.heldout_examples(base.evaluation.eval_clients)
    public = clients.PublicImages(*clean.heldout_examples(primary.primary_clients))
    # One for all noise multipliers.
    infer = primary_lib.train(primary, base, public, folder, resume=True)
    effects = public.effects(infer)

    def drawn(training: clients.Training, name: str) -> Generated:
        pixels = study.train_gan(
            training,
            study.config_of(base, training),
            folder / f'noise_multiplier_{base.privacy.noise_multiplier:g}' / name,
            heldout=heldout,
            made_from=primary.flat(),
            samples=samples,
            resume=True,
            overwrite=False,
        )
        return Generated(
            clients.IN_WORDS[training.chosen.name],
            traits.measure(pixels, infer),
            diagnosis.measure_learned(pixels, public.sample(), infer),
        )

    reference = drawn(clients.Training(clients.AS_IS, public, public.half), 'reference')
    population = np.arange(required(base.sampling, 'population'))
    everyone = clients.Subpopulation(clients.EVERYONE, population)

    def diagnosed(cell: Cell) -> Cell:
        """A cell with its diagnosis, of a GAN of all clients, some of whom have a fault."""
        faults, name = ImageFaultConfig(), 'clean'
        if cell.fault:
            faults = ImageFaultConfig(inject=(cell.fault,), inject_share=cell.share)
            name = f'{cell.fault}_{cell.share:g}'
        own = drawn(clients.Training(clients.AS_IS, opened(faults), everyone), name)
        contrasts = {diagnosis.CLIENTS: Contrast(own, reference)}
        result = diagnosis.diagnose(contrasts, effects=effects)
        order = (diagnosis.FOUND, diagnosis.SUSPECTED, diagnosis.NOT_SEEN)
        return dataclasses.replace(
            cell,
            verdict=next((one for one in order if result.of(one)), diagnosis.CANNOT_TELL),
            named=result.of(diagnosis.FOUND),
            traits=detection.values_of(own.traits),
        )

    return diagnosed


if __name__ == '__main__':
    command_line.run(main, threads_per_operation=1)
