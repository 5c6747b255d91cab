"""The source of a task, and its number of clients, from a configuration."""

from collections.abc import Callable

from dpfl.errors import ArgumentError
from dpfl.tasks.before_training import BeforeTraining
from dpfl.tasks.config import IMAGE_TASKS, TaskConfig
from dpfl.tasks.federated_task import TaskSource

_DEFAULT_POPULATION = 10_000


def open_task(
    config: TaskConfig,
    seed: int,
    tell: Callable[[str], None],
    before: BeforeTraining | None = None,
) -> TaskSource:
    """The source of a task.

    Args:
      config: of the task.
      seed: of synthetic data and of the initial model.
      tell: gets sentences about the data that were found.
      before: how a private vocabulary is found; None where nothing may be released.
    """
    if config.task in IMAGE_TASKS:
        from dpfl.tasks.images.image_task import ImageTask

        return ImageTask(config, seed)
    if config.task == 'synthetic_text':
        from dpfl.tasks.text.text_task import SyntheticTextTask

        return SyntheticTextTask(config, seed)
    from dpfl.tasks.text.text_task import RealTextTask

    return RealTextTask(config, seed, tell, before)


def population(given: int | None, num_clients: Callable[[], int | None]) -> int:
    """The number of clients to train on.

    Args:
      given: the number in the configuration; None for all clients of the data.
      num_clients: returns the number in the data, or None for an endless population.

    Raises:
      ArgumentError: if the data have fewer.
    """
    available = num_clients()
    if available is None:
        return _DEFAULT_POPULATION if given is None else given
    if given is not None and given > available:
        raise ArgumentError(
            'population',
            given,
            f'must be <= {available}, the clients to train on that the data have',
        )
    return available if given is None else given
