"""A task as a configuration trains it.

Releases before training are drawn, text selected and weights loaded.
"""

import dataclasses
import functools
import hashlib
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dpfl.accounting import ReleaseBefore
from dpfl.accounting.records import archive
from dpfl.accounting.records.journal import Drew
from dpfl.errors import ArgumentError, renaming
from dpfl.simulation.training.config import TrainConfig
from dpfl.tasks.before_training import (
    CANDIDATES,
    BeforeTraining,
    Draw,
    QuantileRelease,
    WordRelease,
)
from dpfl.tasks.config import (
    PRIVATE_VOCABULARY,
    REAL_TASKS,
    WORDS,
    TaskConfig,
    TextConfig,
)
from dpfl.tasks.federated_task import FederatedTask
from dpfl.tasks.selection import THRESHOLDS, SelectionConfig

if TYPE_CHECKING:
    from dpfl.tasks.text.models import saved_models
# Of the random sentence that counts for a client.
_VALUE_SEED = 0


def of_run(
    config: TrainConfig, draw: Draw | None = None, kept: Mapping[str, Any] | None = None
) -> BeforeTraining:
    """How a run makes its releases before training.

    Args:
      config: of the run.
      draw: makes a draw and records it; None where nothing may be released.
      kept: the draws of a finished run, from `recorded`.

    Raises:
      ArgumentError: if settings contradict each other.
    """
    delta, adjacency = config.privacy.delta, _adjacency(config)
    shared = {'delta': delta, 'adjacency': adjacency, 'seed': config.seed}
    settings = {
        draw: shared
        | {
            field.name: value
            for field, value in config.task.table()
            if draw in field.metadata['draws']
        }
        for draw in (WORDS, THRESHOLDS)
    }
    return BeforeTraining(
        words=_words(config),
        quantiles=_quantile_release(config.task.selection, delta, adjacency),
        noise_seed=config.noise_seed,
        settings=settings,
        draw=draw,
        kept=kept or {},
    )


def _quantile_release(
    selection: SelectionConfig, delta: float, adjacency: str
) -> QuantileRelease | None:
    """How the quantiles of a selection are found; None without any.

    Args:
      selection: the criteria.
      delta: that of the run.
      adjacency: that of the run.
    """
    shares = {
        name: criterion.quantile
        for name, criterion in selection.quantiles.items()
        if criterion.quantile is not None
    }
    if not shares:
        return None
    assert selection.selection_epsilon is not None  # As checked by the settings.
    with renaming(epsilon='selection_epsilon'):
        return QuantileRelease.of_guarantee(selection.selection_epsilon, delta, shares, adjacency)


def word_release(text: TextConfig, delta: float, adjacency: str) -> WordRelease | None:
    """How the words of a private vocabulary are found; None for another vocabulary.

    Args:
      text: the settings of the vocabulary.
      delta: that of the run.
      adjacency: that of the run.
    """
    if text.vocabulary != PRIVATE_VOCABULARY:
        return None
    assert text.vocabulary_epsilon is not None  # As checked by the settings.
    names = {
        'epsilon': 'vocabulary_epsilon',
        'words_per_client': 'vocabulary_words_per_client',
        'rounds': 'vocabulary_rounds',
        'choice': 'vocabulary_choice',
    }
    with renaming(**names):
        return WordRelease.of_guarantee(
            text.vocabulary_epsilon,
            text.vocabulary_delta or delta,
            words_per_client=text.vocabulary_words_per_client,
            rounds=text.vocabulary_rounds,
            choice=text.vocabulary_choice,
            adjacency=adjacency,
        )


def remarks(draws: Mapping[str, Any]) -> tuple[str, ...]:
    """The report's sentences about the draws before training."""
    thresholds = draws.get(THRESHOLDS)
    if not thresholds:
        return ()
    known = ', '.join(f'{name.partition(":")[2]}: {at:.6g}' for name, at in thresholds.items())
    return (f'Quantiles that were estimated privately before training: {known}.',)


def recorded(directory: pathlib.Path) -> dict[str, Any]:
    """Results of a run's draws before training, by name; empty without a journal.

    Raises:
      ValueError: if the journal is damaged.
    """
    journal = archive.read_journal(directory)
    return {} if journal is None else results(journal.state.drawn)


def results(drawn: Mapping[str, Drew]) -> dict[str, Any]:
    """The results of draws, by name; without those that are not known."""
    return {what: draw.result for what, draw in drawn.items() if draw.result is not None}


