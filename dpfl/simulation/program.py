"""The training loop: one run from its first round to its privacy report."""

import collections
import contextlib
import dataclasses
import datetime
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from dpfl import __version__, _storage, accounting, aggregators, errors, learning
from dpfl.accounting import running
from dpfl.accounting.measured.measured import Measured
from dpfl.accounting.records import archive
from dpfl.accounting.reports import noise_keys
from dpfl.accounting.reports.clip_course import ClipCourse
from dpfl.runtime import contexts, memory
from dpfl.simulation import (
    checkpoint,
    checkpoint_folder,
    data_digest,
    divergence,
    last_evaluation,
    metrics,
    outputs,
    stopping,
)
from dpfl.simulation import profile as profile_lib
from dpfl.simulation import state as state_lib
from dpfl.simulation.experiment import Experiment, Result
from dpfl.simulation.releases import Releases

_log = logging.getLogger(__name__)

# Errors and signals that can end a run in the middle of a round, but leave the state of the
# completed rounds intact. That state is saved at once, so that a resumed run repeats no completed
# round: on another host, TensorFlow may round differently, and the ledger would refuse that.
_KEEPING_STATE = (
    contexts.RayError,
    contexts.OutOfMemoryError,
    MemoryError,
    KeyboardInterrupt,
    SystemExit,
)


_STOPPED = (
    'stopped after %d of %d rounds, at an accuracy of at least %g. This rule reads held-out data '
    'without noise; the guarantee is that of all planned rounds.'
)


def run_training(
    experiment: Experiment,
    directory: outputs.RunDirectory,
    start: checkpoint.Checkpoint | None = None,
    *,
    is_longer: bool = False,
) -> Result:
    """Trains all rounds, and writes metrics, ledger, checkpoints, log, model, plots and report.

    A run that ends early, in whatever way, can be continued from its latest checkpoint. Model, log,
    ledger and report are then the same, bit for bit, as without the interruption, and so are the
    metrics except `seconds`. Rounds after that checkpoint are run again: either the release is the
    same as before, or the ledger refuses it.

    Unless the process is killed, log and report are written however the run ends. They cover all
    rounds that were begun.

    Args:
      experiment: what to run.
      directory: the directory of the run; when the run continues, as the process that made the
        checkpoint left it.
      start: the checkpoint to continue from; None for a new run.
      is_longer: the checkpoint is that of a run of fewer rounds, which `extension.commit` has made
        part of this one.

    Raises:
      ValueError: if the checkpoint belongs to another plan or configuration.
      RunError: if a file cannot be written, or the run cannot continue; the message is one line.
    """
    with directory.in_use():
        return _Run(experiment, directory, start, is_longer).run()


