"""The primary model: trained on public images or read, and its accuracy on the clients."""

import dataclasses
import json
import pathlib
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from dpfl import _npz, _progress, _storage, errors
from dpfl.debugging.images import settings, subpopulations
from dpfl.simulation.training import GanConfig
from dpfl.tasks.images import classifiers

_FOLDER = 'primary'


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How the classifier is trained.

    Attributes:
      model: Name of the model, a key of `image_models.PRESETS`.
      steps: Number of batches.
      learning_rate: Learning rate of the first step.
      seed: Seed of weights and batches.
    """

    model: str
    steps: int
    learning_rate: float
    seed: int


def origin(base: GanConfig) -> dict[str, Any]:
    """The held-out clients whose images are public, JSON values by name."""
    return {
        'task': base.task.task,
        'data_path': base.task.data.data_path,
        'heldout_fraction': base.task.data.heldout_fraction,
        'seed': base.seed,
    }


def check_unused(directory: pathlib.Path, *, resume: bool, overwrite: bool) -> None:
    """Raises ArgumentError if there is an earlier study that is neither resumed nor replaced."""
    if (directory / _FOLDER).exists() and not resume and not overwrite:
        raise errors.ArgumentError(
            'output_dir',
            directory,
            'must not hold an earlier study, unless it is resumed or overwritten',
        )


def train(
    recipe: Recipe,
    public: settings.PublicImages,
    directory: pathlib.Path,
    configuration: Mapping[str, Any],
    *,
    resume: bool,
) -> classifiers.Classifier:
    """Trains the classifier centrally, or loads the one that an earlier study left.

    Args:
      recipe: How it is trained.
      public: What it is trained on.
      directory: Directory of the study. The model is written to `primary/` in it.
      configuration: What the model depends on, JSON values by name.
      resume: Load an existing model; otherwise it is replaced.

    Raises:
      ValueError: If an argument is out of range, or an existing model has another configuration.
      StorageError: If files cannot be read or written.
    """
    folder = directory / _FOLDER
    path = folder / 'model.npz'
    arrays = _read(path, configuration) if resume else None
    if arrays is None:
        print(f'{folder}: trains on {len(public.labels)} public images', file=sys.stderr)
        weights = classifiers.train_centrally(
            classifiers.build_image_classifier(recipe.model, recipe.seed),
            public.pixels,
            public.labels,
            steps=recipe.steps,
            learning_rate=recipe.learning_rate,
            seed=recipe.seed,
            progress=lambda steps: _progress.bar(steps, 'classifier', unit='step'),
        )
        arrays = {str(number): weight for number, weight in enumerate(weights)}
        _write(path, arrays, configuration)
    weights = tuple(arrays[str(number)] for number in range(len(arrays)))
    return classifiers.of_weights(recipe.model, weights)


def judge(
    model: classifiers.Classifier,
    name: str,
    data: Any,
    population: int,
    directory: pathlib.Path,
    configuration: Mapping[str, Any],
    *,
    resume: bool,
) -> subpopulations.Verdicts:
    """Finds which examples the classifier gets right, or loads what an earlier study found.

    Args:
      model: The classifier.
      name: Name of the file in `primary/` that the result is written to.
      data: A `SyntheticGlyphs` or an `Emnist`.
      population: Number of clients; clients 0 to `population - 1` are classified.
      directory: Directory of the study.
      configuration: What the result depends on, JSON values by name.
      resume: Load an existing result.

    Raises:
      ValueError: If an existing result has another configuration.
      StorageError: If files cannot be read or written.
    """
    path = directory / _FOLDER / f'{name}.npz'
    arrays = _read(path, configuration) if resume else None
    if arrays is None:
        clients = _progress.bar(range(population), f'classify ({name})', unit='client')
        found = subpopulations.judge(
            lambda pixels: model.probabilities(pixels).argmax(axis=1),
            range(population),
            map(data.examples, clients),
        )
        arrays = dataclasses.asdict(found)
        _write(path, arrays, configuration)
    return subpopulations.Verdicts(**arrays)


def _read(path: pathlib.Path, configuration: Mapping[str, Any]) -> dict[str, np.ndarray] | None:
    """The arrays of a file; None if the file does not exist or is damaged."""
    if not path.exists():
        return None
    try:
        arrays = _npz.load(path)
        before = json.loads(str(arrays.pop(classifiers.CONFIGURATION)))
    except (ValueError, KeyError) as error:
        print(f'{path}: is damaged ({error}), and made again', file=sys.stderr)
        return None
    now = json.loads(json.dumps(configuration))
    for name in now:
        if now[name] != before.get(name):
            raise errors.ArgumentError(
                name, now[name], f'must be {before.get(name)}, as in the study in {path.parents[1]}'
            )
    print(f'{path}: is finished', file=sys.stderr)
    return arrays


def _write(
    path: pathlib.Path, arrays: Mapping[str, np.ndarray], configuration: Mapping[str, Any]
) -> None:
    with _storage.naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    described = {classifiers.CONFIGURATION: np.array(json.dumps(configuration))}
    data = _npz.to_bytes({**arrays, **described})
    _storage.write_atomically(path, lambda target: target.write(data))
