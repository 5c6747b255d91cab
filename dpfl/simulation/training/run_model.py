"""The model of a finished run: its weights, and text that it generates."""

import dataclasses
import os
import pathlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dpfl import _npz, _storage, errors
from dpfl._settings import Settings, setting
from dpfl.accounting.records import archive


def weights(directory: pathlib.Path) -> tuple[np.ndarray, ...]:
    """The trainable weights of the model of a run.

    Raises:
      StorageError: if they cannot be read.
    """
    path = directory / archive.MODEL
    try:
        arrays = _npz.load(path)
        return tuple(arrays[str(number)] for number in range(len(arrays)))
    except (ValueError, KeyError) as error:
        raise errors.StorageError(f'{path}: {errors.shown(error)}') from None


def save(directory: pathlib.Path, name: str, vocabulary: Sequence[str] | None) -> None:
    """Saves the language model of a run as a SavedModel in its directory.

    Args:
      directory: the directory of the run, which holds the weights.
      name: name of the model.
      vocabulary: its words; None for a model of characters.

    Raises:
      StorageError: if the model cannot be written.
    """
    from dpfl.tasks.text.models import saved_models

    path = directory / saved_models.IN_RUN
    words = None if vocabulary is None else tuple(vocabulary)
    model = saved_models.LanguageModel(name, weights(directory), words)
    with _storage.naming(path):
        saved_models.save(model, path)


@dataclasses.dataclass(frozen=True, kw_only=True)
class GenerateConfig(Settings):
    """How texts are drawn from a model.

    Example:
      >>> GenerateConfig(count=3).count
      3
    """

    count: int = setting(10, 'Number of texts.', minimum=1)
    length: int = setting(20, 'Limit on the tokens of each text: words, or bytes.', minimum=1)
    seed: int = setting(0, 'Seed of the draws.', minimum=0)


class Text(NamedTuple):
    """A text drawn from a model, and the natural logarithm of its probability."""

    text: str
    log_probability: float


def generate(config: GenerateConfig, model_directory: str | os.PathLike[str]) -> list[Text]:
    """Draws texts from a language model.

    The guarantee of a model that was trained under a privacy plan covers its texts.

    Args:
      config: how texts are drawn.
      model_directory: a SavedModel written by dpfl, or the directory of a run that contains one.

    Raises:
      ArgumentError: if there is no such model, or a value is not allowed.

    Example:
      >>> config = PretrainConfig(model='micro', vocabulary_size=40, batch_size=8, public_clients=9)
      >>> output = pretrain(config, 'model', progress=False).output
      >>> len(generate(GenerateConfig(count=3), output))
      3
    """
    from dpfl.tasks.text import tokenization
    from dpfl.tasks.text.models import generation, saved_models

    model = saved_models.load(model_directory)
    special = generation.BYTES if model.vocabulary is None else generation.WORDS
    drawn = generation.sample(
        model.architecture,
        model.weights,
        special,
        count=config.count,
        length=config.length,
        seed=config.seed,
    )
    if model.vocabulary is None:
        texts = tokenization.decode_words(drawn.tokens)
    else:
        texts = tokenization.decode_sentences(drawn.tokens, model.vocabulary)
    return [
        Text(text, float(score)) for text, score in zip(texts, drawn.log_probabilities, strict=True)
    ]
