"""A finished run of `train` as attacks read it."""

import dataclasses
import functools
import math
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from dpfl import ParticipationLog, accounting
from dpfl.accounting.records import archive
from dpfl.accounting.records.journal import Journal
from dpfl.errors import ArgumentError, StorageError, shown
from dpfl.simulation import earlier_settings
from dpfl.simulation.training import TrainConfig, execution, recorded_settings
from dpfl.tasks.config import TaskConfig
from experiments.studies.shared import planting


@dataclasses.dataclass(frozen=True)
class FinishedRun:
    """A finished run of `training.train`.

    Attributes:
      directory: its directory.
      config: its configuration.
      settings: all settings that a run which continues must share, by name, those of its task and
        of planted secrets included.
      report: its privacy report.
      journal: its journal.
    """

    directory: pathlib.Path
    config: TrainConfig
    settings: Mapping[str, Any]
    report: accounting.PrivacyReport
    journal: Journal

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
    def accuracy(self) -> float:
        """Accuracy of the final model on held-out clients; NaN if it was not measured."""
        values = [row['accuracy'] for row in self.journal.rows() if 'accuracy' in row]
        return values[-1] if values else math.nan

    @property
    def data(self) -> dict[str, Any]:
        """Facts that the run has recorded about its data; empty if it has not."""
        built = self.journal.state.built
        return {} if built is None else dict(built.data)

    @functools.cached_property
    def log(self) -> ParticipationLog:
        """Who took part in which round."""
        try:
            log = archive.Records.read(self.directory).log
        except ValueError as error:
            raise StorageError(str(error)) from None
        assert log is not None  # A run of `train` shows its clients.
        return log

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
            report = archive.Records.read(self.directory).report(group_size=size)
        except ArgumentError:
            return None
        return _or_infinity(report.guarantee.epsilons[0])


def open_run(directory: str) -> FinishedRun:
    """Opens a finished run.

    Raises:
      ArgumentError: if the directory has no finished run of a known configuration; it names
        `run_dir`.
      StorageError: if a file cannot be read.
    """
    path = pathlib.Path(directory)
    journal = archive.read_journal(path) if archive.has_ended(path) else None
    if journal is None or journal.state.settings is None:
        raise ArgumentError('run_dir', directory, 'must be the directory of a finished run')
    try:
        config = recorded_settings.of_state(journal.state)
        settings = earlier_settings.left_out(journal.state.configuration)
    except ValueError as error:
        reason = f'has no configuration of a training run ({shown(error)})'
        raise ArgumentError('run_dir', directory, reason) from None
    if not isinstance(config, TrainConfig):
        raise ArgumentError('run_dir', directory, 'must be a run of train')
    return FinishedRun(path, config, settings, execution.read_report(path), journal)


def _or_infinity(epsilon: float | None) -> float:
    return math.inf if epsilon is None else epsilon
