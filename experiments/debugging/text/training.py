"""Trains one model of the study as a run of its own, which can be resumed."""

import dataclasses
import pathlib
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from dpfl import _storage, accounting
from dpfl.accounting.records import archive
from dpfl.simulation import checkpoint
from experiments import run_model
from experiments.debugging.text import settings


@dataclasses.dataclass(frozen=True)
class Hyperparameters:
    """How the models are trained, but for what their privacy plans say.

    Attributes:
      client_learning_rate, client_batch_size, client_max_batches: of the clients' SGD.
      server_learning_rate, server_momentum: of the server's SGD.
      eval_every: rounds between two evaluations.
      num_shards: parts of a cohort that are trained at a time.
      checkpoint_every, keep_checkpoints: as in `program.Experiment`.
      seed: of the initial model.
      noise_seed: None for noise from the operating system.
    """

    client_learning_rate: float
    client_batch_size: int
    client_max_batches: int | None
    server_learning_rate: float
    server_momentum: float
    eval_every: int
    num_shards: int
    checkpoint_every: int
    keep_checkpoints: int
    seed: int
    noise_seed: int | None


@dataclasses.dataclass(frozen=True)
class Trained:
    """A model and its guarantee.

    Attributes:
      weights: trainable weights, in the order of the architecture.
      report: the privacy report of its run.
      metrics: last values of the metrics of its run.
    """

    weights: tuple[np.ndarray, ...]
    report: accounting.PrivacyReport
    metrics: Mapping[str, float]


def train(
    task: settings.Task,
    plan: accounting.PrivacyPlan,
    sampler,
    delta: float,
    accountant: str,
    parameters: Hyperparameters,
    directory: pathlib.Path,
    configuration: Mapping[str, Any],
    *,
    not_covered: tuple[str, ...],
    resume: bool,
    overwrite: bool,
) -> Trained:
    """Trains a model in a directory, or takes the one that an earlier run has left there.

    Args:
      task: what it is trained on.
      plan: its privacy plan.
      sampler: the cohorts.
      delta: at which epsilon is reported.
      accountant: by which.
      parameters: all else.
      directory: of the run.
      configuration: what the run was made from.
      not_covered: what of the data the guarantee says nothing about.
      resume: continue an earlier run there, or take its result if it is finished.
      overwrite: replace an earlier run there.

    Raises:
      ValueError: if an argument is refused, or there is an earlier run with another configuration,
        or one that shall be neither resumed nor replaced.
      files.RunError: if something cannot be read, written or continued.
    """
    from dpfl.simulation import outputs, program

    start = _start(directory, configuration, plan) if resume else None
    if (
        start is not None
        and start.rounds == plan.participation.rounds
        and archive.has_ended(directory)
    ):
        print(f'{directory}: is finished', file=sys.stderr)
        metrics = {name: value for row in start.rows for name, value in row.items()}
        return _trained(task, directory, _report(directory), metrics)
    experiment = _experiment(
        task,
        plan,
        sampler,
        parameters,
        delta=delta,
        accountant=accountant,
        configuration=configuration,
        not_covered=not_covered,
    )
    print(f'{directory}: trains on {plan.participation.rounds} rounds', file=sys.stderr)
    run = outputs.RunDirectory(directory, overwrite=overwrite, resume=resume)
    result = program.run_training(experiment, run, start)
    return _trained(task, directory, result.report, result.metrics)


def _trained(task, directory, report, metrics) -> Trained:
    # Always: it is not known whether a SavedModel that is there is of this run.
    from dpfl.simulation import outputs

    run_model.save(directory, task.model, task.words)
    outputs.RunDirectory(directory, resume=True).write_digests()
    return Trained(run_model.weights(directory), report, metrics)


def _experiment(task, plan, sampler, parameters, **others):
    import tensorflow_federated as tff

    from dpfl import learning
    from dpfl.simulation import program
    from dpfl.tasks.text import sentence_batches
    from dpfl.tasks.text.models import architectures

    sgd = tff.learning.optimizers.build_sgdm
    model = architectures.build(task.architecture, task.num_tokens, task.length, parameters.seed)
    process = learning.build_dp_fedavg(
        model,
        plan,
        client_optimizer=sgd(parameters.client_learning_rate),
        server_optimizer=sgd(parameters.server_learning_rate, momentum=parameters.server_momentum),
        noise_seed=parameters.noise_seed,
        train_metrics=False,
    )
    return program.Experiment(
        process=process,
        plan=plan,
        sampler=sampler,
        client_data=lambda client: task.client_batches(
            int(client), parameters.client_batch_size, parameters.client_max_batches
        ),
        evaluate=learning.build_evaluation(
            model, sentence_batches.dataset(task.heldout, batch_size=256)
        ),
        eval_every=parameters.eval_every,
        noise_is_seeded=parameters.noise_seed is not None,
        num_shards=parameters.num_shards,
        checkpoint_every=parameters.checkpoint_every,
        keep_checkpoints=parameters.keep_checkpoints,
        **others,
    )


def _start(directory: pathlib.Path, configuration, plan) -> checkpoint.Checkpoint | None:
    found = checkpoint.latest(
        directory / 'checkpoints', lambda reason: print(f'refused: {reason}', file=sys.stderr)
    )
    if found is not None:
        found.require_run(configuration, plan)
    return found


def _report(directory: pathlib.Path) -> accounting.PrivacyReport:
    path = directory / 'privacy_report.json'
    with _storage.naming(path):
        return accounting.PrivacyReport.from_json(path.read_text())
