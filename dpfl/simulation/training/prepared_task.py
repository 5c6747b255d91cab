"""A task as a configuration trains it.

A vocabulary is drawn, text selected and weights loaded.
"""

import dataclasses
import hashlib
import hmac
import json
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from dpfl import _random
from dpfl.accounting import ReleaseBefore
from dpfl.accounting.records import archive, journal
from dpfl.accounting.records.journal import Drew
from dpfl.errors import ArgumentError, RunError, renaming
from dpfl.simulation import earlier_settings
from dpfl.simulation.training.config import GanConfig, TrainConfig
from dpfl.tasks.before_training import (
    BeforeTraining,
    Draw,
    WordRelease,
)
from dpfl.tasks.config import (
    PRIVATE_VOCABULARY,
    REAL_TASKS,
    WORDS,
    ImageTaskConfig,
    TaskConfig,
    TextConfig,
)
from dpfl.tasks.federated_task import FederatedTask
from dpfl.tasks.selection import SelectionConfig

if TYPE_CHECKING:
    from dpfl.simulation.run_directory import RunDirectory
    from dpfl.tasks.text.models import saved_models


def of_run(
    config: TrainConfig | GanConfig,
    draw: Draw | None = None,
    kept: Mapping[str, Any] | None = None,
) -> BeforeTraining:
    """How a run makes its releases before training.

    Args:
      config: of the run.
      draw: makes a draw and records it; None where nothing may be released.
      kept: the draws of a finished run, from `recorded`.

    Raises:
      ArgumentError: if settings contradict each other.
    """
    if isinstance(config, GanConfig):
        return BeforeTraining()  # Images have no words.
    delta, adjacency = config.privacy.delta, _adjacency(config)
    shared = {'delta': delta, 'adjacency': adjacency, 'seed': config.seed}
    settings = shared | {
        field.name: value
        for field, _, value in config.task.table()
        if WORDS in field.metadata['draws']
    }
    return BeforeTraining(
        words=_words(config),
        noise_seed=config.noise_seed,
        settings=settings,
        draw=draw,
        kept=kept or {},
    )


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
    with renaming(epsilon='vocabulary_epsilon', words_per_client='vocabulary_words_per_client'):
        return WordRelease.of_guarantee(
            text.vocabulary_epsilon,
            delta,
            words_per_client=text.vocabulary_words_per_client,
            adjacency=adjacency,
        )


def recorded(directory: pathlib.Path) -> dict[str, Any]:
    """Results of a run's draws before training, by name; empty without a journal.

    Raises:
      ValueError: if the journal is damaged.
    """
    run = archive.read_journal(directory)
    if run is None:
        return {}
    drawn = run.state.drawn
    return {what: draw.result for what, draw in drawn.items() if draw.result is not None}


def draw(
    directory: 'RunDirectory',
    begin: Callable[[], None],
    what: str,
    intent: Mapping[str, Any],
    data: Iterable[np.ndarray],
    find: Callable[[np.random.Generator], Any],
    noise_seed: int | None,
) -> Any:
    """The result of a release before training, from the journal or a new draw.

    The draw is in the journal before it is made, and its result before anybody sees it. Its
    noise is a function of the root of the run's keys and of all its inputs: a repeated draw
    gives the same result, and a draw from other data has other noise.

    Args:
      directory: of the run, in use.
      begin: begins the run, unless it has begun.
      what: name of the draw.
      intent: as in `journal.Drew`, without `data`.
      data: arrays from which the draw is made.
      find: makes the draw from a source of noise; the result is a JSON value.
      noise_seed: makes the noise repeatable, and the run a simulation.

    Raises:
      ArgumentError: if it was drawn under other settings.
      RunError: if it was drawn from other data.
    """
    begin()
    total = hmac.new(directory.data_key(), what.encode() + b'\n', hashlib.sha256)
    total.update(journal.digest(data).encode())
    whole = json.loads(json.dumps({**intent, 'noise_seed': noise_seed, 'data': total.hexdigest()}))
    event = journal.Drew(what=what, intent=whole)
    known = directory.state.drawn.get(what)
    if (
        known is not None
        and known.intent != whole
        # Without its result, another intent would have another noise.
        and (known.result is None or earlier_settings.left_out(known.intent) != whole)
    ):
        _refuse_draw(directory.path, known, event)
    if known is not None and known.result is not None:
        return known.result
    if known is None:
        directory.journal.append(event)
    if noise_seed is not None:
        noise = _random.generator(f'noise.{what}', noise_seed)
    else:
        key = directory.key(f'draw {what}\n{json.dumps(whole, sort_keys=True)}')
        noise = np.random.Generator(np.random.Philox(key=int.from_bytes(key[:16], 'little')))
    result = json.loads(json.dumps(find(noise)))
    directory.journal.append(dataclasses.replace(event, result=result))
    directory.write_tables()
    return result


