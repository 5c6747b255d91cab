"""The releases of a run before training, as its configuration describes them. No TensorFlow."""

import json
import pathlib
from collections.abc import Mapping
from typing import Any

from dpfl import _files, _json, errors
from dpfl.accounting.records import archive
from dpfl.errors import ArgumentError, RunError, renaming
from dpfl.simulation import checkpoint_folder
from dpfl.simulation.training.config import TrainConfig
from dpfl.tasks.before_training import WORDS, BeforeTraining
from dpfl.tasks.config import PRIVATE_VOCABULARY, TextConfig
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
    found = BeforeTraining(words=_words(config), noise_seed=config.noise_seed)
    if not found.releases:
        return found
    kept = _kept(directory, found) if resume else {}
    return BeforeTraining(words=found.words, noise_seed=found.noise_seed, kept=kept)


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


def as_file(found: Mapping[str, Any]) -> str:
    """The text of `before_training.json`."""
    return json.dumps(found, indent=1) + '\n'


def _words(config: TrainConfig) -> WordRelease | None:
    text, delta = config.task.text, config.privacy.delta
    words = word_release(text, delta, _adjacency(config))
    if words is None:
        return None
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
        found = _json.checked_object(archive.BEFORE, _json.loads(_files.read_bytes(path)))
        if release.words is not None:
            _check_words(found.get(WORDS))
    except (OSError, ValueError) as error:
        raise RunError(
            f'{path}: not what a run found before training ({errors.shown(error)})'
        ) from None
    return found


def _check_words(words: Any) -> None:
    is_list = isinstance(words, list) and all(isinstance(word, str) for word in words)
    if not is_list or not words or len(set(words)) < len(words):
        raise ArgumentError(WORDS, errors.NOT_SHOWN, 'must be a list of different words')
