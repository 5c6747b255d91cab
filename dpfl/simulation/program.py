"""The training loop: one run from its first round to its privacy report."""

import collections
import contextlib
import dataclasses
import logging
import pathlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow_federated as tff

from dpfl import _storage, _validate, accounting, aggregators, errors, learning, mechanisms
from dpfl.accounting.records import archive, ledger_lines
from dpfl.participation import ParticipationLog
from dpfl.runtime import contexts, memory
from dpfl.runtime.workers import addresses
from dpfl.simulation import checkpoint, data_digest, outputs, sampling
from dpfl.simulation import ledger as ledger_lib
from dpfl.simulation import profile as profile_lib
from dpfl.simulation import state as state_lib

_log = logging.getLogger(__name__)


# Ends of a run, in the middle of a round too, that leave the rounds before it as they were: these
# are saved at once. A run that goes on then repeats none that was complete: not even on another
# host, where TensorFlow may round differently, which the ledger would refuse.
_KEEPING_STATE = (
    contexts.WorkerError,
    contexts.OutOfMemoryError,
    MemoryError,
    KeyboardInterrupt,
    SystemExit,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Experiment:
    """Everything that a run needs.

    Attributes:
      process: trains one round; made from `plan`.
      plan: the privacy plan.
      delta: at which epsilon is shown and reported, strictly between 0 and 1.
      accountant: by which the report computes epsilon.
      sampler: the cohorts, drawn as the guarantee of the plan needs it.
      client_data: batches of a client, as `learning.shard` takes them; the same whenever they are
        asked for, which happens in a thread of its own, a round ahead.
      num_shards: parts of a cohort that are trained at a time. Another number adds the updates in
        another order, so a run keeps its own.
      evaluate: metrics of a model on held-out clients, `loss` and `accuracy` among them.
      eval_every: rounds between two evaluations; the last round is always evaluated.
      release_train_metrics: also record the metrics of the training clients, which have no noise
        and are not covered by the guarantee.
      reference_accuracies: lines in the plot, by name.
      noise_is_seeded: the noise comes from a known seed: the run is a simulation.
      noise_storage: where past noise is kept; the process has `supplied_noise` if that is outside
        of TFF. None for the state of the process.
      checkpoint_every: rounds between two checkpoints.
      keep_checkpoints: how many of the last checkpoints are kept.
      not_covered: what of the data the guarantee says nothing about, a sentence each.
      workers: where shards are trained, as in `runtime.distributed_runtime`; none for this host. No
        bit of the run depends on them.
      finish: writes what else is made of the model of a run that is done; from its directory.
      profile: also measure where the time goes.
      progress: show a progress bar on standard error.
      configuration: what the run was made from, in values that JSON has: a run is continued with
        the same only.
    """

    process: tff.learning.templates.LearningProcess
    plan: accounting.PrivacyPlan
    delta: float
    accountant: str = 'pld'
    sampler: sampling.Sampler
    client_data: Callable[[int], Any]
    evaluate: Callable[[tff.learning.models.ModelWeights], Mapping[str, float]]
    eval_every: int = 1
    release_train_metrics: bool = False
    reference_accuracies: Mapping[str, float] = dataclasses.field(default_factory=dict)
    noise_is_seeded: bool = False
    noise_storage: mechanisms.NoiseStorage | None = None
    num_shards: int = 2
    checkpoint_every: int = 10
    keep_checkpoints: int = 3
    not_covered: tuple[str, ...] = ()
    workers: Sequence[str | addresses.Address] = ()
    finish: Callable[[pathlib.Path], None] | None = None
    profile: bool = False
    progress: bool = True
    configuration: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        _validate.number('delta', self.delta, above=0, below=1)
        _validate.choice('accountant', self.accountant, accounting.ACCOUNTANTS)
        _validate.integer('eval_every', self.eval_every, minimum=1)
        _validate.integer('checkpoint_every', self.checkpoint_every, minimum=1)
        _validate.integer('num_shards', self.num_shards, minimum=1)
        _validate.integer('keep_checkpoints', self.keep_checkpoints, minimum=1)
        if self.accountant not in self.plan.accountants:
            self.plan.epsilon(self.delta, self.accountant)  # Says why, in one line.
        sampling.check(self.sampler, self.plan)

    @property
    def record(self) -> archive.PlanRecord:
        """What the report will need but the log. The cohorts of all samplers follow from a seed."""
        return archive.PlanRecord(
            self.plan,
            (self.delta,),
            self.accountant,
            self.noise_is_seeded,
            sampling_is_seeded=self.plan.sampling != 'none',
            also_not_covered=self.not_covered,
            train_metrics_released=self.release_train_metrics,
        )


@dataclasses.dataclass(frozen=True)
class Result:
    """What a run ended with.

    Attributes:
      report: of all its rounds.
      rows: the metrics of each round, `round` first.
      profile: where the time went; None if nobody asked.
    """

    report: accounting.PrivacyReport
    rows: Sequence[Mapping[str, float]]
    profile: profile_lib.Profile | None = None


def run_training(
    experiment: Experiment,
    directory: outputs.RunDirectory,
    start: checkpoint.Checkpoint | None = None,
) -> Result:
    """Trains all rounds, and writes metrics, ledger, checkpoints, log, model, plots and report.

    A run that ends early, in whatever way, can be continued from its latest checkpoint to the same
    bits: of the model, the log, the ledger, the report, and the metrics but for `seconds`. Rounds
    since that checkpoint are run again: the same release once more, or refused by the ledger.

    Unless the process is killed, log and report are written however the run ends, for the rounds
    that were begun.

    Args:
      experiment: what to run.
      directory: of the run; as the process that made the checkpoint left it.
      start: the checkpoint to continue from; None for a new run.

    Raises:
      ValueError: if the checkpoint is of another plan or configuration.
      files.RunError: if something cannot be written, or the run cannot continue; in one line.
    """
    with directory.in_use():
        return _Run(experiment, directory, start).run()


class _Run:
    """A run from its start, or from a checkpoint, to its end."""

    def __init__(
        self,
        experiment: Experiment,
        directory: outputs.RunDirectory,
        start: checkpoint.Checkpoint | None,
    ):
        self._experiment = experiment
        self._directory = directory
        self._start = start
        self._rounds = experiment.plan.participation.rounds
        self._profile = profile_lib.Profile() if experiment.profile else profile_lib.Nothing()
        if start is not None:
            start.require_run(experiment.configuration, experiment.plan)
        self._ledger = ledger_lib.Ledger(
            directory.path / archive.LEDGER, experiment.record.digest()
        )
        self._log = self._released()
        self._data_key = directory.data_key(is_new=start is None)
        # Of the cohorts whose shards are ready, the next one first.
        self._data_digests: collections.deque[str] = collections.deque()

    def _released(self) -> ParticipationLog:
        """The log of all rounds in the ledger, those since the checkpoint included.

        Raises:
          RunError: if checkpoint, ledger and sampler are not of one run.
        """
        path = self._directory.path / archive.LEDGER
        done = 0 if self._start is None else self._start.rounds
        if self._start is None and self._ledger.rounds:
            raise errors.RunError(
                f'{path}: has {self._ledger.rounds} rounds, and there is no checkpoint to '
                'continue from'
            )
        if self._ledger.rounds < done or (
            self._start is not None and self._ledger.position(done) != self._start.ledger
        ):
            raise errors.RunError(f'{path}: is not the ledger of the checkpoint (round {done})')
        log = ParticipationLog(() if self._start is None else self._start.cohorts)
        for t in range(done, self._ledger.rounds):
            cohort: Any = self._experiment.sampler.cohort(t)
            if ledger_lines.cohort_digest(cohort) != self._ledger.cohort(t):
                raise errors.RunError(f'{path}: round {t} had another cohort')
            log.append(cohort)
        return log

    def run(self) -> Result:
        experiment, directory = self._experiment, self._directory
        writer = checkpoint.Writer(
            directory.path / archive.CHECKPOINTS,
            experiment.keep_checkpoints,
            None if self._start is None else self._start.rounds,
        )
        directory.write_plan(experiment.record)
        try:
            with (
                contexts.distributed_runtime(experiment.workers, observe=self._profile.observe),
                writer,
            ):
                state, metrics = self._train(writer)
                # Before the model: what is released is never computed a second time.
                writer.save(self._checkpoint(self._rounds, state, metrics.rows))
                writer.wait()
                directory.write_model(experiment.process.get_model_weights(state))
                if experiment.finish is not None:
                    experiment.finish(directory.path)
                report = self._report()
        except BaseException as error:
            if self._ledger.rounds:
                if isinstance(error, contexts.WorkerError):
                    # At once: the report can take longer than noticing that a worker is gone.
                    _log.warning('%s; writing the report of the rounds so far', error)
                # Where this fails too, the first error is the one to show.
                with contextlib.suppress(errors.RunError, MemoryError):
                    self._report()
            raise
        finally:
            # Of a run that failed, too: a run may be slow before it fails.
            profile = self._write_profile()
            if profile is not None and (directory.path / archive.SUMS).exists():
                with contextlib.suppress(errors.StorageError):
                    directory.write_digests()
        return Result(report, metrics.rows, profile)

    def _write_profile(self) -> profile_lib.Profile | None:
        if not isinstance(self._profile, profile_lib.Profile):
            return None
        self._profile.begin('')
        with contextlib.suppress(errors.StorageError):
            self._directory.write_text('profile.json', self._profile.to_json())
        return self._profile

    def _train(self, writer: checkpoint.Writer):
        state = self._experiment.process.initialize()
        first, rows = 0, tuple[Mapping[str, float], ...]()
        if self._start is not None:
            state = state_lib.restore(self._start.state, state)
            first, rows = self._start.rounds, tuple(self._start.rows)
        else:
            # Before the first release, so that it can be repeated: its noise key is nowhere else.
            writer.save(self._checkpoint(0, state, ()))
            writer.wait()
        experiment = self._experiment
        cohorts: Iterator[Any] = map(experiment.sampler.cohort, range(first, self._rounds))
        shards: Any = learning.sharded_cohorts(
            cohorts, experiment.client_data, experiment.num_shards, self._observe
        )
        with (
            outputs.Metrics(
                self._directory,
                self._rounds,
                experiment.reference_accuracies,
                rows,
                progress=experiment.progress,
            ) as metrics,
            contextlib.closing(shards),
            self._noise() as with_noise,
        ):
            # Rounds that are done, and the state after them. In one variable: a signal may come
            # between any two assignments, and a state must not be saved as that of another round.
            reached = first, state
            saved = first
            try:
                for t in range(first, self._rounds):
                    self._profile.begin(str(t + 1))
                    with _naming_round(t + 1):
                        supplied = with_noise(reached[1])
                        reached = t + 1, self._round(t, supplied, shards, metrics)
                        writer.check()
                        done, state = reached
                        if done % experiment.checkpoint_every == 0 and done < self._rounds:
                            with self._profile.span('checkpoint'):
                                writer.save(self._checkpoint(done, state, metrics.rows))
                                memory.give_back()
                            saved = done
            except _KEEPING_STATE:
                done, state = reached
                if done > saved:
                    # Where this fails too, the first error is the one to show.
                    with contextlib.suppress(errors.RunError, MemoryError):
                        writer.save(self._checkpoint(done, state, metrics.rows[:done]))
                        writer.wait()
                raise
            self._profile.begin('end')
        return reached[1], metrics

    @contextlib.contextmanager
    def _noise(self):
        """A function that gives a state what its round needs of the noise kept outside of TFF."""
        place, path = self._experiment.noise_storage, self._directory.path
        if place is None or not place.is_supplied:
            yield lambda state: state
            return
        folder = path if place.name == 'file' else None
        plan = self._experiment.plan
        ring_type = aggregators.HardenedRing if plan.noise == 'hardened' else aggregators.NoiseRing
        with ring_type(plan, folder, show_progress=self._experiment.progress) as ring:

            def supplied(state):
                with self._profile.span('noise'), _storage.naming(path):
                    return ring.supply(state)

            yield supplied

    def _round(self, t: int, state, shards: Iterator, metrics: outputs.Metrics):
        """The state after round `t`, which counts from 0."""
        experiment, span = self._experiment, self._profile.span
        started = time.monotonic()
        cohort: Any = experiment.sampler.cohort(t)
        with span('data'):
            data = next(shards)
        with span('ledger'):
            # Before the release: log and ledger never have less than what was released.
            entry = state_lib.ledger_entry(state, cohort, self._data_digests.popleft())
            self._ledger.record(t, entry)
        if t == self._log.rounds:  # Otherwise the round is run again: the same release.
            self._log.append(cohort)
        with span('TFF'):
            output = experiment.process.next(state, data)
        values = _round_metrics(experiment, output, t + 1, started, span)
        with span('metrics'):
            metrics.release(t + 1, values)
        return output.state

    def _observe(self, clients: list[list[Any]]) -> None:
        """Keeps the digest of what a cohort will train on; called in the thread of the shards."""
        self._data_digests.append(data_digest.of_cohort(self._data_key, clients))

    def _checkpoint(self, done: int, state, rows) -> checkpoint.Checkpoint:
        return checkpoint.Checkpoint(
            rounds=done,
            configuration=self._experiment.configuration,
            plan_digest=self._experiment.plan.digest(),
            ledger=self._ledger.position(done),
            rows=tuple(rows),
            cohorts=[self._log.cohort(t) for t in range(done)],
            state=state_lib.leaves(state),
        )

    def _report(self) -> accounting.PrivacyReport:
        """Writes log and report of the rounds that were begun, and the digests of all files."""
        for t in range(self._log.rounds, self._ledger.rounds):  # A signal came between the two.
            self._log.append(self._experiment.sampler.cohort(t))
        report = self._experiment.record.report(self._log)
        self._directory.write_log(self._log)
        self._directory.write_report(report)
        self._directory.write_digests()
        return report


@contextlib.contextmanager
def _naming_round(number: int):
    try:
        yield
    except errors.RunError as error:
        raise type(error)(f'round {number}: {error}') from error


def _round_metrics(experiment: Experiment, output, done, started, span) -> dict[str, float]:
    plan = experiment.plan
    values: dict[str, float] = {}
    if done % experiment.eval_every == 0 or done == plan.participation.rounds:
        with span('evaluation'):
            weights = experiment.process.get_model_weights(output.state)
            values.update(experiment.evaluate(weights))
    if experiment.release_train_metrics:
        for name, value in output.metrics['client_work']['train'].items():
            values[f'train_{name}'] = float(value)
    # The exact curve, where there is one: the report's accountant may be looser, and takes longer.
    exact = 'analytic_gaussian' in plan.accountants
    if exact or values:
        with span('accounting'):
            so_far = plan.with_participation(plan.participation.within(done))
            values['epsilon'] = so_far.epsilon(
                experiment.delta, 'analytic_gaussian' if exact else 'rdp'
            )
    values['seconds'] = time.monotonic() - started
    return values
