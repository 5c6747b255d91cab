"""Trains one GAN of the study under its privacy plan, as a separate run, which can be resumed."""

import dataclasses
import pathlib
import sys
from typing import Any

import numpy as np

from dpfl import Participation, accounting, errors, mechanisms
from dpfl.debugging.images import clients
from dpfl.simulation.training import GanConfig
from dpfl.simulation.training import gan as gan_lib
from dpfl.simulation.training import train as train_run
from dpfl.simulation.training.round_config import required
from dpfl.tasks import federated_task
from dpfl.tasks.images import image_clients, image_task

_EVALUATIONS = 5


@dataclasses.dataclass(frozen=True)
class Trained:
    """Images of a generator.

    Attributes:
      pixels: Images that it generated, float32 [n, 28, 28], values within [0, 1].
      seconds: Duration of its rounds.
    """

    pixels: np.ndarray
    seconds: float


def plan(training: clients.Training, config: GanConfig) -> accounting.PrivacyPlan:
    """The privacy plan of a GAN: random cohorts of fixed size and independent noise.

    Source: [Augenstein20], algorithm 1.

    Raises:
      ArgumentError: If a value is out of range, or fewer clients were selected than a cohort has.
    """
    cohort = config.sampling.clients_per_round
    if len(training.chosen) < cohort:
        raise errors.ArgumentError(
            'clients_per_round',
            cohort,
            f'must be at most {len(training.chosen)}, the clients of {training.name}; otherwise '
            'nothing can be trained there',
        )
    rounds = required(config.sampling, 'rounds')
    return accounting.PrivacyPlan(
        mechanism=mechanisms.Identity(rounds),
        participation=Participation(rounds=rounds),
        clip_norm=config.privacy.clip_norm,
        noise_multiplier=required(config.privacy, 'noise_multiplier'),
        clients_per_round=cohort,
        sampling=accounting.WithoutReplacement(population=len(training.chosen)),
        adjacency=config.privacy.adjacency,
    )


def config_of(base: GanConfig, training: clients.Training) -> GanConfig:
    """Configuration of a GAN: random cohorts of fixed size ([Augenstein20], algorithm 1).

    Raises:
      ArgumentError: If fewer clients were selected than a cohort has, or there is no such plan.
    """
    made = plan(training, base)
    return base.with_values(
        {
            'population': made.population,
            'sampling': made.sampling_name,
            # As in [Augenstein20], table 13; few clients give a large one.
            'delta': 1 / len(training.chosen),
            'allow_large_delta': True,
            'accountant': made.accountants[0],
            'eval_every': -(-made.participation.rounds // _EVALUATIONS),
        }
    )


def train(
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
) -> Trained:
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
    pixels = gan_lib.sample(config, result.weights, samples)
    return Trained(pixels, float(result.metrics['seconds'].sum()))
