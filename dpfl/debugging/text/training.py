"""Trains one generator of the study as a separate run, which can be resumed."""

import functools
import pathlib
from typing import Any

from dpfl.debugging.text import settings
from dpfl.simulation.training import TrainConfig, TrainResult, run_model, train
from dpfl.tasks import federated_task
from dpfl.tasks import selection as selection_lib
from dpfl.tasks.selection_config import SelectionConfig


def train_model(
    config: TrainConfig,
    task: settings.Task,
    directory: pathlib.Path,
    *,
    population: int,
    not_covered: tuple[str, ...],
    made_from: dict[str, Any],
    selection: SelectionConfig,
    scores: selection_lib.Scores | None,
    resume: bool,
    overwrite: bool,
) -> TrainResult:
    """Trains a model in a directory, or returns the one that an earlier study left there.

    Args:
      config: How the model is trained, and under which privacy plan.
      task: What it is trained on.
      directory: Directory of the run.
      population: Number of clients to train on.
      not_covered: Properties of the data that the guarantee does not cover, a sentence each.
      selection: Sentences or clients to learn from.
      scores: The model of their criteria; None for none.
      made_from: What the task depends on, JSON values by name.
      resume: Continue an earlier run in the directory, or return its result if it is finished.
      overwrite: Replace an earlier run in the directory.

    Raises:
      ArgumentError: If a value is not allowed, or an earlier run in the directory has other values.
      RunError: If a file cannot be read or written, or a run cannot be continued.
    """
    from dpfl.simulation import run_directory
    from dpfl.tasks.text import word_clients
    from dpfl.tasks.text.models import architectures

    def examples(client: int, limit: int | None) -> federated_task.Examples:
        return word_clients.examples(task.rows(client))

    heldout = word_clients.examples(task.heldout)
    federated = federated_task.FederatedTask(
        model=architectures.build(task.architecture, task.num_tokens, task.length, config.seed),
        population=population,
        client_batches=functools.partial(federated_task.client_batches, examples),
        heldout=lambda clients, batch_size: federated_task.dataset(heldout, batch_size),
        not_covered=not_covered,
        made_from=made_from,
    )
    federated = selection_lib.select(selection, federated, scores)
    result = train(config, directory, task=federated, resume=resume, overwrite=overwrite)
    # Always, since an existing SavedModel may belong to another run.
    run_model.save(directory, task.model, task.words)
    run_directory.RunDirectory(directory, resume=True).write_digests()
    return result
