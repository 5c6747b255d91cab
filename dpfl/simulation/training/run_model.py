"""The model of a finished run: its weights, and the SavedModel made of them. No flags."""

import pathlib
from collections.abc import Sequence

import numpy as np

from dpfl import _npz, _storage, errors

WEIGHTS = 'model.npz'


def weights(directory: pathlib.Path) -> tuple[np.ndarray, ...]:
    """The trainable weights that a run has left.

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
    """Writes the language model of a run as a SavedModel into its directory.

    Args:
      directory: of the run, with its weights.
      name: of the model.
      vocabulary: its words; None for a model of characters.

    Raises:
      StorageError: if that fails.
    """
    from dpfl.tasks.text.models import saved_models

    path = directory / saved_models.IN_RUN
    words = None if vocabulary is None else tuple(vocabulary)
    model = saved_models.LanguageModel(name, weights(directory), words)
    with _storage.naming(path):
        saved_models.save(model, path)
