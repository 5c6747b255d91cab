"""A task as a configuration trains it: with secrets planted, text selected, and weights loaded."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dpfl.errors import ArgumentError, renaming
from dpfl.tasks.config import TaskConfig
from dpfl.tasks.federated_task import FederatedTask

if TYPE_CHECKING:
    from dpfl.tasks.text.models import saved_models

_WARM_START = (
    'The model that training began with: it is taken to be public. If it was trained on clients of '
    'this run, its own guarantee must be composed with this one.'
)


def prepared(
    config: TaskConfig,
    task: FederatedTask,
    seed: int,
    language: tuple[str, Sequence[str]] | None,
    population: int,
) -> FederatedTask:
    """The task as it is trained.

    Args:
      config: what is planted and selected, and where training starts.
      task: the task as it was opened.
      seed: of the run.
      language: name of the language model and its vocabulary; None for another model.
      population: number of clients to train on.

    Raises:
      ArgumentError: if the configuration does not fit the task, or a model cannot be read.
    """
    if language is not None:
        from dpfl.tasks.text import planting

        task = planting.plant(config.planting, task, seed, language[1], population)
    return _warm_started(config, _selected(config, task, language), language)


def _selected(
    config: TaskConfig, task: FederatedTask, language: tuple[str, Sequence[str]] | None
) -> FederatedTask:
    """The task with the selection of the configuration, if there is one."""
    if not config.selection.is_given:
        return task
    from dpfl.tasks.text import selected_sentences
    from dpfl.tasks.text.models import row_scores

    scores, path = None, config.selection.selection_model
    if path is not None:
        assert language is not None  # The settings refuse other tasks.
        model = saved_model('selection_model', path, language[1])
        scores = row_scores.of_model(model)
    return selected_sentences.select(config.selection, task, scores)


def saved_model(name: str, path: str, words: Sequence[str]) -> 'saved_models.LanguageModel':
    """The model of a setting, whose vocabulary must be that of the run."""
    from dpfl.tasks.text.models import saved_models

    with renaming(path=name):
        model = saved_models.load(path)
    if model.vocabulary != tuple(words):
        raise ArgumentError(name, path, 'has another vocabulary than the task')
    return model


def _warm_started(
    config: TaskConfig, task: FederatedTask, language: tuple[str, Sequence[str]] | None
) -> FederatedTask:
    """The task, starting from the weights of `warm_start` if the configuration has one."""
    path = config.warm_start
    if path is None:
        return task
    if language is None:
        raise ArgumentError('warm_start', path, 'only works for language models')
    from dpfl.tasks.text.models import architectures

    name, words = language
    model = saved_model('warm_start', path, words)
    if model.name != name:
        raise ArgumentError(
            'warm_start', path, f'holds a model {model.name}, not {name}, the model of the run'
        )
    return dataclasses.replace(
        task,
        model=architectures.with_weights(task.model, model.weights),
        not_covered=(*task.not_covered, _WARM_START),
    )
