"""A finished run of `train` or `train_gan`, as studies read it."""

import dataclasses
import functools
import math
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from dpfl import ParticipationLog, _storage, accounting
from dpfl.accounting.records import archive
from dpfl.errors import ArgumentError, StorageError, renaming, shown
from dpfl.simulation import earlier_settings
from dpfl.simulation.training import (
    GanConfig,
    TrainConfig,
    recorded_settings,
    run_model,
)
from dpfl.tasks.config import ImageFaultConfig, TaskConfig
from experiments.studies.shared import planting

if TYPE_CHECKING:
    from dpfl.tasks.text.models.saved_models import LanguageModel

WORD, CHAR, IMAGES = 'word', 'char', 'images'
KINDS = (WORD, CHAR, IMAGES)
_Config = TypeVar('_Config', TrainConfig, GanConfig)


@dataclasses.dataclass(frozen=True)
class FinishedRun:
    """A finished run.

    Attributes:
      directory: its directory.
      recorded: its configuration; None for a training loop of one's own, and for a public copy.
      settings: all settings that a run which continues must share, by name, those of its task and
        of planted secrets included; empty if there is no configuration.
      data: facts that it has recorded about its data.
      records: the inputs of its pages.
      report: its privacy report.
      rows: its metrics, those of a round in a row.
    """

    directory: pathlib.Path
    recorded: TrainConfig | GanConfig | None
    settings: Mapping[str, Any]
    data: Mapping[str, Any]
    records: archive.Records
    report: accounting.PrivacyReport
    rows: Sequence[Mapping[str, float]]

    @property
    def config(self) -> TrainConfig:
        """The configuration of a run of `train`.

        Raises:
          ArgumentError: if it is another run; it names `run_dir`.
        """
        return self._recorded(TrainConfig, 'train')

    @property
    def gan_config(self) -> GanConfig:
        """The configuration of a run of `train_gan`; errors as of `config`."""
        return self._recorded(GanConfig, 'train_gan')

    def _recorded(self, kind: type[_Config], command: str) -> _Config:
        if isinstance(self.recorded, kind):
            return self.recorded
        raise ArgumentError('run_dir', self.directory, f'must be a run of {command}')

    @functools.cached_property
    def task(self) -> TaskConfig:
        """The settings of the task; of a run with secrets those of the task without them."""
        none = TaskConfig()
        known = none.flat().keys() & self.settings.keys()
        return none.with_values({name: self.settings[name] for name in known})

    @functools.cached_property
    def planted(self) -> planting.PlantingConfig:
        """The secrets that were planted in the text of clients."""
        return planting.of_run(self.settings)

    @property
    def epsilon(self) -> float:
        """Epsilon of the run at `delta`; infinity without a guarantee."""
        return _or_infinity(self.report.guarantee.epsilons[0])

    @property
    def delta(self) -> float:
        """Delta of the run."""
        return self.report.deltas[0]

    @property
    def metrics(self) -> dict[str, float]:
        """The last value of each metric, by name."""
        return {name: value for row in self.rows for name, value in row.items()}

    @property
    def log(self) -> ParticipationLog:
        """Who took part in which round."""
        assert self.records.log is not None  # A run of `train` shows its clients.
        return self.records.log

    def participations(self, clients: np.ndarray) -> np.ndarray:
        """Number of participations of each of these clients, int64 of the shape of `clients`."""
        known = self.log.by_client()
        counts = np.zeros(int(max(clients.max(initial=0), known.clients.max(initial=0))) + 1, int)
        counts[known.clients] = known.counts
        return counts[clients]

    def epsilon_of_group(self, size: int) -> float | None:
        """Epsilon of the run for groups of clients; None if there is none for its plan."""
        if size == 1 or math.isinf(self.epsilon):
            return self.epsilon
        try:
            report = self.records.report(group_size=size)
        except ArgumentError:
            return None
        return _or_infinity(report.guarantee.epsilons[0])

    @functools.cached_property
    def model(self) -> 'LanguageModel':
        """The language model of a run on text.

        Raises:
          ArgumentError: if it has none; it names `run_dir`.
        """
        from dpfl.tasks.text.models import saved_models

        with renaming(path='run_dir'):
            return saved_models.load(self.directory)

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """The words of the model of a run on text; empty for a model of characters."""
        return self.model.vocabulary or ()

    @functools.cached_property
    def kind(self) -> str:
        """What the model of the run generates, one of `KINDS`.

        Raises:
          ArgumentError: if it has no generator; it names `run_dir`.
        """
        from dpfl.tasks.images import gan_models
        from dpfl.tasks.text.models import saved_models

        if (self.directory / saved_models.IN_RUN).is_dir():
            return CHAR if self.model.vocabulary is None else WORD
        if (self.directory / gan_models.IN_RUN).is_dir():
            return IMAGES
        raise ArgumentError(
            'run_dir',
            self.directory,
            'must be a run of a language model or of train_gan; it has neither '
            f'{saved_models.IN_RUN}/ nor {gan_models.IN_RUN}/',
        )

    @functools.cached_property
    def weights(self) -> tuple[np.ndarray, ...]:
        """The weights of its generator."""
        return run_model.weights(self.directory) if self.kind == IMAGES else self.model.weights

    def image_sampler(self) -> Callable[[int, int], np.ndarray]:
        """Draws images: maps their number and a seed to pixels, float32 [n, 28, 28]."""
        from dpfl import learning
        from dpfl.simulation.training import gan

        config, weights = self.gan_config, self.weights
        model = gan.build_model(config.optimization, config.seed)
        return lambda number, seed: learning.sample(model, weights, number, seed)[..., 0]

    def image_clients(self) -> Any:
        """The clients of a run of `train_gan` without the faults that they may have had in it.

        Raises:
          DataError: if they cannot be read.
        """
        from dpfl.tasks.images.image_task import open_clients

        task = self.gan_config.task
        return open_clients(task.task, task.data, ImageFaultConfig(), self.gan_config.seed)


def open_run(directory: str | os.PathLike[str]) -> FinishedRun:
    """Opens a finished run.

    Raises:
      ArgumentError: if the directory has no finished run, or one of an unknown configuration; it
        names `run_dir`.
      StorageError: if a file cannot be read.
    """
    path = pathlib.Path(directory)
    if not archive.has_ended(path):
        raise ArgumentError('run_dir', directory, 'must be the directory of a finished run')
    try:
        with _storage.naming(path / archive.PLAN):
            records = archive.Records.read(path)
            report = records.report()
    except ValueError as error:
        raise StorageError(str(error)) from None
    journal, recorded, settings, data = records.journal, None, {}, {}
    if journal is not None and journal.state.settings is not None:
        try:
            recorded = recorded_settings.of_state(journal.state)
            settings = earlier_settings.left_out(journal.state.configuration)
        except ValueError as error:
            reason = f'has no configuration of a training run ({shown(error)})'
            raise ArgumentError('run_dir', directory, reason) from None
        data = {} if journal.state.built is None else dict(journal.state.built.data)
    return FinishedRun(path, recorded, settings, data, records, report, archive.read_rows(path))


def _or_infinity(epsilon: float | None) -> float:
    return math.inf if epsilon is None else epsilon
