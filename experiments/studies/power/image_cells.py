"""Makes the cells of images: trains GANs of all clients, and diagnoses what they draw.

A cell is compared with a reference: a GAN of public images of the same task, as debug_images
compares all clients with public images. So a clean cell differs from the reference as two trainings
without a fault do, and tells how often that alone raises an alarm.
"""

import dataclasses
import math
import pathlib
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from dpfl.debugging.differences import Mean, Share
from dpfl.debugging.images import diagnosis, learned, primary, runs, settings, traits
from dpfl.debugging.images.config import PrimaryConfig
from dpfl.simulation.training import GanConfig
from dpfl.simulation.training.sampling_config import required
from dpfl.tasks.config import ImageFaultConfig
from dpfl.tasks.images import classifiers, image_selection
from dpfl.tasks.images.image_task import open_clients
from experiments.studies.power.cells import NOISE, Cell, Cells
from experiments.studies.power.config import ImageGridConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageStudy:
    """A study of the power of image diagnoses.

    Attributes:
      config: The grid.
      base: How the GANs are trained; faults, noise and seed are those of each cell.
      primary: The classifier of public images.
      samples: Number of images that each generator draws.
      directory: Directory of the study.
    """

    config: ImageGridConfig
    base: GanConfig
    primary: PrimaryConfig
    samples: int
    directory: pathlib.Path

    def make(self) -> list[Cell]:
        """Makes the cells that are missing, and returns all, the clean ones of a seed first.

        Raises:
          ArgumentError: If a value is not allowed, or the directory has cells of other settings.
          RunError: If a file cannot be read or written, or a run cannot be continued.
        """
        fixed = {**self.primary.flat(), **self.base.flat(), 'samples': self.samples}
        for name in ('inject', 'inject_share', 'noise_multiplier', 'seed', 'noise_seed'):
            fixed.pop(name)
        kept = Cells(self.directory, fixed)
        return [
            cell
            for seed in self.config.seeds
            for noise in self.config.noise_multipliers
            for cell in self._of_seed(kept, seed, noise)
        ]

    def _of_seed(self, kept: Cells, seed: int, noise: float) -> Iterator[Cell]:
        """The cells of one seed at one noise multiplier."""
        faults = [ImageFaultConfig()] + [
            ImageFaultConfig(inject=(fault,), inject_share=share)
            for fault in self.base.task.faults.inject
            for share in self.config.inject_shares
        ]
        done = {each: kept.read(_cell(noise, seed, each).name) for each in faults}
        if not all(done.values()):
            trained = _Seed(self, seed, noise)
            reference, effects = trained.reference(), trained.effects()
            for each in faults:
                if done[each] is None:
                    cell = _cell(noise, seed, each, trained.of_clients(each), reference, effects)
                    kept.write(cell)
                    print(f'{cell.name}: {cell.verdict} {", ".join(cell.named)}', file=sys.stderr)
                    done[each] = cell
        yield from (cell for cell in done.values() if cell is not None)


@dataclasses.dataclass(frozen=True)
class Drawn:
    """What a generator draws.

    Attributes:
      traits: Traits of its images.
      learned: How much of public images it has learned.
    """

    traits: Mapping[str, Share | Mean]
    learned: learned.Learned


class _Seed:
    """Data, classifier and generators of one seed at one noise multiplier."""

    def __init__(self, study: ImageStudy, seed: int, noise: float):
        self._study = study
        self._base = study.base.with_values({'seed': seed, 'noise_multiplier': noise})
        self._folder = study.directory / f'seed_{seed}' / f'noise_multiplier_{noise:g}'
        clean = self._clients(ImageFaultConfig())
        self._heldout, _ = clean.heldout_examples(study.base.evaluation.eval_clients)
        self._public = settings.PublicImages(*clean.heldout_examples(study.primary.primary_clients))
        self._classifier = self._trained_classifier(seed)

    def reference(self) -> Drawn:
        """What a GAN of public images draws."""
        half = self._public.halves()[0]
        training = settings.Training(settings.AS_IS, self._public, half)
        return self._drawn(training, self._folder / 'reference')

    def effects(self) -> Mapping[str, float]:
        """By fault, by how much it raises its trait."""
        return self._public.effects(self._classifier.infer)

    def of_clients(self, faults: ImageFaultConfig) -> Drawn:
        """What a GAN of all clients draws, some of whom have a fault."""
        population = required(self._base.sampling, 'population')
        everyone = image_selection.Subpopulation(settings.EVERYONE, np.arange(population))
        training = settings.Training(settings.AS_IS, self._clients(faults), everyone)
        folder = f'{faults.inject[0]}_{faults.inject_share:g}' if faults.inject else 'clean'
        return self._drawn(training, self._folder / folder)

    def _clients(self, faults: ImageFaultConfig) -> Any:
        task = self._base.task
        return open_clients(task.task, task.data, faults, self._base.seed)

    def _trained_classifier(self, seed: int) -> classifiers.Classifier:
        how = self._study.primary
        recipe = primary.Recipe(
            how.primary_model, how.primary_steps, how.primary_learning_rate, seed
        )
        made_from = {**how.flat(), **primary.origin(self._base)}
        # One for all noise multipliers.
        return primary.train(recipe, self._public, self._folder.parent, made_from, resume=True)

    def _drawn(self, training: settings.Training, folder: pathlib.Path) -> Drawn:
        trained = runs.train(
            training,
            runs.config_of(self._base, training),
            folder,
            heldout=self._heldout,
            made_from=self._study.primary.flat(),
            samples=self._study.samples,
            resume=True,
            overwrite=False,
        )
        infer = self._classifier.infer
        return Drawn(
            traits.measure(trained.pixels, infer),
            learned.measure(trained.pixels, self._public.sample(), infer),
        )


def _cell(
    noise: float,
    seed: int,
    faults: ImageFaultConfig,
    drawn: Drawn | None = None,
    reference: Drawn | None = None,
    effects: Mapping[str, float] | None = None,
) -> Cell:
    """A cell; without images only its name is right."""
    fault = faults.inject[0] if faults.inject else None
    share = faults.inject_share if faults.inject else 0.0
    cell = Cell(NOISE, noise, seed, fault, share, diagnosis.CANNOT_TELL, (), (), {})
    if drawn is None or reference is None:
        return cell
    known = learned.evidence({diagnosis.CLIENTS: (drawn.learned, reference.learned)}, effects or {})
    found = diagnosis.diagnose(
        {diagnosis.CLIENTS: (drawn.traits, reference.traits)}, evidence=known
    )
    named = found.of(diagnosis.FOUND)
    order = (diagnosis.FOUND, diagnosis.SUSPECTED, diagnosis.NOT_SEEN)
    return dataclasses.replace(
        cell,
        verdict=next((each for each in order if found.of(each)), cell.verdict),
        named=named,
        traits={
            name: float(each.value) if math.isfinite(each.value) else None
            for name, each in drawn.traits.items()
        },
    )
