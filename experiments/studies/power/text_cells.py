"""Makes the cells of text: trains the generators of debug_text, and diagnoses what they write.

A cell is compared with a reference: generators of the same text as it is, from a training of its
own with other cohorts, initial weights and noise. So a clean cell differs from the reference as two
trainings on equal data do, and tells how often that alone raises an alarm.
"""

import math
import pathlib
import sys
from collections.abc import Iterator, Mapping

from dpfl.debugging.text import diagnosis, results
from dpfl.debugging.text.clients import OpenedText
from dpfl.debugging.text.config import Case, StudyConfig
from dpfl.debugging.text.study import Study
from dpfl.simulation.training import TrainConfig
from dpfl.tasks.config import TextTaskConfig
from experiments.studies.power.cells import EPSILON, Cell, Cells
from experiments.studies.power.config import TextGridConfig

# Added to the seed of the reference.
_OTHER = 1_000_000


def make(
    directory: pathlib.Path,
    config: TextGridConfig,
    study: StudyConfig,
    base: TrainConfig,
    task: TextTaskConfig,
) -> list[Cell]:
    """Makes the cells that are missing, and returns all, the clean ones of a seed first.

    Args:
      directory: Directory of the study of power.
      config: The grid.
      study: The generators, and the faults with their shares.
      base: How the generators are trained; its epsilon and seed are those of each cell.
      task: The text.

    Raises:
      ArgumentError: If a value is not allowed, or the directory has cells of other settings.
      RunError: If a file cannot be read or written, or a run cannot be continued.
    """
    fixed = {
        **task.flat(),
        **study.with_values({'inject': (), 'inject_share': ()}).flat(),
        **base.with_values({'target_epsilon': config.epsilons[0], 'seed': 0}).flat(),
    }
    for name in ('inject', 'inject_share', 'target_epsilon', 'seed', 'noise_seed'):
        fixed.pop(name)
    kept = Cells(directory, fixed)
    found: list[Cell] = []
    for seed in config.seeds:
        for epsilon in config.epsilons:
            values = {'target_epsilon': epsilon, 'seed': seed}
            found += _of_seed(
                directory / f'epsilon_{epsilon:g}' / f'seed_{seed}',
                kept,
                study,
                base.with_values(values),
                OpenedText(task, seed),
                epsilon,
            )
    return found


def _of_seed(
    directory: pathlib.Path,
    kept: Cells,
    study: StudyConfig,
    base: TrainConfig,
    opened: OpenedText,
    epsilon: float,
) -> Iterator[Cell]:
    """The cells of one seed at one epsilon."""
    wanted = {_name(epsilon, base.seed, each.fault, each.share): each for each in study.cases}
    done = {name: kept.read(name) for name in wanted}
    if not all(done.values()):
        other = base.with_values({'seed': base.seed + _OTHER})
        run = Study(config=study, base=other, opened=opened)
        folder = directory / 'reference'
        reference = run.run_case(Case(), folder, resume=True, overwrite=False).result
        for name, case in wanted.items():
            if done[name] is None:
                run = Study(config=study, base=base, opened=opened)
                result = run.run_case(
                    case, directory / 'cells', resume=True, overwrite=False
                ).result
                cell = _cell(result, reference, run.effects, epsilon, base.seed)
                kept.write(cell)
                print(f'{name}: {cell.verdict} {", ".join(cell.named)}', file=sys.stderr)
                done[name] = cell
    yield from (cell for cell in done.values() if cell is not None)


def _cell(
    result: results.CaseResult,
    reference: results.CaseResult,
    effects: Mapping[str, Mapping[str, float]],
    epsilon: float,
    seed: int,
) -> Cell:
    known = results.evidence(effects, result.case, result.whole, reference.whole)
    compared = diagnosis.diagnose(result.measures, reference.measures, known)
    by_itself = results.evidence(effects, result.case, result.whole, result.whole)
    alone = diagnosis.alone(result.measures, by_itself)
    return Cell(
        axis=EPSILON,
        level=epsilon,
        seed=seed,
        fault=result.case.fault,
        share=result.case.share,
        verdict=compared.verdict,
        named=compared.faults,
        named_alone=alone.faults,
        traits={
            name: float(each.value) if math.isfinite(each.value) else None
            for name, each in result.measures.items()
        },
    )


def _name(epsilon: float, seed: int, fault: str | None, share: float) -> str:
    return Cell(EPSILON, epsilon, seed, fault, share, '', (), (), {}).name