def _refuse_draw(path: pathlib.Path, known: journal.Drew, now: journal.Drew) -> NoReturn:
    """Refuses to repeat a draw with other settings, or from other data."""
    for name in sorted({*known.intent, *now.intent} - {'data', 'release'}):
        if known.intent.get(name) != now.intent.get(name):
            raise ArgumentError(
                name,
                now.intent.get(name),
                f'must be {known.intent.get(name)}, with which {known.what} were drawn: the draw '
                'counts, and another one would be a further release',
            )
    raise RunError(
        f'{path / archive.LEDGER}: {known.what} were drawn from other data of the clients; a run '
        'must continue with the data with which it began'
    )


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
    text = config.task.text
    words = word_release(text, config.privacy.delta, _adjacency(config))
    if words is None:
        return None
    if config.task.task not in REAL_TASKS:
        tasks = ' or '.join(REAL_TASKS)
        raise ArgumentError('vocabulary', text.vocabulary, f'needs task={tasks}')
    for name, value in (
        ('warm_start', config.task.warm_start),
        ('selection_model', config.task.selection.selection_model),
    ):
        if value is not None:
            raise ArgumentError(
                name,
                value,
                'needs a vocabulary that is known before the run, not vocabulary=private',
            )
    return words


def _adjacency(config: TrainConfig) -> str:
    return 'zero_out' if config.privacy.adjacency == 'zero_out' else 'replace_one'


def prepared(config: TaskConfig | ImageTaskConfig, task: FederatedTask) -> FederatedTask:
    """The task as it is trained.

    Args:
      config: the settings of the selection, and of the first weights.
      task: the task as it was opened.

    Raises:
      ArgumentError: if the configuration does not fit the task, or a model cannot be read.
    """
    if isinstance(config, ImageTaskConfig):  # Of a GAN, which begins anew.
        return task
    return _warm_started(config, _selected(config.selection, task))


def _selected(config: SelectionConfig, task: FederatedTask) -> FederatedTask:
    """The task with the selection of the configuration, if there is one."""
    if not config.is_given:
        return task
    from dpfl.tasks import selection
    from dpfl.tasks.text.models import generation

    scores, path = None, config.selection_model
    if path is not None:
        assert task.language_model is not None  # The settings refuse other tasks.
        model = saved_model('selection_model', path, task.language_model[1])
        scores = generation.scorer(model.architecture, model.weights)
        task = _with_fingerprint(task, 'selection_model', model.digest())
    return selection.select(config, task, scores)


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


def _warm_started(config: TaskConfig, task: FederatedTask) -> FederatedTask:
    """The task, starting from the weights of `warm_start` if the configuration has one."""
    path = config.warm_start
    if path is None:
        return task
    if task.language_model is None:
        raise ArgumentError('warm_start', path, 'only works for language models')
    from dpfl.tasks.text.models import architectures

    name, words = task.language_model
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
