"""Tasks with images of letters and digits, as their configuration describes them."""

import functools
from typing import Any

from dpfl.errors import ArgumentError, DataError
from dpfl.tasks import data_sets
from dpfl.tasks.config import (
    IMAGE_MODELS,
    SYNTHETIC_TASKS,
    DataConfig,
    ImageFaultConfig,
    TaskConfig,
    not_covered_of_writers,
)
from dpfl.tasks.federated_task import FederatedTask, TaskSource


def open_clients(task: str, data: DataConfig, faults: ImageFaultConfig, seed: int) -> Any:
    """The clients of a task of images, without a model.

    Args:
      task: 'synthetic_glyphs', or 'emnist', which is read from a file.
      data: where the file is.
      faults: which faults the devices have.
      seed: of the synthetic clients, and of which devices have a fault.

    Returns:
      A `SyntheticGlyphs` or an `Emnist`. Its held-out clients are never training clients, whatever
      the seed and the faults.

    Raises:
      ArgumentError: if a setting cannot be used; for a bad file it names data_path.
      DataError: if a download fails.
    """
    from dpfl.tasks.images import emnist, synthetic_glyphs
    from dpfl.tasks.images.image_clients import Faults

    drawn = Faults(faults.inject, faults.inject_share if faults.inject else 0.0, seed)
    if task == 'synthetic_glyphs':
        data_sets.refuse(data, task)
        return synthetic_glyphs.SyntheticGlyphs(seed=seed, faults=drawn)
    path = data_sets.downloadable(data, task, emnist.URL, 'emnist_all.sqlite', emnist.SHA256)
    try:
        return emnist.Emnist(emnist.EmnistFile(path), data.heldout_fraction, drawn)
    except DataError as error:
        raise ArgumentError('data_path', path, error.reason) from None


def task_of(clients: Any, model: Any = None) -> FederatedTask:
    """The task of clients from `open_clients`; without a model for a GAN, which has its own."""
    facts = {'population': None, **facts_about(clients)}
    return FederatedTask(
        model=model,
        client_batches=clients.client_batches,
        heldout=clients.heldout_dataset,
        **facts,
    )


def facts_about(clients: Any) -> dict[str, Any]:
    """The fields of a task about its clients; empty unless they are a list of writers."""
    if not hasattr(clients, 'heldout_writers'):
        return {}
    held = len(clients.heldout_writers)
    return {
        'population': clients.population,
        'description': {'clients': {'training': clients.population, 'heldout': held}},
        'not_covered': not_covered_of_writers(held, clients.faults.names),
    }


class ImageTask(TaskSource):
    """Images with a classifier."""

    def __init__(self, config: TaskConfig, seed: int):
        self._config = config
        self._seed = seed
        self._model = config.model or IMAGE_MODELS[0]

    @functools.cached_property
    def _clients(self) -> Any:
        config = self._config
        return open_clients(config.task, config.data, config.faults, self._seed)

    def num_clients(self) -> int | None:
        """Number of clients to train on; None for synthetic ones."""
        return None if self._config.task in SYNTHETIC_TASKS else self._clients.population

    def num_parameters(self) -> int:
        """Number of parameters of the classifier."""
        from dpfl.tasks.images import classifiers

        return classifiers.PRESETS[self._model].num_parameters

    def load(self) -> FederatedTask:
        """The task."""
        from dpfl.tasks.images import classifiers

        model = classifiers.build_image_classifier(self._model, self._seed)
        return task_of(self._clients, model)
