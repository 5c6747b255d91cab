"""Trains one model of the study as a run of its own, which can be resumed."""

import pathlib
from typing import Any

from dpfl.simulation.training import TrainConfig, TrainResult, run_model, train
from dpfl.tasks.federated_task import FederatedTask
from experiments.debugging.text import settings


def train_model(
    config: TrainConfig,
    task: settings.Task,
    directory: pathlib.Path,
    *,
    population: int,
    not_covered: tuple[str, ...],
    made_from: dict[str, Any],
    resume: bool,
    overwrite: bool,
) -> TrainResult:
    """Trains a model in a directory, or takes the one that an earlier study has left there.

    Args:
      config: how it is trained, under which privacy.
      task: what it is trained on.
      directory: of the run.
      population: number of clients to train on.
      not_covered: what of the data the guarantee says nothing about, a sentence each.
      made_from: what the task was made from, by name, in values that JSON has.
      resume: continue an earlier run there, or take its result if it is finished.
      overwrite: replace an earlier run there.

    Raises:
      ArgumentError: if a value is refused, or an earlier run there was made from others.
      RunError: if something cannot be read, written or continued.
    """
    from dpfl.simulation import outputs
    from dpfl.tasks.text import sentence_batches
    from dpfl.tasks.text.models import architectures

    def client_batches(
        client: int, batch_size: int, epochs: int, max_batches: int | None
    ) -> list[Any]:
        return sentence_batches.batches(task.rows(client), batch_size, epochs, max_batches)

    federated = FederatedTask(
        model=architectures.build(task.architecture, task.num_tokens, task.length, config.seed),
        population=population,
        client_batches=client_batches,
        heldout=lambda clients, batch_size: sentence_batches.dataset(task.heldout, batch_size),
        not_covered=not_covered,
        made_from=made_from,
    )
    result = train(config, directory, task=federated, resume=resume, overwrite=overwrite)
    # Always: it is not known whether a SavedModel that is there is of this run.
    run_model.save(directory, task.model, task.words)
    outputs.RunDirectory(directory, resume=True).write_digests()
    return result
