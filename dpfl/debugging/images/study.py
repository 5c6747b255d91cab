"""Runs the study: trains the classifier and the GANs, and writes the results.

Each GAN is trained under a privacy plan of its own, as a separate run, which can be resumed.
"""

import dataclasses
import functools
import pathlib
import sys
import zlib
from typing import Any

import numpy as np

from dpfl import _random, accounting, errors
from dpfl.debugging import page
from dpfl.debugging.differences import Mean
from dpfl.debugging.images import clients, diagnosis, findings, primary, traits
from dpfl.debugging.images import config as config_lib
from dpfl.debugging.images.config import StudyConfig
from dpfl.reporting import html_parts
from dpfl.simulation.training import GanConfig
from dpfl.simulation.training import gan as gan_lib
from dpfl.simulation.training import train as train_run
from dpfl.simulation.training.plan import build_plan
from dpfl.simulation.training.round_config import required
from dpfl.tasks import federated_task
from dpfl.tasks.config import ImageFaultConfig
from dpfl.tasks.images import classifiers, image_clients, image_task

# Number of evaluations of a GAN during its training.
_EVALUATIONS = 5
_SHEET_IMAGES = 72
# Default number of synthetic clients: that of [Augenstein20].
_SYNTHETIC_CLIENTS = 3_400
_SELECTED = (
    'Which clients were selected, and how many: they were selected by the accuracy of a classifier '
    'on their images, compared with thresholds that were computed on them, without noise.',
)


