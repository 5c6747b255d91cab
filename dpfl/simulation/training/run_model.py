"""The model of a finished run: loading its weights, saving it as a SavedModel."""

import pathlib
from collections.abc import Sequence

import numpy as np

from dpfl import _npz, _storage, errors

WEIGHTS = 'model.npz'


def weights(directory: pathlib.Path) -> tuple[np.ndarray, ...]:
    """The trainable weights of the model of a run.

    Raises:
      StorageError: if they cannot be read.
    """
    path = directory / WEIGHTS
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
