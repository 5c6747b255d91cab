"""Runs in their directories: beginning one, continuing one, or returning a finished one."""

import dataclasses
import math
import pathlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dpfl import _storage, accounting
from dpfl.accounting.records import archive
from dpfl.errors import ArgumentError, RunError, StorageError
from dpfl.simulation import (
    checkpoint,
    checkpoint_folder,
    extension,
    last_evaluation,
    ledger,
    stopping,
)
from dpfl.simulation.training import run_data, run_model
from dpfl.tasks.federated_task import FederatedTask

if TYPE_CHECKING:
    from dpfl.simulation import outputs, profile, program

# Rounds whose noised counts give the share of clipped updates.
_CLIP_COUNT_ROUNDS = 20


@dataclasses.dataclass(frozen=True)
class TrainResult:
    """A finished run.

    Attributes:
      directory: the directory of the run.
      report: its privacy report.
      metrics: its metrics by name, each an array with an entry per round; NaN in rounds without a
        value.
      weights: trainable weights of the final model, in the order of the model.
      reference_accuracies: accuracies to compare with, by name.
      test_metrics: metrics of the final model on test clients, by name; empty without a test.
      noise_storage: where past noise was kept; None if the run was already finished.
      profile: where the time went; None unless it was measured.
    """

    directory: pathlib.Path
    report: accounting.PrivacyReport
    metrics: Mapping[str, np.ndarray]
    weights: tuple[np.ndarray, ...]
    reference_accuracies: Mapping[str, float] = dataclasses.field(default_factory=dict)
    test_metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)
    noise_storage: str | None = None
    profile: 'profile.Profile | None' = None

    @property
    def last(self) -> dict[str, float]:
        """The last value of each metric."""
        found = {}
        for name, column in self.metrics.items():
            known = column[~np.isnan(column)]
            if name != 'round' and known.size:
                found[name] = float(known[-1])
        return found

    def share_clipped(self) -> float | None:
        """Share of the updates that were longer than the estimate of an adaptive clip norm.

        It is the mean over the last rounds, at most `_CLIP_COUNT_ROUNDS`, of what follows from the
        noised counts that the norm is adapted with, and so costs no privacy. With a fixed clip norm
        nothing counts the clipped updates, and the result is None.
        """
        counts = self.metrics.get('clip_count')
        if counts is None:
            return None
        within = float(np.mean(counts[~np.isnan(counts)][-_CLIP_COUNT_ROUNDS:]))
        return min(1.0, max(0.0, 1 - within / self.report.plan.clients_per_round))

    def summary(self) -> dict[str, Any]:
        """The last metrics and the guarantee, by name."""
        report, measured = self.report, self.report.measured
        clipped = self.share_clipped()
        return {
            'output_dir': str(self.directory),
            'rounds': report.guarantee.rounds,
            **self.last,
            **({} if clipped is None else {'share_clipped': clipped}),
            **self.reference_accuracies,
            **{
                f'test_{name}': value
                for name, value in self.test_metrics.items()
                if not math.isnan(value)
            },
            **({} if self.noise_storage is None else {'noise_place': self.noise_storage}),
            'rho': report.guarantee.rho,
            'epsilon': report.guarantee.epsilons[0],
            'delta': report.deltas[0],
            **(
                {}
                if measured is None
                else {'epsilon_estimate': measured.to_dict()['epsilon_estimate']}
            ),
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """A run that is about to be executed.

    Attributes:
      directory: the directory of the run.
      plan: its privacy plan.
      configuration: the settings that it is made from, by name, as JSON values. A run can only be
        continued with the same ones, or with more rounds.
      build: builds the experiment and its task; not called if the run is finished.
      files: further text files to write when the run begins, by name.
      resume: continue an earlier run, or return its result if it is finished.
      overwrite: replace an earlier run.
      tell: called with messages for the person who started the run.
    """

    directory: pathlib.Path
    plan: accounting.PrivacyPlan
    configuration: Mapping[str, Any]
    build: Callable[[], 'tuple[program.Experiment, FederatedTask | None]']
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)
    resume: bool = False
    overwrite: bool = False
    tell: Callable[[str], None] = lambda text: None

    def execute(self) -> TrainResult:
        """Trains the rounds that are not done yet.

        Raises:
          ArgumentError: if a value is not allowed, or differs from that of the run to be continued.
          RunError: if a file cannot be read or written, or the run cannot be continued. The message
            is one line.
        """
        if self.resume and self.overwrite:
            raise ArgumentError('resume', True, 'cannot be combined with overwrite')
        start = self._start()
        if start is not None and self._is_finished(start):
            done, planned = start.rounds, self.plan.participation.rounds
            is_whole = done == planned
            how = f'all {done} rounds are done' if is_whole else f'stopped after {done} rounds'
            self.tell(f'{self.directory}: is finished, {how}')
            return self._result(read_report(self.directory), start.rows)
        # Importing TensorFlow takes seconds, so everything else is checked first.
        from dpfl.simulation import outputs, program

        experiment, task = self.build()
        directory = outputs.RunDirectory(
            self.directory, overwrite=self.overwrite, resume=self.resume
        )
        with directory.in_use():
            _require_start(directory, start)
            run_data.record(directory, task, experiment, is_new=start is None)
            if start is not None:
                run_data.require_released(directory, experiment)
            is_longer = start is not None and self._extends(start)
            if start is not None and is_longer:
                start = extension.commit(experiment, directory, start, self.files)
            if start is None:
                for name, text in self.files.items():
                    directory.write_text(name, text)
            about = experiment.about
            if about is not None and about.parameters is not None:
                self.tell(f'model {about.model}'.rstrip() + f': {about.parameters:,} parameters')
            if experiment.noise_storage is not None:
                self.tell(str(experiment.noise_storage))
            result = program.run_training(experiment, directory, start, is_longer=is_longer)
        found = self._result(result.report, result.rows)
        storage = experiment.noise_storage
        return dataclasses.replace(
            found,
            reference_accuracies=experiment.reference_accuracies,
            noise_storage=None if storage is None else storage.name,
            profile=result.profile,
        )

    def _start(self) -> checkpoint.Checkpoint | None:
        """The checkpoint that the run continues from; None for a new run."""
        if not self.resume:
            return None
        # Raises, before anything else is read, if the run has a format that is not read any more.
        ledger.read(self.directory / archive.LEDGER)
        refused: list[str] = []
        folder = self.directory / archive.CHECKPOINTS
        try:
            found = checkpoint_folder.latest(folder, refused.append)
        finally:
            for reason in refused:
                self.tell(f'refused: {reason}')
        if found is not None:
            if self._extends(found):
                how = extension.check(found, self.configuration, self.plan, self.directory)
                self.tell(f'{self.directory}: {how}')
            else:
                found.require_run(self.configuration, self.plan)
            if refused:
                self.tell(f'{folder}: going back to that of round {found.rounds}')
        return found

    def _extends(self, start: checkpoint.Checkpoint) -> bool:
        """Whether the run is longer than that of the checkpoint."""
        return extension.is_wanted(start, self.configuration, self.plan)

    def _is_finished(self, start: checkpoint.Checkpoint) -> bool:
        """Whether all rounds are done and all files are written; the digests are written last."""
        if self._extends(start):
            return False
        stopped = stopping.has_stopped(self.configuration.get('stop_at_accuracy'), start.rows)
        is_done = start.rounds == self.plan.participation.rounds or stopped
        # A test that failed leaves a model, and digests of all that there is.
        is_tested = not self.configuration.get('test_clients') or archive.TEST in archive.listed(
            self.directory
        )
        return is_done and is_tested and archive.has_ended(self.directory)

    def _result(
        self, report: accounting.PrivacyReport, rows: Sequence[Mapping[str, float]]
    ) -> TrainResult:
        names = dict.fromkeys(name for row in rows for name in row)
        columns = {name: np.array([row.get(name, np.nan) for row in rows]) for name in names}
        return TrainResult(
            self.directory,
            report,
            columns,
            run_model.weights(self.directory),
            test_metrics=last_evaluation.read(self.directory),
        )


def teller(progress: bool) -> Callable[[str], None]:
    """A function that prints messages to standard error, or drops them if `progress` is False."""

    def tell(text: str) -> None:
        if progress:
            print(text, file=sys.stderr)

    return tell


def read_report(directory: pathlib.Path) -> accounting.PrivacyReport:
    """The privacy report of a finished run, computed from what its directory has recorded.

    Raises:
      StorageError: if it cannot be read.
    """
    with _storage.naming(directory / archive.PLAN):
        try:
            return archive.Records.read(directory).report()
        except ValueError as error:
            raise StorageError(str(error)) from None


def _require_start(directory: 'outputs.RunDirectory', start: checkpoint.Checkpoint | None) -> None:
    """Checks that a new run does not replace an earlier one.

    Raises:
      RunError: if there are rounds but no checkpoint to continue from, or if another run has begun
        since `start` was read.
    """
    if start is not None:
        return
    path = directory.path / archive.LEDGER
    if checkpoint_folder.exist(directory.path / archive.CHECKPOINTS):
        raise RunError(f'{directory.path}: another run has begun there meanwhile')
    if path.exists() and path.stat().st_size:
        raise RunError(f'{path}: has rounds, and there is no checkpoint to continue from')