class _Run:
    """A run from its start, or from a checkpoint, to its end."""

    def __init__(
        self,
        experiment: Experiment,
        directory: outputs.RunDirectory,
        start: checkpoint.Checkpoint | None,
        is_longer: bool,
    ):
        self._directory = directory
        self._is_longer = is_longer
        self._start = start
        self._rounds = experiment.plan.participation.rounds
        self._profile: profile_lib.Profile | profile_lib.Nothing
        self._profile = profile_lib.Profile() if experiment.profile else profile_lib.Nothing()
        if start is not None:
            start.require_run(experiment.configuration, experiment.plan)
        self._releases = Releases(experiment, directory, start)
        self._experiment = dataclasses.replace(
            experiment,
            extensions=self._releases.extensions,
            noise_key_digest=self._releases.noise_key_digest,
            about=_about(experiment.about, directory, is_new=start is None),
        )
        about = self._experiment.about
        self._lost_before = None if about is None else about.ray_losses
        self._rows: Sequence[Mapping[str, float]] = () if start is None else start.rows
        self._measured: Measured | None = None
        self._runtime = contexts.Runtime({}, learning.sharded_cohorts)
        self._waited = 0.0  # For Ray, in the current round.
        self._fresh_rounds = frozenset(experiment.plan.fresh_rounds)
        self._epsilon = running.RunningEpsilon(
            experiment.plan, experiment.delta, experiment.accountant
        )

    def run(self) -> Result:
        experiment, directory = self._experiment, self._directory
        writer = checkpoint_folder.Writer(
            directory.path / archive.CHECKPOINTS,
            experiment.keep_checkpoints,
            None if self._start is None else self._start.rounds,
        )
        self._record_losses()
        directory.write_plan(self._experiment.record)
        try:
            with (
                contexts.runtime(
                    experiment.ray,
                    ray_timeout=experiment.ray_timeout,
                    observe=self._observe,
                ) as self._runtime,
                writer,
            ):
                state, rows = self._train(writer)
                # Saved before the model is written: no release is ever computed a second time.
                writer.save(self._checkpoint(len(rows), state, rows))
                writer.wait()
                weights = experiment.process.get_model_weights(state)
                directory.write_model(weights)
                if experiment.test is not None:
                    last_evaluation.write(directory, len(rows), experiment.test(weights))
                self._measure(weights, state)
                if experiment.finish is not None:
                    experiment.finish(directory.path)
                report = self._report()
                if experiment.watch_loss:
                    found = divergence.warning(rows, experiment.uniform_loss)
                    if found is not None:
                        _log.warning('%s', found)
        except BaseException as error:
            if self._releases.rounds:
                if isinstance(error, contexts.RayError):
                    # Shown at once: writing the report can take longer than noticing the failure.
                    _log.warning('%s; writing the report of the rounds so far', error)
                # If this fails too, the first error is the one to show.
                with contextlib.suppress(errors.RunError, MemoryError):
                    self._report()
            if (directory.path / archive.MODEL).exists():
                # Digests that list a model would say that nothing is missing.
                with contextlib.suppress(errors.StorageError):
                    directory.forget_digests()
            raise
        finally:
            # Also after a failure: a run may be slow before it fails.
            profile = self._write_profile()
            if profile is not None and (directory.path / archive.SUMS).exists():
                with contextlib.suppress(errors.StorageError):
                    directory.write_digests()
        return Result(report, rows, profile)

    def _observe(self, stage: str, seconds: float) -> None:
        if stage == 'ray':
            self._waited += seconds
        if self._profile.observe is not None:
            self._profile.observe(stage, seconds)

    def _measure(self, weights: Any, state: Any) -> None:
        """Writes what the canaries of an audit show after the last round."""
        experiment = self._experiment
        if experiment.audit is None:
            return
        with self._profile.span('audit'):
            record = experiment.record
            scores = experiment.audit.scores(self._initial(), weights, state, record.plan)
            self._measured = Measured.of(scores, record.plan, record.deltas[0], record.accountant)
            self._directory.write_audit(scores)
        for found in self._measured.refutations:
            _log.warning('the audit refutes the guarantee: %s', found)

    def _initial(self) -> Any:
        """Model weights of the process before the first round.

        They are a constant of the process, unless the run began with the model of an earlier run:
        that model may be gone when the run continues, so the run has kept it.
        """
        process = self._experiment.process
        weights = process.get_model_weights(process.initialize())
        if self._start is None or not self._experiment.plan.earlier:
            return weights
        return state_lib.restore(self._directory.initial_model(), weights)

    def _write_profile(self) -> profile_lib.Profile | None:
        if not isinstance(self._profile, profile_lib.Profile):
            return None
        self._profile.begin('')
        with contextlib.suppress(errors.StorageError):
            self._directory.write_text('profile.json', self._profile.to_json())
        return self._profile

    def _train(self, writer: checkpoint_folder.Writer) -> tuple[Any, Sequence[Mapping[str, float]]]:
        """The state after the last round, and the metrics of all rounds."""
        experiment = self._experiment
        state = experiment.process.initialize()
        first = 0
        rows: Sequence[Mapping[str, float]] = ()
        if self._start is not None:
            first, rows = self._start.rounds, self._start.rows
            if self._is_longer:
                state = state_lib.restore_longer(self._start.state, state, experiment.plan)
                # From here on the run is the longer one.
                writer.save(self._checkpoint(first, state, rows))
                writer.wait()
            else:
                state = state_lib.restore(self._start.state, state)
            self._record_key(state)
        else:
            self._record_key(state)
            if experiment.audit is not None and experiment.plan.earlier:
                initial = state_lib.leaves(experiment.process.get_model_weights(state))
                self._directory.keep_initial_model(initial)
            # Nothing else holds the noise key, so the first release could not be repeated without
            # this checkpoint.
            writer.save(self._checkpoint(0, state, ()))
            writer.wait()
        shards: Any = self._runtime.sharded_cohorts(
            experiment.turns(range(first, self._rounds)),
            experiment.data_in_turn,
            experiment.num_shards,
            self._releases.observe_data,
            data_digest.of_client,
        )
        with (
            metrics.Metrics(
                self._directory,
                self._rounds,
                experiment.reference_accuracies,
                rows,
                uniform_loss=experiment.uniform_loss,
                clip_norm=self._clip_norm,
                progress=experiment.progress,
            ) as recorded,
            contextlib.closing(shards),
            self._noise() as with_noise,
        ):
            self._rows = recorded.rows
            # The number of completed rounds, and the state after them. They are one variable,
            # because a signal can arrive between any two assignments, and a state must never be
            # saved with the number of another round.
            reached = first, state
            saved = first
            try:
                for t in range(first, self._rounds):
                    if stopping.has_stopped(experiment.stop_at_accuracy, recorded.rows):
                        _log.warning(_STOPPED, t, self._rounds, experiment.stop_at_accuracy)
                        break
                    self._profile.begin(str(t + 1))
                    with _naming_round(t + 1):
                        reached = t + 1, self._round(t, reached[1], shards, with_noise, recorded)
                        writer.check()
                        done, state = reached
                        if done % experiment.checkpoint_every == 0 and done < self._rounds:
                            with self._profile.span('checkpoint'):
                                writer.save(self._checkpoint(done, state, recorded.rows))
                                memory.give_back()
                            saved = done
            except _KEEPING_STATE:
                done, state = reached
                if done > saved:
                    # If this fails too, the first error is the one to show.
                    with contextlib.suppress(errors.RunError, MemoryError):
                        writer.save(self._checkpoint(done, state, recorded.rows[:done]))
                        writer.wait()
                raise
            self._profile.begin('end')
        return reached[1], recorded.rows

    def _record_key(self, state: Any) -> None:
        """Adds the digest of the noise keys to the plan, before the first round."""
        if self._experiment.noise_key_digest is None:
            digest = noise_keys.digest(state_lib.noise_digest(state))
            noise_keys.check(digest, self._experiment.earlier_noise_key_digests)
            self._experiment = dataclasses.replace(self._experiment, noise_key_digest=digest)
            self._directory.write_plan(self._experiment.record)

    def _clip_norm(self, t: int) -> float:
        """The clip norm of a round, unless it is adaptive."""
        plan = self._experiment.plan
        norms = [(0, plan.clip_norm), *plan.clip_schedule]
        return next(norm for first, norm in reversed(norms) if first <= t)

    @contextlib.contextmanager
    def _noise(self) -> Iterator[Callable[[Any, Any], Any]]:
        """A function of a state and the intent of its round: adds noise drawn outside of TFF."""
        storage, path = self._experiment.noise_storage, self._directory.path
        if storage is None or not storage.is_supplied:
            yield lambda state, intent: state
            return
        folder = path if storage.name == 'file' else None
        plan = self._experiment.plan
        ring_type = aggregators.HardenedRing if plan.noise == 'hardened' else aggregators.NoiseRing
        with ring_type(plan, folder, show_progress=self._experiment.progress) as ring:

            def supplied(state: Any, intent: Any) -> Any:
                with self._profile.span('noise'), _storage.naming(path):
                    return ring.supply(state, intent)

            yield supplied

    def _round(
        self,
        t: int,
        state: Any,
        shards: Iterator[Any],
        with_noise: Callable[[Any, Any], Any],
        recorded: metrics.Metrics,
    ) -> Any:
        """The state after round `t`, which counts from 0."""
        experiment, span = self._experiment, self._profile.span
        started = time.monotonic()
        with span('data'):
            data = next(shards)
        with span('ledger'):
            intent = self._releases.record(t, state)
        supplied = with_noise(state, intent)
        before, self._waited = collections.Counter(self._runtime.losses), 0.0
        with span('TFF'):
            output = experiment.process.next(supplied, data)
        for loss, count in (collections.Counter(self._runtime.losses) - before).items():
            _log.warning('round %d: %s, %d times; computed again', t + 1, loss, count)
        values = _round_metrics(experiment, output, t + 1, span)
        released = output.metrics['aggregator']
        if experiment.plan.adaptive_clip is not None and 'clip_count' in released:
            values |= {name: float(value) for name, value in released.items()}
            values['clip_restart'] = float(t in self._fresh_rounds)
        with span('accounting'):
            values['epsilon'] = self._epsilon.after(t + 1)
        values['seconds'] = time.monotonic() - started
        with span('metrics'):
            shown = {'waiting': f'{self._waited:.2g} s'} if experiment.ray else {}
            recorded.release(t + 1, values, shown)
        return output.state

    def _checkpoint(
        self, done: int, state: Any, rows: Sequence[Mapping[str, float]]
    ) -> checkpoint.Checkpoint:
        return checkpoint.Checkpoint(
            rounds=done,
            configuration=self._experiment.configuration,
            plan_digest=self._experiment.plan.digest(),
            rows=tuple(rows),
            state=state_lib.leaves(state),
            **self._releases.checkpoint(done),
        )

    def _report(self) -> accounting.PrivacyReport:
        """Writes log and report of the rounds that were begun, and the digests of all files."""
        log = self._releases.log()
        self._record_losses()
        record, course = self._experiment.record, ClipCourse.from_rows(self._rows)
        report = record.report(log, course, self._measured)
        self._directory.write_log(log)
        self._directory.write_pages(report)
        self._directory.write_digests()
        return report

    def _record_losses(self) -> None:
        """Adds to the plan what Ray has lost; the first time, that there was Ray."""
        if self._experiment.ray is None:
            return
        about = self._experiment.about or accounting.About()
        lost = (self._lost_before or 0) + sum(self._runtime.losses.values())
        about = dataclasses.replace(about, ray_losses=lost)
        if about != self._experiment.about:
            self._experiment = dataclasses.replace(self._experiment, about=about)
            self._directory.write_plan(self._experiment.record)


def _about(
    now: accounting.About | None, directory: outputs.RunDirectory, is_new: bool
) -> accounting.About | None:
    """Which run it is: one that continues began when its plan says so."""
    if not is_new:
        with contextlib.suppress(ValueError):
            return archive.read_plan(directory.path).about
    if now is None:
        return None
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return dataclasses.replace(now, begun=today, version=__version__)


@contextlib.contextmanager
def _naming_round(number: int) -> Iterator[None]:
    """Adds the number of the round to the message of an error."""
    try:
        yield
    except errors.RunError as error:
        raise type(error)(f'round {number}: {error}') from error


def _round_metrics(
    experiment: Experiment,
    output: Any,
    done: int,
    span: Callable[[str], contextlib.AbstractContextManager[None]],
) -> dict[str, float]:
    """Metrics after `done` rounds: of the evaluation if one is due, and of training."""
    values: dict[str, float] = {}
    if done % experiment.eval_every == 0 or done == experiment.plan.participation.rounds:
        with span('evaluation'):
            weights = experiment.process.get_model_weights(output.state)
            values.update(experiment.evaluate(weights))
    if experiment.release_train_metrics:
        for name, value in output.metrics['client_work']['train'].items():
            values[f'train_{name}'] = float(value)
    return values
