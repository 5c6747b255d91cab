"""A task as a configuration trains it: with secrets planted, text selected, and weights loaded."""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from dpfl.errors import ArgumentError, renaming
from dpfl.tasks.before_training import THRESHOLDS, BeforeTraining
from dpfl.tasks.config import TaskConfig
from dpfl.tasks.federated_task import FederatedTask
from dpfl.tasks.private_quantiles import CANDIDATES
from dpfl.tasks.selection_config import SelectionConfig

if TYPE_CHECKING:
    from dpfl.tasks.text.models import saved_models

# Of the random sentence that counts for a client.
_VALUE_SEED = 0


def prepared(
    config: TaskConfig,
    task: FederatedTask,
    seed: int,
    language: tuple[str, Sequence[str]] | None,
    population: int,
    before: BeforeTraining,
) -> FederatedTask:
    """The task as it is trained.

    Args:
      config: what is planted and selected, and where training starts.
      task: the task as it was opened.
      seed: of the run.
      language: name of the language model and its vocabulary; None for another model.
      population: number of clients to train on.
      before: how quantiles of the selection are found.

    Raises:
      ArgumentError: if the configuration does not fit the task, or a model cannot be read.
    """
    if language is not None:
        from dpfl.tasks.text import planting

        task = planting.plant(config.planting, task, seed, language[1], population)
    selected = _selected(config.selection, task, language, population, before)
    return _warm_started(config, selected, language)


def _selected(
    config: SelectionConfig,
    task: FederatedTask,
    language: tuple[str, Sequence[str]] | None,
    population: int,
    before: BeforeTraining,
) -> FederatedTask:
    """The task with the selection of the configuration, if there is one."""
    if not config.is_given:
        return task
    from dpfl.tasks.text import selected_sentences
    from dpfl.tasks.text.models import row_scores

    scores, path = None, config.selection_model
    if path is not None:
        assert language is not None  # The settings refuse other tasks.
        model = saved_model('selection_model', path, language[1])
        scores = row_scores.of_model(model)
        task = _with_fingerprint(task, 'selection_model', model.digest())
    thresholds: Mapping[str, float] = {}
    if before.quantiles is not None:
        values = selected_sentences.values_of_clients(config, task, scores, population, _VALUE_SEED)
        candidates = {name: CANDIDATES[each.measure] for name, each in config.quantiles.items()}
        thresholds = before.find(
            THRESHOLDS,
            [np.asarray(values[name]) for name in sorted(values)],
            functools.partial(before.quantiles.find, values, candidates),
        )
        digest = hashlib.sha256(json.dumps(thresholds, sort_keys=True).encode()).hexdigest()
        task = _with_fingerprint(task, THRESHOLDS, digest)
        task = dataclasses.replace(task, found={**task.found, THRESHOLDS: dict(thresholds)})
    return selected_sentences.select(config, task, scores, thresholds)


def _with_fingerprint(task: FederatedTask, role: str, digest: str) -> FederatedTask:
    return dataclasses.replace(task, fingerprints={**task.fingerprints, role: digest})


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
    task = _with_fingerprint(task, 'warm_start', model.digest())
    return dataclasses.replace(
        task,
        model=architectures.with_weights(task.model, model.weights),
    )
