"""Trains one GAN of the study as a run of its own, which can be resumed."""

import dataclasses
import pathlib
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from dpfl import _storage, accounting
from dpfl.accounting.records import archive
from dpfl.simulation import checkpoint
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


def train(
    training: settings.Training,
    plan: accounting.PrivacyPlan,
    gan,
    directory: pathlib.Path,
    configuration: Mapping[str, Any],
    *,
    heldout: np.ndarray,
    samples: int,
    resume: bool,
    overwrite: bool,
    not_covered: tuple[str, ...] = (),
    **others,
) -> Trained:
    """Trains a GAN in a directory, or takes the one that an earlier study has left there.

    Args:
      training: what it is trained on.
      plan: its privacy plan.
      gan: how, a `gan_run.Training`.
      directory: of the study; the run is in a folder of it.
      configuration: what the run was made from.
      heldout: real images of clients that are not trained on, for its metrics.
      samples: number of images that are generated.
      resume: continue an earlier run there, or take its result if it is finished.
      overwrite: replace an earlier run there.
      not_covered: what the guarantee says nothing about, a sentence each.
      **others: fields of the experiment.

    Raises:
      ValueError: if an argument is refused, or there is an earlier run with another configuration,
        or one that shall be neither resumed nor replaced.
      files.RunError: if something cannot be read, written or continued.
    """
    from dpfl.simulation import outputs, program, sampling
    from experiments import gan_run, run_model

    path = directory / training.name
    rounds = plan.participation.rounds
    start = _start(path, configuration, plan) if resume else None
    if start is not None and start.rounds == rounds and archive.has_ended(path):
        print(f'{path}: is finished', file=sys.stderr)
        report, rows = _report(path), start.rows
    else:
        experiment = gan_run.experiment(
            gan,
            plan,
            client_batches=training.client_batches,
            heldout=heldout,
            sheets=path / 'plots',
            sampler=sampling.FixedSizeSampler(
                rounds, plan.population, plan.clients_per_round, gan.seed
            ),
            delta=1 / plan.population,
            accountant=plan.accountants[0],
            eval_every=-(-rounds // _EVALUATIONS),
            configuration=configuration,
            not_covered=not_covered,
            **others,
        )
        print(f'{path}: {rounds} rounds, {plan.population} clients', file=sys.stderr)
        run = outputs.RunDirectory(path, overwrite=overwrite, resume=resume)
        report, rows = program.run_training(experiment, run, start).report, _rows(path)
    pixels = gan_run.sample(gan, run_model.weights(path), samples)
    return Trained(pixels, report, float(sum(row['seconds'] for row in rows)))


def _start(directory: pathlib.Path, configuration, plan) -> checkpoint.Checkpoint | None:
    found = checkpoint.latest(
        directory / 'checkpoints', lambda reason: print(f'refused: {reason}', file=sys.stderr)
    )
    if found is not None:
        found.require_run(configuration, plan)
    return found


def _rows(directory: pathlib.Path):
    found = checkpoint.latest(directory / 'checkpoints', lambda reason: None)
    return found.rows


def _report(directory: pathlib.Path) -> accounting.PrivacyReport:
    path = directory / 'privacy_report.json'
    with _storage.naming(path):
        return accounting.PrivacyReport.from_json(path.read_text())
