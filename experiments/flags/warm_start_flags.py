"""Flag of the model that training starts from. TensorFlow: on demand only."""

import dataclasses
from collections.abc import Sequence

from absl import flags

from dpfl.tasks import federated_task
from experiments.command import command_line

_WARM_START = flags.DEFINE_string(
    'warm_start',
    None,
    'Begin with this language model, a SavedModel of experiments.pretrain or of an earlier run, or '
    "that run's directory, instead of random weights. No guarantee of this run covers it.",
)


def apply(
    task: federated_task.FederatedTask, language: tuple[str, Sequence[str]] | None
) -> federated_task.FederatedTask:
    """The task, with the model of the flag if it is given.

    Args:
      task: with random initial weights.
      language: name of its model and its vocabulary; None if it has no language model.

    Raises:
      UsageError: if there is no such model, or it is not one for the task.
    """
    path = _WARM_START.value
    if path is None:
        return task
    if language is None:
        raise command_line.UsageError(f'--{_WARM_START.name}={path}: is for language models')
    from dpfl.tasks.text.models import architectures, saved_models

    with command_line.refusing_bad_values(path=_WARM_START.name):
        model = saved_models.load(path)
    name, words = language
    if model.name != name:
        raise command_line.UsageError(
            f'--{_WARM_START.name}={path}: holds a model {model.name}, not {name} (--model)'
        )
    if model.vocabulary != tuple(words):
        raise command_line.UsageError(
            f'--{_WARM_START.name}={path}: has another vocabulary than the task'
        )
    return dataclasses.replace(
        task,
        model=architectures.with_weights(task.model, model.weights),
        not_covered=(*task.not_covered, _NOT_COVERED),
    )


_NOT_COVERED = (
    'The model that training began with: it is taken to be public. If it learned from clients of '
    'this run, its own guarantee has to be composed with this one.'
)
