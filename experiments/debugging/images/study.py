"""Runs the study: trains the classifier and the GANs, and writes the results."""

import dataclasses
import functools
import json
import pathlib
from typing import Any, BinaryIO

import numpy as np

from dpfl import _storage, errors
from dpfl.reporting import contact_sheet
from dpfl.simulation.training import GanConfig
from dpfl.simulation.training.sampling_config import required
from dpfl.tasks.image_fault_config import ImageFaultConfig, as_of_old
from dpfl.tasks.images import image_selection
from dpfl.tasks.images.image_task import open_clients
from experiments.debugging.images import findings, page, primary, runs, settings
from experiments.debugging.images.config import StudyConfig

_SHEET_IMAGES = 72
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
        heldout, _ = data[settings.FIXED].heldout_examples(self.base.evaluation.eval_clients)
        study, trainings, model = self._select(data)
        # Checks all configurations before the long part begins.
        configs = [runs.config_of(self.base, training) for training in trainings]
        results = [
            self._train(training, config, model, heldout)
            for training, config in zip(trainings, configs, strict=True)
        ]
        return study, results

    def _data(self) -> dict[str, Any]:
        """The clients by state: with the bug and without."""
        task, seed = self.base.task, self.base.seed
        faults = {settings.BUG: task.faults, settings.FIXED: ImageFaultConfig()}
        data = {
            state: open_clients(task.task, task.data, each, seed) for state, each in faults.items()
        }
        available = getattr(data[settings.FIXED], 'population', None)
        population = required(self.base.sampling, 'population')
        if available is not None and population > available:
            raise errors.ArgumentError(
                'population', population, f'must be <= {available}, the clients that the data have'
            )
        return data

    def _select(
        self, data: dict[str, Any]
    ) -> tuple[page.Study, list[settings.Training], primary.Primary]:
        """Trains the classifier, and divides the clients or their examples."""
        base, how = self.base, self.config.primary
        population = required(base.sampling, 'population')
        recipe = primary.Recipe(
            how.primary_model,
            how.primary_clients,
            how.primary_steps,
            how.primary_learning_rate,
            base.seed,
        )
        made_from = {
            **how.flat(),
            'task': base.task.task,
            'data_path': base.task.data.data_path,
            'seed': base.seed,
        }
        with errors.renaming(learning_rate='primary_learning_rate'):
            model = primary.train(
                recipe,
                data[settings.FIXED],
                self.directory,
                made_from,
                resume=self.resume,
                overwrite=self.overwrite,
            )
            made_from |= {'population': population, **as_of_old(base.task.faults.flat())}
            verdicts = {
                state: primary.judge(
                    model, state, task, population, self.directory, made_from, resume=self.resume
                )
                for state, task in data.items()
            }
            limits = image_selection.thresholds(verdicts[settings.FIXED])
        trainings = [
            settings.Training(state, data[state], chosen)
            for state in (settings.BUG, settings.FIXED)
            for chosen in settings.select(self.config.selection, verdicts[state], limits)
        ]
        study = page.Study(
            share=base.task.faults.inject_share,
            selection=self.config.selection,
            population=population,
            limits=limits,
            accuracies={state: each.accuracies for state, each in verdicts.items()},
            noise_is_seeded=base.noise_seed is not None,
        )
        return study, trainings, model

    def _train(
        self,
        training: settings.Training,
        config: GanConfig,
        model: primary.Primary,
        heldout: np.ndarray,
    ) -> findings.Finding:
        """Trains one GAN and measures its images."""
        plan = settings.plan(training, self.base)
        with errors.renaming(population='realistic_population', clients_per_round='scale'):
            guarantees = findings.guarantees(
                plan,
                self.config.scale,
                self.config.realistic_population,
                required(self.base.sampling, 'population'),
            )
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
            not_covered=_SELECTED,
        )
        return findings.find(training, trained, model, guarantees)


def write(
    directory: pathlib.Path, study: page.Study, results: list[findings.Finding]
) -> tuple[dict[str, Any], pathlib.Path]:
    """Writes sheets, numbers and page; returns the numbers and the path of the page.

    Raises:
      StorageError: If a file cannot be written.
    """
    for each in results:
        name = f'{each.state}_{each.subpopulation}.png'
        for kind, pixels in (('generated', each.generated), ('real', each.real)):
            contact_sheet.write(directory / 'sheets' / f'{kind}_{name}', pixels[:_SHEET_IMAGES])
    verdict = findings.conclude(results)
    summary = {
        'bug_is_visible': verdict.bug_is_visible,
        'fix_is_visible': verdict.fix_is_visible,
        'conclusion': verdict.text,
        'thresholds': {'poor': study.limits.poor, 'strong': study.limits.strong},
        'population': study.population,
        'results': [each.to_dict() for each in results],
    }
    page_path = directory / 'study.html'
    for path, content in (
        (page_path, page.render(study, results)),
        (directory / 'study.json', json.dumps(summary) + '\n'),
    ):
        _storage.write_atomically(path, functools.partial(_write, content.encode()))
    return summary, page_path


def _write(data: bytes, file: BinaryIO) -> None:
    file.write(data)
