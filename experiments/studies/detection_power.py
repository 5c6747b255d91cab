r"""Measures how small a share of damaged text debug_text finds ([Augenstein20], section 5).

Example:
  python -m experiments.studies.detection_power \
      --flagfile=experiments/studies/detection_power_text.flags \
      --output_dir=runs/detection_power

For every seed, epsilon, fault of --inject and share of --inject_share, the generators of debug_text
are trained on text with that fault, and compared with a reference: generators of the text as it is,
from a training of its own with other cohorts, initial weights and noise. So a clean cell, without
a fault, differs from the reference as two trainings on equal data do, and tells how often that
alone raises an alarm. The output directory then has
- power.html: for each fault and epsilon the smallest share that is found with --power, with its
  interval, and a figure of power against share;
- power.json: the same numbers, and every cell; power_<fault>.png: the figures;
- cells/ with a file for each finished cell, and folders with the runs.

The same command continues where it was interrupted. More seeds, epsilons, faults and shares can be
added later; finished cells are kept.
"""

import dataclasses
import pathlib
from collections.abc import Callable

from dpfl._settings import setting
from dpfl.cli.command import command_line
from dpfl.cli.flags import output_flags
from dpfl.cli.flags.settings_flags import SettingsFlags
from dpfl.debugging.text.clients import OpenedText
from dpfl.debugging.text.config import NOT_OF_TASK, NOT_OF_TRAINING, Case, StudyConfig
from dpfl.simulation.training import PrivacyConfig, TrainConfig, mechanism
from dpfl.tasks.config import TextTaskConfig
from experiments.studies.shared import detection
from experiments.studies.shared.detection import Cell

# Added to the seed of the reference.
_OTHER = 1_000_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class GridConfig(detection.GridConfig):
    """The grid of the cells; faults and shares are those of debug_text."""

    epsilons: tuple[float, ...] = setting(
        (8.0,),
        'Target epsilons of a generator, comma-separated. Each has clean cells of its own.',
        above=0,
    )


_TASK = SettingsFlags(TextTaskConfig, skip=NOT_OF_TASK)
_STUDY = SettingsFlags(StudyConfig, skip=('primary_model', 'wrong_accuracy', 'poor_accuracy'))
# Each cell has a seed and an epsilon of its own; its noise is secret, and so never that of another.
_CONFIG = SettingsFlags(
    TrainConfig(privacy=PrivacyConfig(mechanism='gaussian')),
    skip=(*NOT_OF_TRAINING, 'seed', 'noise_seed', 'noise_multiplier', 'target_epsilon'),
    choices={'mechanism': mechanism.NAMES},
)
_GRID = SettingsFlags(GridConfig)
_DIRECTORY = SettingsFlags(
    output_flags.RunDirectoryConfig,
    only=('output_dir',),
    help={'output_dir': 'Directory of the study; finished cells in it are kept.'},
)
_FORMAT = SettingsFlags(output_flags.FormatConfig)


def main() -> None:
    """Checks the flags, makes what is missing, writes the page and prints the table."""
    grid, study, base, task = _GRID.read(), _STUDY.read(), _CONFIG.read(), _TASK.read()
    directory = output_flags.directory(_DIRECTORY.read())
    with command_line.refusing_bad_values(directory='output_dir'):
        settings = {
            **task.flat(),
            **study.with_values({'inject': (), 'inject_share': ()}).flat(),
            **base.with_values({'target_epsilon': grid.epsilons[0], 'seed': 0}).flat(),
        }
        for name in ('inject', 'inject_share', 'target_epsilon', 'seed', 'noise_seed'):
            settings.pop(name)

        def begin(seed: int, epsilon: float) -> Callable[[Cell], Cell]:
            trained = base.with_values({'target_epsilon': epsilon, 'seed': seed})
            folder = directory / f'epsilon_{epsilon:g}' / f'seed_{seed}'
            return _diagnosed(study, trained, OpenedText(task, seed), folder)

        faults = [(case.fault, case.share) for case in study.cases]
        cells = detection.cells(
            directory, settings, grid.seeds, 'epsilon', grid.epsilons, faults, begin
        )
    output_flags.show(_FORMAT, *detection.report(directory, cells, grid.power))


def _diagnosed(
    study: StudyConfig, base: TrainConfig, opened: OpenedText, folder: pathlib.Path
) -> Callable[[Cell], Cell]:
    """Fills in the diagnosis of a cell of one seed at one epsilon, those of `base`."""
    from dpfl.debugging.text.config import CHAR
    from dpfl.debugging.text.study import Study

    own = Study(config=study, base=base, opened=opened, directory=folder / 'cells', resume=True)
    other = dataclasses.replace(
        own,
        base=base.with_values({'seed': base.seed + _OTHER}),
        directory=folder / 'reference',
    )
    reference = other.run_case(Case())

    def diagnosed(cell: Cell) -> Cell:
        case = Case(cell.fault, cell.share)
        result = own.run_case(case)
        names = case.name, 'another training'
        compared = own.compare(case, result.whole, reference.whole, names).diagnosis
        alone: tuple[str, ...] = ()
        if CHAR in result.written:
            alone = own.judge(result).diagnosis.faults
        traits = {name: each for one in result.whole.values() for name, each in one.traits.items()}
        return dataclasses.replace(
            cell,
            verdict=compared.verdict,
            named=compared.faults,
            named_alone=alone,
            traits=detection.values_of(traits),
        )

    return diagnosed


if __name__ == '__main__':
    command_line.run(main, threads_per_operation=1)