def config_of(base: GanConfig, training: clients.Training) -> GanConfig:
    """Configuration of a GAN: random cohorts of fixed size ([Augenstein20], algorithm 1).

    Raises:
      ArgumentError: If fewer clients were selected than a cohort has, or there is no such plan.
    """
    cohort, selected = base.sampling.clients_per_round, len(training.chosen)
    if selected < cohort:
        raise errors.ArgumentError(
            'clients_per_round',
            cohort,
            f'must be at most {selected}, the clients of {training.name}; otherwise nothing can be '
            'trained there',
        )
    config = base.with_values(
        {
            'population': selected,
            'sampling': 'without_replacement',
            'eval_every': -(-required(base.sampling, 'rounds') // _EVALUATIONS),
            # As in [Augenstein20], table 13; few clients give a large one.
            'delta': 1 / selected,
            'allow_large_delta': True,
        }
    )
    return config.with_values({'accountant': plan_of_gan(config).accountants[0]})


def plan_of_gan(config: GanConfig) -> accounting.PrivacyPlan:
    """The privacy plan of a GAN, from a configuration as of `config_of`."""
    population = required(config.sampling, 'population')
    return build_plan(
        config.privacy, config.sampling, population=lambda: population, dimension=lambda: 0
    )


def train_gan(
    training: clients.Training,
    config: GanConfig,
    directory: pathlib.Path,
    *,
    heldout: np.ndarray,
    made_from: dict[str, Any],
    samples: int,
    resume: bool,
    overwrite: bool,
    not_covered: tuple[str, ...] = (),
) -> np.ndarray:
    """Trains a GAN in a directory, or returns the one that an earlier study left there.

    Args:
      training: Its training data.
      config: How it is trained, from `config_of`.
      directory: Directory of the study. The run is in a folder of it.
      heldout: Real images of held-out clients, for its metrics.
      made_from: The inputs of the selection of the clients, JSON values by name.
      samples: Number of images to generate.
      resume: Continue an earlier run in the directory, or return its result if it is finished.
      overwrite: Replace an earlier run in the directory.
      not_covered: Limits of the guarantee, a sentence each.

    Returns:
      Images that its generator makes, float32 [n, 28, 28], values within [0, 1].

    Raises:
      ArgumentError: If a value is not allowed, or an earlier run in the directory has other values.
      RunError: If a file cannot be read or written, or a run cannot be continued.
    """
    path = directory / training.name
    print(
        f'{path}: {config.sampling.rounds} rounds, {config.sampling.population} clients',
        file=sys.stderr,
    )
    facts = image_task.facts_about(training.data)
    facts['population'] = len(training.chosen)
    facts['not_covered'] = (*not_covered, *facts.get('not_covered', ()))
    examples = image_clients.named(heldout, np.zeros(len(heldout), np.int32))
    task = federated_task.FederatedTask(
        model=None,
        client_batches=training.client_batches,
        heldout=lambda clients, batch_size: federated_task.dataset(examples, batch_size),
        made_from={**made_from, 'trained_on': training.name},
        **facts,
    )
    result = train_run(config, path, task=task, resume=resume, overwrite=overwrite)
    return gan_lib.sample(config, result.weights, samples)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Study:
    """A study.

    Attributes:
      config: The comparison and the classifier.
      base: How the GANs are trained, and on how many clients.
      directory: Directory of the study.
      resume: Keep finished runs, and continue a run that was interrupted.
      overwrite: Replace an earlier study in the directory.
    """

    config: StudyConfig
    base: GanConfig
    directory: pathlib.Path
    resume: bool = False
    overwrite: bool = False

    def run(self) -> findings.Found:
        """Trains the GANs that are not trained yet, and writes sheets of generated images.

        Raises:
          ArgumentError: If a value is not allowed, or too few clients are selected.
          RunError: If a file cannot be read or written, or a run cannot be continued.
        """
        data, base, population = self._data, self._base, self._population
        clean = list(data.values())[-1]  # Held-out clients have no faults in any state.
        heldout, _ = clean.heldout_examples(base.evaluation.eval_clients)
        public = clients.PublicImages(*clean.heldout_examples(self.config.primary.primary_clients))
        is_new = not (self.resume or self.overwrite)
        page.check_directory(self.directory, (primary.FOLDER, page.NUMBERS) if is_new else ())
        model, made_from = primary.opened(
            self.config.primary, base, public, self.directory, resume=self.resume
        )
        made_from |= {'population': population, **base.task.faults.flat()}
        verdicts = {
            state: primary.judge(
                model, state, task, population, self.directory, made_from, resume=self.resume
            )
            for state, task in data.items()
        }
        # Of the data without faults, if they are known.
        limits = clients.thresholds(list(verdicts.values())[-1])
        trainings = [
            clients.Training(state, data[state], chosen)
            for state in data
            for chosen in clients.select(self.config.selection, verdicts[state], limits)
        ]
        accuracies = None
        if not self._has_fix:
            everyone = clients.Subpopulation(clients.EVERYONE, np.arange(population))
            trainings = [
                clients.Training(clients.AS_IS, public, public.half),
                clients.Training(clients.AS_IS, data[clients.AS_IS], everyone),
                *trainings,
            ]
            known = verdicts[clients.AS_IS].accuracies
            right = model(public.pixels)[0].argmax(axis=1) == public.labels
            accuracies = (Mean.of(known[~np.isnan(known)]), Mean.of(right))
        # Checks all configurations and guarantees before the long part begins.
        configs = [self._config_of(training) for training in trainings]
        guarantees = [
            () if training.data is public else self._guarantees(config)
            for training, config in zip(trainings, configs, strict=True)
        ]
        results = [
            self._train(*values, model, heldout, public)
            for values in zip(trainings, configs, guarantees, strict=True)
        ]
        for finding in results:
            name = f'generated_{finding.state}_{finding.subpopulation}.png'
            html_parts.write(self.directory / 'sheets' / name, finding.generated[:_SHEET_IMAGES])
        shown = public.sample()
        return findings.Found(
            results=results,
            diagnoses=findings.diagnoses(results, accuracies, public.effects(model)),
            base=base,
            selection=self.config.selection,
            limits=limits,
            accuracies={state: of_state.accuracies for state, of_state in verdicts.items()},
            public=shown,
            public_traits=traits.measure(shown, model),
        )

    @property
    def _has_fix(self) -> bool:
        return self.config.compare == config_lib.FIX

    @functools.cached_property
    def _data(self) -> dict[str, Any]:
        """The clients by state: as they are, or with the faults and without."""
        task, seed = self.base.task, self.base.seed
        if self._has_fix and not task.faults.inject:
            raise errors.ArgumentError('inject', '', 'must name a fault for compare=fix')
        faults = (
            {clients.BUG: task.faults, clients.FIXED: ImageFaultConfig()}
            if self._has_fix
            else {clients.AS_IS: task.faults}
        )
        return {
            state: image_task.open_clients(task.task, task.data, injected, seed)
            for state, injected in faults.items()
        }

    @functools.cached_property
    def _population(self) -> int:
        """Number of clients: all of a file, by default."""
        available = getattr(next(iter(self._data.values())), 'population', None)
        given = self.base.sampling.population
        if available is None and given is None:
            given = _SYNTHETIC_CLIENTS
        return federated_task.population(given, available)

    @property
    def _base(self) -> GanConfig:
        """The configuration with the number of clients."""
        return self.base.with_values({'population': self._population})

    def _config_of(self, training: clients.Training) -> GanConfig:
        """Configuration of a GAN of the study, with seeds of its own.

        Two generators with the same noise, or the same sampled cohorts, have no joint guarantee.
        """
        name, own = zlib.crc32(training.name.encode()), {}
        for setting, seed in (('seed', self.base.seed), ('noise_seed', self.base.noise_seed)):
            if seed is not None:
                rng = _random.generator('debug.' + setting, _random.check_seed(setting, seed), name)
                own[setting] = int(rng.integers(2**53))
        return config_of(self._base.with_values(own), training)

    def _guarantees(self, config: GanConfig) -> tuple[findings.Guarantee, ...]:
        """Guarantees of a GAN's run and of the larger one."""
        with errors.renaming(population='realistic_population', clients_per_round='scale'):
            return findings.guarantees(
                plan_of_gan(config),
                self.config.scale,
                self.config.realistic_population,
                self._population,
            )

    def _train(
        self,
        training: clients.Training,
        config: GanConfig,
        guarantees: tuple[findings.Guarantee, ...],
        model: classifiers.Classifier,
        heldout: np.ndarray,
        public: clients.PublicImages,
    ) -> findings.Finding:
        """Trains one GAN and measures its images."""
        is_selected = bool(guarantees) and training.chosen.name != clients.EVERYONE
        pixels = train_gan(
            training,
            config,
            self.directory,
            heldout=heldout,
            made_from={
                **self.config.primary.flat(),
                'selection': self.config.selection,
                'selected_from': self._population,
            },
            samples=self.config.samples,
            resume=self.resume,
            overwrite=self.overwrite,
            not_covered=_SELECTED if is_selected else (),
        )
        return findings.Finding(
            of_what=clients.IN_WORDS[training.chosen.name],
            traits=traits.measure(pixels, model),
            learned=diagnosis.measure_learned(pixels, public.sample(), model),
            state=training.state,
            subpopulation=training.chosen.name,
            clients=len(training.chosen),
            generated=pixels,
            guarantees=guarantees,
        )
