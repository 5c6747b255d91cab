"""The primary model: trained on public images or read, and its accuracy on the clients."""

import dataclasses
import hashlib
import json
import pathlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dpfl import _npz, _progress, _storage, errors
from dpfl.debugging.images import clients
from dpfl.debugging.images.config import PrimaryConfig
from dpfl.simulation.training import GanConfig
from dpfl.tasks.images import classifiers

FOLDER = 'primary'


def made_from(settings: PrimaryConfig, base: GanConfig) -> dict[str, Any]:
    """What the classifier depends on: its training, and the clients whose images are public."""
    return {
        **settings.flat(),
        'task': base.task.task,
        'data_path': base.task.data.data_path,
        'heldout_fraction': base.task.data.heldout_fraction,
        'seed': base.seed,
    }


def opened(
    settings: PrimaryConfig,
    base: GanConfig,
    public: clients.PublicImages,
    directory: pathlib.Path,
    *,
    resume: bool,
) -> tuple[classifiers.Classifier, dict[str, Any]]:
    """The classifier, trained as by `train` or read, and its inputs.

    A classifier of one's own comes with a digest of its answers on public images: a study must not
    go on with another model at the same path.

    Raises:
      ArgumentError: As `train`, and if the path has no model, or one that has learned from the
        clients.
      StorageError: As `train`.
    """
    if settings.is_trained:
        model = train(settings, base, public, directory, resume=resume)
        return model, made_from(settings, base)
    path = settings.primary_model
    with errors.renaming(path='primary_model'):
        classifiers.require_stranger(path, base.task, base.seed)
        model = classifiers.load(path)
    classes = model(public.pixels)[0].argmax(axis=1).astype('<i4')
    name = f'{path} ({hashlib.sha256(classes.tobytes()).hexdigest()[:12]})'
    return model, {**made_from(settings, base), 'primary_model': name}


def train(
    settings: PrimaryConfig,
    base: GanConfig,
    public: clients.PublicImages,
    directory: pathlib.Path,
    *,
    resume: bool,
) -> classifiers.Classifier:
    """Trains the classifier centrally, or loads the one that an earlier study left.

    Args:
      settings: How it is trained.
      base: The clients, and the seed of weights and batches.
      public: Its training data.
      directory: Directory of the study. The model is written to `primary/` in it.
      resume: Load an existing model; otherwise it is replaced.

    Raises:
      ArgumentError: If an argument is out of range, or an existing model has another configuration.
      StorageError: If files cannot be read or written.
    """
    folder, configuration = directory / FOLDER, made_from(settings, base)

    def trained() -> dict[str, np.ndarray]:
        print(f'{folder}: trains on {len(public.labels)} public images', file=sys.stderr)
        with errors.renaming(learning_rate='primary_learning_rate'):
            weights = classifiers.train_centrally(
                settings.primary_model,
                public.pixels,
                public.labels,
                steps=settings.primary_steps,
                learning_rate=settings.primary_learning_rate,
                seed=base.seed,
                progress=lambda steps: _progress.bar(steps, 'classifier', unit='step'),
            )
        return {str(number): weight for number, weight in enumerate(weights)}

    arrays = _kept(folder / 'model.npz', configuration, trained, resume=resume)
    weights = tuple(arrays[str(number)] for number in range(len(arrays)))
    return classifiers.of_weights(settings.primary_model, weights)


def judge(
    model: classifiers.Classifier,
    name: str,
    data: Any,
    population: int,
    directory: pathlib.Path,
    configuration: Mapping[str, Any],
    *,
    resume: bool,
) -> clients.Verdicts:
    """The examples that the classifier gets right, computed or loaded from an earlier study.

    Args:
      model: The classifier.
      name: Name of the file in `primary/` that the result is written to.
      data: A `SyntheticGlyphs` or an `Emnist`.
      population: Number of clients; clients 0 to `population - 1` are classified.
      directory: Directory of the study.
      configuration: The inputs of the result, JSON values by name.
      resume: Load an existing result.

    Raises:
      ValueError: If an existing result has another configuration.
      StorageError: If files cannot be read or written.
    """

    def judged() -> dict[str, np.ndarray]:
        shown = _progress.bar(range(population), f'classify ({name})', unit='client')
        verdicts = clients.judge(
            lambda pixels: model(pixels)[0].argmax(axis=1),
            range(population),
            map(data.examples, shown),
        )
        return dataclasses.asdict(verdicts)

    path = directory / FOLDER / f'{name}.npz'
    return clients.Verdicts(**_kept(path, configuration, judged, resume=resume))


def _kept(
    path: pathlib.Path,
    configuration: Mapping[str, Any],
    make: Callable[[], dict[str, np.ndarray]],
    *,
    resume: bool,
) -> dict[str, np.ndarray]:
    """The arrays of a file: those of an earlier study if it is resumed, otherwise made anew."""
    arrays = _read(path, configuration) if resume else None
    if arrays is None:
        arrays = make()
        with _storage.naming(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        described = {classifiers.CONFIGURATION: np.array(json.dumps(configuration))}
        data = _npz.to_bytes({**arrays, **described})
        _storage.write_atomically(path, lambda target: target.write(data))
    return arrays


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
