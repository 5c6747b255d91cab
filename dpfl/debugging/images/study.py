"""Runs the study: trains the classifier and the GANs, and writes the results."""

import dataclasses
import functools
import hashlib
import json
import pathlib
from typing import Any, BinaryIO

import numpy as np

from dpfl import _storage, errors
from dpfl.debugging.differences import Mean
from dpfl.debugging.images import (
    conclusions,
    findings,
    page,
    primary,
    runs,
    settings,
    subpopulations,
)
from dpfl.debugging.images import config as config_lib
from dpfl.debugging.images.config import StudyConfig
from dpfl.reporting import contact_sheet
from dpfl.simulation.training import GanConfig
from dpfl.simulation.training.sampling_config import required
from dpfl.tasks import source
from dpfl.tasks.config import ImageFaultConfig
from dpfl.tasks.images import classifiers, image_task

_SHEET_IMAGES = 72
# Synthetic clients by default, as many as [Augenstein20] has.
_SYNTHETIC_CLIENTS = 3_400
_SELECTED = (
    'Which clients were selected, and how many: they were selected by the accuracy of a classifier '
    'on their images, compared with thresholds that were computed on them, without noise.',
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Study:
    """A study.

    Attributes:
      config: What is compared.
      base: How the GANs are trained, and on how many clients.
      directory: Directory of the study.
      resume: Keep what is finished, and continue a run that was interrupted.
      overwrite: Replace an earlier study in the directory.
    """

    config: StudyConfig
    base: GanConfig
    directory: pathlib.Path
    resume: bool = False
    overwrite: bool = False

    def run(self) -> tuple[page.Study, list[findings.Finding]]:
        """Trains what is not trained yet.

        Raises:
          ArgumentError: If a value is not allowed, or too few clients are selected.
          RunError: If a file cannot be read or written, or a run cannot be continued.
        """
        data = self._data()
        return dataclasses.replace(self, base=self._with_population(data))._run(data)

    def _run(self, data: dict[str, Any]) -> tuple[page.Study, list[findings.Finding]]:
        """As `run`, on opened clients, of which the configuration says how many take part."""
        clean = list(data.values())[-1]  # Held-out clients have no faults in any state.
        heldout, _ = clean.heldout_examples(self.base.evaluation.eval_clients)
        images = settings.PublicImages(*clean.heldout_examples(self.config.primary.primary_clients))
        model, made_from = self._model(images)
        study, trainings = self._select(data, images, model, made_from)
        # Checks all configurations before the long part begins.
        configs = [runs.config_of(self.base, training) for training in trainings]
        results = [
            self._train(training, config, model, heldout, images)
            for training, config in zip(trainings, configs, strict=True)
        ]
        return study, results

    @property
    def _has_fix(self) -> bool:
        return self.config.compare == config_lib.FIX

    def _data(self) -> dict[str, Any]:
        """The clients by state: as they are, or with the faults and without."""
        task, seed = self.base.task, self.base.seed
        if self._has_fix and not task.faults.inject:
            raise errors.ArgumentError('inject', '', 'must name a fault for compare=fix')
        faults = (
            {settings.BUG: task.faults, settings.FIXED: ImageFaultConfig()}
            if self._has_fix
            else {settings.AS_IS: task.faults}
        )
        return {
            state: image_task.open_clients(task.task, task.data, each, seed)
            for state, each in faults.items()
        }

    def _with_population(self, data: dict[str, Any]) -> GanConfig:
        """The configuration with a number of clients: all of a file, by default."""
        available = getattr(next(iter(data.values())), 'population', None)
        given = self.base.sampling.population
        if available is None and given is None:
            given = _SYNTHETIC_CLIENTS
        return self.base.with_values({'population': source.population(given, lambda: available)})

    def _model(
        self, public: settings.PublicImages
    ) -> tuple[classifiers.Classifier, dict[str, Any]]:
        """The classifier, trained or read, and what it depends on."""
        base, how = self.base, self.config.primary
        made_from = {**how.flat(), **primary.origin(base)}
        primary.check_unused(self.directory, resume=self.resume, overwrite=self.overwrite)
        if not how.is_trained:
            with errors.renaming(path='primary_model'):
                classifiers.require_stranger(how.primary_model, base.task, base.seed)
                model = classifiers.load(how.primary_model)
            # A study must not go on with another model at the same path.
            classes = model.probabilities(public.pixels).argmax(axis=1).astype('<i4')
            digest = hashlib.sha256(classes.tobytes()).hexdigest()[:12]
            return model, {**made_from, 'primary_model': f'{how.primary_model} ({digest})'}
        recipe = primary.Recipe(
            how.primary_model, how.primary_steps, how.primary_learning_rate, base.seed
        )
        with errors.renaming(learning_rate='primary_learning_rate'):
            model = primary.train(recipe, public, self.directory, made_from, resume=self.resume)
        return model, made_from

    def _select(
        self,
        data: dict[str, Any],
        public: settings.PublicImages,
        model: classifiers.Classifier,
        made_from: dict[str, Any],
    ) -> tuple[page.Study, list[settings.Training]]:
        """Divides the clients or their examples by what the classifier says."""
        base = self.base
        population = required(base.sampling, 'population')
        faults = base.task.faults.flat()
        made_from = {**made_from, 'population': population, **faults}
        verdicts = {
            state: primary.judge(
                model, state, task, population, self.directory, made_from, resume=self.resume
            )
            for state, task in data.items()
        }
        # Of the data without faults, if they are known.
        limits = subpopulations.thresholds(list(verdicts.values())[-1])
        trainings = [
            settings.Training(state, data[state], chosen)
            for state in data
            for chosen in settings.select(self.config.selection, verdicts[state], limits)
        ]
        accuracies = None
        if not self._has_fix:
            everyone = subpopulations.Subpopulation(settings.EVERYONE, np.arange(population))
            trainings = [
                *(settings.Training(settings.AS_IS, public, half) for half in public.halves()),
                settings.Training(settings.AS_IS, data[settings.AS_IS], everyone),
                *trainings,
            ]
            known = verdicts[settings.AS_IS].accuracies
            right = model.probabilities(public.pixels).argmax(axis=1) == public.labels
            accuracies = (Mean.of(known[~np.isnan(known)]), Mean.of(right))
        study = page.Study(
            injected=base.task.faults.inject,
            share=base.task.faults.inject_share,
            selection=self.config.selection,
            population=population,
            limits=limits,
            accuracies={state: each.accuracies for state, each in verdicts.items()},
            noise_is_seeded=base.noise_seed is not None,
            of_clients_and_public=accuracies,
            effects=public.effects(model.infer),
            public=public.sample(),
            public_measures=findings.measure(model, public.sample()[::2], public.sample()[1::2]),
            seed=base.seed,
        )
        return study, trainings

    def _train(
        self,
        training: settings.Training,
        config: GanConfig,
        model: classifiers.Classifier,
        heldout: np.ndarray,
        public: settings.PublicImages,
    ) -> findings.Finding:
        """Trains one GAN and measures its images."""
        is_public = training.data is public
        guarantees: tuple[findings.Guarantee, ...] = ()
        if not is_public:
            with errors.renaming(population='realistic_population', clients_per_round='scale'):
                guarantees = findings.guarantees(
                    settings.plan(training, self.base),
                    self.config.scale,
                    self.config.realistic_population,
                    required(self.base.sampling, 'population'),
                )
        is_selected = not is_public and training.chosen.name != settings.EVERYONE
        trained = runs.train(
            training,
            config,
            self.directory,
            heldout=heldout,
            made_from={
                **self.config.primary.flat(),
                'selection': self.config.selection,
                'selected_from': self.base.sampling.population,
            },
            samples=self.config.samples,
            resume=self.resume,
            overwrite=self.overwrite,
            not_covered=_SELECTED if is_selected else (),
        )
        return findings.find(training, trained, model, guarantees, public.sample())


def write(
    directory: pathlib.Path, study: page.Study, results: list[findings.Finding]
) -> tuple[dict[str, Any], pathlib.Path]:
    """Writes sheets of generated images, numbers and page; returns the numbers and the page's path.

    Raises:
      StorageError: If a file cannot be written.
    """
    for each in results:
        name = f'generated_{each.state}_{each.subpopulation}.png'
        contact_sheet.write(directory / 'sheets' / name, each.generated[:_SHEET_IMAGES])
    conclusion = conclusions.conclude(
        results,
        injected=study.injected,
        accuracies=study.of_clients_and_public,
        effects=study.effects,
        seed=study.seed,
    )
    summary = {
        **conclusion.to_dict(),
        'thresholds': {'poor': study.limits.poor, 'strong': study.limits.strong},
        'population': study.population,
        'results': [each.to_dict() for each in results],
    }
    page_path = directory / 'study.html'
    for path, content in (
        (page_path, page.render(study, results, conclusion)),
        (directory / 'study.json', json.dumps(summary) + '\n'),
    ):
        _storage.write_atomically(path, functools.partial(_write, content.encode()))
    return summary, page_path


def _write(data: bytes, file: BinaryIO) -> None:
    file.write(data)
