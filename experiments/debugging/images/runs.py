"""Trains one GAN of the study as a run of its own, which can be resumed."""

import dataclasses
import pathlib
import sys
from typing import Any

import numpy as np

from dpfl import accounting
from dpfl.simulation.training import GanClients, GanConfig, train_gan
from dpfl.simulation.training import gan as gan_lib
from experiments.debugging.images import settings

_EVALUATIONS = 5


@dataclasses.dataclass(frozen=True)
class Trained:
    """A generator and its guarantee.

    Attributes:
      pixels: images that it makes, float32 [n, 28, 28] within [0, 1].
      report: the privacy report of its run.
      seconds: that its rounds took.
    """

    pixels: np.ndarray
    report: accounting.PrivacyReport
    seconds: float


def config_of(base: GanConfig, training: settings.Training) -> GanConfig:
    """How a GAN of the study is trained: cohorts of fixed size at random (algorithm 1).

    Raises:
      ArgumentError: if fewer clients were selected than a cohort has, or there is no such plan.
    """
    plan = settings.plan(training, base)
    return base.with_values(
        {
            'population': plan.population,
            'sampling': plan.sampling,
            'delta': 1 / len(training.chosen),
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
    """Trains a GAN in a directory, or takes the one that an earlier study has left there.

    Args:
      training: what it is trained on.
      config: how, from `config_of`.
      directory: of the study; the run is in a folder of it.
      heldout: real images of clients that are not trained on, for its metrics.
      made_from: what the clients were selected by, by name, in values that JSON has.
      samples: number of images that are generated.
      resume: continue an earlier run there, or take its result if it is finished.
      overwrite: replace an earlier run there.
      not_covered: what the guarantee says nothing about, a sentence each.

    Raises:
      ArgumentError: if a value is refused, or an earlier run there was made from others.
      RunError: if something cannot be read, written or continued.
    """
    path = directory / training.name
    print(
        f'{path}: {config.sampling.rounds} rounds, {config.sampling.population} clients',
        file=sys.stderr,
    )
    clients = GanClients(
        client_batches=training.client_batches,
        heldout=heldout,
        population=len(training.chosen),
        not_covered=not_covered,
        made_from={**made_from, 'trained_on': training.name},
    )
    result = train_gan(config, path, clients=clients, resume=resume, overwrite=overwrite)
    pixels = gan_lib.sample(config, result.weights, samples)
    return Trained(pixels, result.report, float(result.metrics['seconds'].sum()))
