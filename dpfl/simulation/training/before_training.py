"""The releases of a run before training, as its configuration describes them. No TensorFlow."""

import dataclasses
import json
import pathlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from dpfl import _files, _json, _validate, errors
from dpfl.accounting import ReleaseBefore
from dpfl.accounting.records import archive
from dpfl.errors import ArgumentError, RunError, renaming
from dpfl.simulation import checkpoint_folder
from dpfl.simulation.training.config import TrainConfig
from dpfl.tasks.before_training import THRESHOLDS, WORDS, BeforeTraining
from dpfl.tasks.config import PRIVATE_VOCABULARY, REAL_TASKS, TextConfig
from dpfl.tasks.private_quantiles import QuantileRelease
from dpfl.tasks.selection_config import SelectionConfig
from dpfl.tasks.text.private_words import WordRelease


def of_run(config: TrainConfig, directory: pathlib.Path, resume: bool) -> BeforeTraining:
    """How a run makes its releases before training, or what they found if it continues.

    Args:
      config: of the run.
      directory: of the run.
      resume: whether the run is continued, if it has begun.

    Raises:
      ArgumentError: if settings contradict each other.
      RunError: if a run that continues has lost what it found.
    """
    delta, adjacency = config.privacy.delta, _adjacency(config)
    made = BeforeTraining(
        words=_words(config),
        quantiles=quantile_release(config.task.selection, delta, adjacency),
        noise_seed=config.noise_seed,
    )
    if not (made.releases and resume):
        return made
    return dataclasses.replace(made, kept=_kept(directory, made))


def quantile_release(
    selection: SelectionConfig, delta: float, adjacency: str
) -> QuantileRelease | None:
    """How the quantiles of a selection are found; None without any.

    Args:
      selection: the criteria.
      delta: that of the run.
      adjacency: that of the run.
    """
    shares = {
        name: each.quantile
        for name, each in selection.quantiles.items()
        if each.quantile is not None
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


def remarks(found: Mapping[str, Any]) -> tuple[str, ...]:
    """What the report says about what was found, in sentences."""
    thresholds = found.get(THRESHOLDS)
    if not thresholds:
        return ()
    known = ', '.join(f'{name.partition(":")[2]}: {at:.6g}' for name, at in thresholds.items())
    return (f'Quantiles that were estimated privately before training: {known}.',)


def as_file(
    found: Mapping[str, Any], releases: Sequence[ReleaseBefore], *, noise_is_seeded: bool
) -> str:
    """The text of `before_training.json`.

    Args:
      found: what was found.
      releases: what it cost. A run that continues must count the same.
      noise_is_seeded: whether it was found with noise of a given seed.
    """
    return json.dumps({**_cost(releases, noise_is_seeded), **found}, indent=1) + '\n'


def recorded(directory: pathlib.Path) -> dict[str, Any]:
    """The values in `before_training.json` of a run; empty if there is none.

    Raises:
      ValueError: if the file is damaged.
    """
    path = directory / archive.BEFORE
    if not path.exists():
        return {}
    return _json.checked_object(archive.BEFORE, _json.loads(_files.read_bytes(path)))


def _cost(releases: Sequence[ReleaseBefore], noise_is_seeded: bool) -> dict[str, Any]:
    return {
        'releases': [each.to_dict() for each in releases],
        'noise_is_seeded': noise_is_seeded,
    }


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


def _kept(directory: pathlib.Path, release: BeforeTraining) -> dict[str, Any]:
    """What the run in a directory found when it began; nothing if it has not begun."""
    path = directory / archive.BEFORE
    if not path.exists():
        if checkpoint_folder.exist(directory / archive.CHECKPOINTS):
            raise RunError(f'{path}: must exist to continue the run, which would draw it anew')
        return {}
    try:
        found = dict(recorded(directory))
        cost = {name: found.pop(name, None) for name in _cost((), False)}
        if release.words is not None:
            _check_words(found.get(WORDS))
        if release.quantiles is not None:
            _check_thresholds(found.get(THRESHOLDS), release.quantiles.shares)
    except (OSError, ValueError) as error:
        raise RunError(
            f'{path}: not what a run found before training ({errors.shown(error)})'
        ) from None
    # Before the first checkpoint there is no other record of how much noise is in what was found.
    if cost != _cost(release.releases, release.noise_seed is not None):
        raise RunError(
            f'{path}: was found with other settings of the vocabulary, the selection or the noise '
            'seed; continue with the settings of the run, or begin it anew'
        )
    return found


def _check_words(words: Any) -> None:
    is_list = isinstance(words, list) and all(isinstance(word, str) for word in words)
    if not is_list or not words or len(set(words)) < len(words):
        raise ArgumentError(WORDS, errors.NOT_SHOWN, 'must be a list of different words')


def _check_thresholds(thresholds: Any, names: Collection[str]) -> None:
    _json.checked_object(THRESHOLDS, thresholds)
    if set(thresholds) != set(names):
        raise ArgumentError(THRESHOLDS, errors.NOT_SHOWN, 'must be those of the selection')
    for value in thresholds.values():
        _validate.number(THRESHOLDS, value)
