"""Trains one GAN of the study as a separate run, which can be resumed."""

import dataclasses
import pathlib
import sys
from typing import Any

import numpy as np

from dpfl import accounting
from dpfl.debugging.images import settings
from dpfl.simulation.training import GanConfig
from dpfl.simulation.training import gan as gan_lib
from dpfl.simulation.training import train as train_run
from dpfl.tasks import federated_task
from dpfl.tasks.images import image_batches, image_task

_EVALUATIONS = 5


@dataclasses.dataclass(frozen=True)
class Trained:
    """A generator and its guarantee.

    Attributes:
      pixels: Images that it generated, float32 [n, 28, 28], values within [0, 1].
      report: Privacy report of its run.
      seconds: Duration of its rounds.
    """

    pixels: np.ndarray
    report: accounting.PrivacyReport
    seconds: float


def config_of(base: GanConfig, training: settings.Training) -> GanConfig:
    """Configuration of a GAN: random cohorts of fixed size ([Augenstein20], algorithm 1).

    Raises:
      ArgumentError: If fewer clients were selected than a cohort has, or there is no such plan.
    """
    plan = settings.plan(training, base)
    return base.with_values(
        {
            'population': plan.population,
            'sampling': plan.sampling_name,
            # As in [Augenstein20], table 13; few clients give a large one.
            'delta': 1 / len(training.chosen),
            'allow_large_delta': True,
            'accountant': plan.accountants[0],
            'eval_every': -(-plan.participation.rounds // _EVALUATIONS),
        }
    )


def train(
    training: settings.Training,
    config: GanConfig,
    directory: pathlib.Path,
    *,
    heldout: np.ndarray,
    made_from: dict[str, Any],
    samples: int,
    resume: bool,
    overwrite: bool,
    not_covered: tuple[str, ...] = (),
) -> Trained:
    """Trains a GAN in a directory, or returns the one that an earlier study left there.

    Args:
      training: What it is trained on.
      config: How it is trained, from `config_of`.
      directory: Directory of the study. The run is in a folder of it.
      heldout: Real images of held-out clients, for its metrics.
      made_from: What the selection of the clients depends on, JSON values by name.
      samples: Number of images to generate.
      resume: Continue an earlier run in the directory, or return its result if it is finished.
      overwrite: Replace an earlier run in the directory.
      not_covered: What the guarantee does not cover, a sentence each.

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
    examples = image_batches.named(heldout, np.zeros(len(heldout), np.int32))
    task = federated_task.FederatedTask(
        model=None,
        client_batches=training.client_batches,
        heldout=lambda clients, batch_size: federated_task.dataset(examples, batch_size),
        made_from={**made_from, 'trained_on': training.name},
        **facts,
    )
    result = train_run(config, path, task=task, resume=resume, overwrite=overwrite)
    pixels = gan_lib.sample(config, result.weights, samples)
    return Trained(pixels, result.report, float(result.metrics['seconds'].sum()))