def counted(
    releases: Sequence[ReleaseBefore], drawn: Mapping[str, Drew]
) -> tuple[ReleaseBefore, ...]:
    """The releases that a plan counts: those of its settings, and all others that were drawn.

    Args:
      releases: of the settings.
      drawn: the draws of the journal, by name.
    """
    made = [ReleaseBefore.from_dict(dict(draw.intent['release'])) for draw in drawn.values()]
    return (*releases, *(release for release in made if release not in releases))


def _words(config: TrainConfig) -> WordRelease | None:
    text, delta = config.task.text, config.privacy.delta
    words = word_release(text, delta, _adjacency(config))
    if words is None:
        return None
    if config.task.task not in REAL_TASKS:
        tasks = ' or '.join(REAL_TASKS)
        raise ArgumentError('vocabulary', text.vocabulary, f'needs task={tasks}')
    for name, value in (
        ('fork_from', config.course.fork_from),
        ('warm_start', config.task.warm_start),
        ('selection_model', config.task.selection.selection_model),
    ):
        if value is not None:
            raise ArgumentError(
                name,
                value,
                'needs a vocabulary that is known before the run, not vocabulary=private',
            )
    if not words.delta < delta:
        raise ArgumentError(
            'vocabulary_delta', text.vocabulary_delta, f'must be below 2 * delta = {2 * delta:g}'
        )
    return words


def _adjacency(config: TrainConfig) -> str:
    return 'zero_out' if config.privacy.adjacency == 'zero_out' else 'replace_one'


def prepared(
    config: TaskConfig,
    task: FederatedTask,
    language: tuple[str, Sequence[str] | None] | None,
    population: int,
    before: BeforeTraining,
) -> FederatedTask:
    """The task as it is trained.

    Args:
      config: the settings of the selection, and of the first weights.
      task: the task as it was opened.
      language: name of the language model and its vocabulary; None for another model.
      population: number of clients to train on.
      before: how quantiles of the selection are found.

    Raises:
      ArgumentError: if the configuration does not fit the task, or a model cannot be read.
    """
    selected = _selected(config.selection, task, language, population, before)
    return _warm_started(config, selected, language)


def _selected(
    config: SelectionConfig,
    task: FederatedTask,
    language: tuple[str, Sequence[str] | None] | None,
    population: int,
    before: BeforeTraining,
) -> FederatedTask:
    """The task with the selection of the configuration, if there is one."""
    if not config.is_given:
        return task
    from dpfl.tasks import selection
    from dpfl.tasks.text.models import saved_models

    scores, path = None, config.selection_model
    if path is not None:
        assert language is not None  # The settings refuse other tasks.
        model = saved_model('selection_model', path, language[1])
        scores = saved_models.of_model(model)
        task = _with_fingerprint(task, 'selection_model', model.digest())
    thresholds: Mapping[str, float] = {}
    if before.quantiles is not None:
        values = selection.values_of_clients(
            config, task.client_batches, scores, population, _VALUE_SEED
        )
        candidates = {
            name: CANDIDATES[criterion.measure] for name, criterion in config.quantiles.items()
        }
        thresholds = before.find(
            THRESHOLDS,
            [np.asarray(values[name]) for name in sorted(values)],
            functools.partial(before.quantiles.find, values, candidates),
        )
        digest = hashlib.sha256(json.dumps(thresholds, sort_keys=True).encode()).hexdigest()
        task = _with_fingerprint(task, THRESHOLDS, digest)
        task = dataclasses.replace(task, found={**task.found, THRESHOLDS: dict(thresholds)})
    return selection.select(config, task, scores, thresholds)


def _with_fingerprint(task: FederatedTask, role: str, digest: str) -> FederatedTask:
    return dataclasses.replace(task, fingerprints={**task.fingerprints, role: digest})


def saved_model(name: str, path: str, words: Sequence[str] | None) -> 'saved_models.LanguageModel':
    """The model of a setting, whose vocabulary must be that of the run."""
    from dpfl.tasks.text.models import saved_models

    with renaming(path=name):
        model = saved_models.load(path)
    if model.vocabulary != (None if words is None else tuple(words)):
        raise ArgumentError(name, path, 'has another vocabulary than the task')
    return model


def _warm_started(
    config: TaskConfig, task: FederatedTask, language: tuple[str, Sequence[str] | None] | None
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
