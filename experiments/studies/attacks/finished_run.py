"""The directory of a finished run, as far as attacks need it. TensorFlow is loaded on demand."""

import dataclasses
import functools
import math
import pathlib
from typing import Any

import numpy as np

from dpfl import ParticipationLog, accounting
from dpfl.accounting.records import archive
from dpfl.accounting.records.journal import Journal
from dpfl.errors import ArgumentError, StorageError, shown
from dpfl.simulation.training import TrainConfig, execution


@dataclasses.dataclass(frozen=True)
class FinishedRun:
    """A finished run of `training.train`.

    Attributes:
      directory: its directory.
      config: its configuration.
      report: its privacy report.
      journal: its journal.
    """

    directory: pathlib.Path
    config: TrainConfig
    report: accounting.PrivacyReport
    journal: Journal

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
        found = [row['accuracy'] for row in self.journal.rows() if 'accuracy' in row]
        return found[-1] if found else math.nan

    @functools.cached_property
    def log(self) -> ParticipationLog:
        """Who took part in which round."""
        try:
            found = archive.Records.read(self.directory).log
        except ValueError as error:
            raise StorageError(str(error)) from None
        assert found is not None  # A run of `train` shows its clients.
        return found

    def participations(self, clients: np.ndarray) -> np.ndarray:
        """How often each of these clients took part, int64 of the shape of `clients`."""
        found = self.log.by_client()
        counts = np.zeros(int(max(clients.max(initial=0), found.clients.max(initial=0))) + 1, int)
        counts[found.clients] = found.counts
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

    def data(self) -> dict[str, Any]:
        """What the run has recorded about its data; empty if it has not."""
        built = self.journal.state.built
        return {} if built is None else dict(built.data)


def open_run(directory: str) -> FinishedRun:
    """Opens a finished run.

    Raises:
      ArgumentError: if the directory has no finished run of a known configuration; it names
        `run_dir`.
      StorageError: if a file cannot be read.
    """
    path = pathlib.Path(directory)
    found = archive.read_journal(path) if archive.has_ended(path) else None
    if found is None or found.state.settings is None:
        raise ArgumentError('run_dir', directory, 'must be the directory of a finished run')
    try:
        config = TrainConfig.from_dict(dict(found.state.settings))
    except ValueError as error:
        raise ArgumentError(
            'run_dir', directory, f'has no configuration of a training run ({shown(error)})'
        ) from None
    return FinishedRun(path, config, execution.read_report(path), found)


def _or_infinity(epsilon: float | None) -> float:
    return math.inf if epsilon is None else epsilon
