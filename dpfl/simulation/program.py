"""The training loop: one run from its first round to its privacy report."""

import collections
import contextlib
import dataclasses
import json
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tree

from dpfl import _storage, accounting, aggregators, errors, learning
from dpfl.accounting import running
from dpfl.accounting.measured.measured import AUDIT, Measured
from dpfl.accounting.records import archive, comparison, journal
from dpfl.accounting.reports import inputs
from dpfl.aggregators import adaptive_clip
from dpfl.runtime import contexts, memory
from dpfl.simulation import checkpoint, data_digest, extension, metrics, run_directory
from dpfl.simulation import state as state_lib
from dpfl.simulation.experiment import Experiment
from dpfl.simulation.run_journal import RunJournal

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


# A cohort is far from the plan if it is under half or over one and a half times the planned one,
# and if that is no accident of Poisson sampling.
_FAR_FROM_PLAN = 0.5
_DEVIATIONS = 4
_FAR_COHORT = (
    'round %d: %d clients came, %d are planned (clients_per_round). The noised sum is divided by '
    'the planned number, so the mean update is %.2g times that of a full cohort. Said once'
)
_STOPPED = (
    'stopped after %d of %d rounds, at an accuracy of at least %g. This rule reads held-out data '
    'without noise; the guarantee is that of all planned rounds.'
)


def run_training(
    experiment: Experiment,
    directory: run_directory.RunDirectory,
    data: Mapping[str, Any] | None = None,
    saved: checkpoint.Checkpoint | None = None,
) -> accounting.PrivacyReport:
    """Trains all rounds, and writes the journal, checkpoints, model, plots, tables and report.

    A run that ends early, in whatever way, can be continued from its latest checkpoint. Model,
    journal and report are then the same, bit for bit, as without the interruption, but for the
    lines outside of the chain. Rounds after that checkpoint are computed again: either the release
    is the same as before, or the run ends.

    Unless the process is killed, log and report are written however the run ends. They cover all
    rounds that were begun.

    Args:
      experiment: the run; if it continues, with the plan that the journal has.
      directory: the directory of the run. If its journal says that the run was built, the run
        continues, and its settings must have been compared.
      data: a description of the data with keyed digests, for the journal.
      saved: the result of `start`, if it was called already.

    Returns:
      The privacy report over all rounds.

    Raises:
      ValueError: if the experiment is not that of the journal.
      RunError: if a file cannot be written, or the run cannot continue; the message is one line.
    """
    with directory.in_use():
        if not directory.state.begun:
            planned = directory.state.planned
            if planned is None:
                directory.begin(None, {})
            else:  # Its keys may be missing after a crash.
                directory.begin(planned.settings, planned.files)
        return _Run(experiment, directory, data or {}, saved).run()


class _Run:
    """A run from its start, or from a checkpoint, to its end."""

    def __init__(
        self,
        experiment: Experiment,
        directory: run_directory.RunDirectory,
        data: Mapping[str, Any],
        saved: checkpoint.Checkpoint | None,
    ):
        self._experiment = experiment
        self._directory = directory
        self._data = data
        self._journal = directory.journal
        self._rounds = experiment.plan.participation.rounds
        self._start = saved or start(directory, _log.warning)
        if self._start is not None:
            before = self._journal.state.configuration
            extension.require_configuration(before, experiment.configuration)
            _require_plan(self._journal, experiment.plan)
            self._journal.require_cohorts(self._start.rounds, experiment.sampler.cohort)
        self._data_key = directory.data_key()
        storage = experiment.noise_storage
        self._is_supplied = storage is not None and storage.is_supplied
        # Data digests of the cohorts whose shards are ready, next round first: with the key of the
        # run, and without a key for noise that is drawn before the sum is known.
        self._data_digests: collections.deque[tuple[str, str]] = collections.deque()
        self._model: str | None = None  # Digest of the model with which the next round starts.
        # The planned cohort where a mean over it is released; None once its size was mentioned.
        plan = experiment.plan
        self._planned = plan.clients_per_round if plan.estimator.kind == 'fixed' else None
        self._measured: Measured | None = None
        self._epsilon = running.RunningEpsilon(plan, experiment.delta, experiment.accountant)
        self._runtime = contexts.Runtime({}, learning.sharded_cohorts)

    def run(self) -> accounting.PrivacyReport:
        experiment, directory = self._experiment, self._directory
        writer = checkpoint.Writer(
            directory.path / archive.CHECKPOINTS,
            experiment.execution.keep_checkpoints,
            0 if self._start is None else self._start.rounds,
        )
        directory.forget_digests()
        try:
            with (
                contexts.runtime(
                    experiment.execution.ray or None,
                    ray_timeout=experiment.execution.ray_timeout,
                ) as self._runtime,
                writer,
            ):
                state, rows = self._train(writer)
                # Saved before the model is written: no release is ever computed a second time.
                writer.save(self._checkpoint(len(rows), state))
                writer.wait()
                self._end(state, rows)
                report = directory.write_pages()
        except BaseException as error:
            # It may have come after an event was written, and before this process knew it.
            with contextlib.suppress(errors.RunError, MemoryError):
                directory.reopen()
            self._journal = directory.journal
            if self._journal.state.begun and self._journal.state.built is not None:
                if isinstance(error, contexts.RayError):
                    # Shown at once: writing the report can take longer than noticing the failure.
                    _log.warning('%s; writing the report of the rounds so far', error)
                # If this fails too, the first error is the one to show.
                with contextlib.suppress(errors.RunError, MemoryError):
                    self._journal.complete_cohorts(experiment.sampler.cohort)
                    directory.write_pages()
            if self._journal.state.ended is None and (directory.path / archive.MODEL).exists():
                # Digests that list a model would say that nothing is missing.
                with contextlib.suppress(errors.StorageError):
                    directory.forget_digests()
            raise
        return report

    def _end(self, state: Any, rows: Sequence[Mapping[str, float]]) -> None:
        """Writes the results of the whole run, and their digests to the journal."""
        experiment, directory = self._experiment, self._directory
        if self._journal.state.ended is not None:
            return
        weights = experiment.process.get_model_weights(state)
        directory.write_model(weights)
        test = None if experiment.test is None else experiment.test(weights)
        self._measure(weights, state)
        if experiment.finish is not None:
            experiment.finish(directory.path)
        why = 'all rounds are done' if len(rows) == self._rounds else 'its accuracy was reached'
        results = run_directory.results(directory.path)
        self._journal.append(journal.Ended(why=why, results=results, test=test))

    def _measure(self, weights: Any, state: Any) -> None:
        """Writes the scores of an audit's canaries after the last round."""
        experiment = self._experiment
        if experiment.audit is None:
            return
        plan = experiment.plan
        scores = experiment.audit.scores(self._initial(), weights, state, plan)
        measured = Measured.of(scores, plan, experiment.delta, experiment.accountant)
        self._directory.write_audit(scores)
        event = journal.Audited(scores=archive.sha256(self._directory.path / AUDIT))
        if self._journal.state.audited != event:
            self._journal.append(event)
        for refutation in measured.refutations:
            _log.warning('the audit refutes the guarantee: %s', refutation)

    def _initial(self) -> Any:
        """Model weights before the first round, from the checkpoint that was saved then."""
        process = self._experiment.process
        folder = self._directory.path / archive.CHECKPOINTS
        first = checkpoint.Checkpoint.read(folder / checkpoint.FIRST)
        initial = process.initialize()
        return process.get_model_weights(state_lib.with_model(first.state, initial))

    def _train(self, writer: checkpoint.Writer) -> tuple[Any, Sequence[Mapping[str, float]]]:
        """The state after the last round, and the metrics of all rounds."""
        experiment = self._experiment
        state = experiment.process.initialize()
        first = 0
        if self._start is None:
            if not experiment.noise_is_seeded:
                state = state_lib.with_keys(state, self._key)
            self._build(state)
            # The first model is no function of the settings: it may be that of another run, or of
            # somebody's own making.
            writer.save(self._checkpoint(0, state))
            writer.wait()
        else:
            first, tensors = self._start.rounds, self._start.state
            digest = state_lib.digest_of_saved(tensors, state)
            self._journal.require_state(first, self._start.head, digest)
            self._journal.complete_cohorts(experiment.sampler.cohort)
            if _is_of_fewer_rounds(self._journal, self._start):
                state = state_lib.restore_longer(tensors, state, experiment.plan)
                # From here on the checkpoint is one of the longer run.
                writer.save(self._checkpoint(first, state))
                writer.wait()
            else:
                state = state_lib.restore(tensors, state)
        rows, stop_at = tuple(self._journal.rows[:first]), experiment.record.stop_at_accuracy
        every = experiment.execution.checkpoint_every
        if experiment.execution.ray:
            self._journal.note(ray_losses=0)
        shards: Any = self._runtime.sharded_cohorts(
            experiment.turns(range(first, self._rounds)),
            experiment.data_in_turn,
            experiment.execution.shards,
            self._observe_data,
            data_digest.of_client,
        )
        with (
            metrics.Metrics(
                self._directory,
                self._rounds,
                experiment.reference_accuracies,
                rows,
                progress=experiment.progress,
            ) as recorded,
            contextlib.closing(shards),
            self._noise() as with_noise,
        ):
            # The number of completed rounds, and the state after them. They are one variable,
            # because a signal can arrive between any two assignments, and a state must never be
            # saved with the number of another round.
            reached = first, state
            saved = first
            try:
                for t in range(first, self._rounds):
                    if metrics.has_stopped(stop_at, recorded.rows):
                        _log.warning(_STOPPED, t, self._rounds, stop_at)
                        break
                    with _naming_round(t + 1):
                        reached = t + 1, self._round(t, reached[1], shards, with_noise, recorded)
                        writer.check()
                        done, state = reached
                        if done % every == 0 and done < self._rounds:
                            writer.save(self._checkpoint(done, state))
                            memory.give_back()
                            saved = done
            except _KEEPING_STATE:
                done, state = reached
                if done > saved:
                    # If this fails too, the first error is the one to show.
                    with contextlib.suppress(errors.RunError, MemoryError):
                        writer.save(self._checkpoint(done, state))
                        writer.wait()
                raise
        return reached[1], recorded.rows

    def _key(self, purpose: str) -> bytes:
        """A key for a purpose: of this run with these settings and data, and of no other.

        A copy of the directory may begin with others. Noise that is drawn before its sum is known
        would then protect two sums, since cohort, model and data of the first round are the same.
        """
        record = dataclasses.replace(self._experiment.record, about=None).to_dict()
        made_from = [record, dict(self._experiment.configuration), self._data]
        return self._directory.key(f'{purpose}\n{json.dumps(made_from, sort_keys=True)}')

    def _build(self, state: Any) -> None:
        """Records plan and strategy of a run that begins, and the inputs of its pages."""
        experiment, directory = self._experiment, self._directory
        digest = inputs.noise_key_digest(state_lib.noise_digest(state))
        inputs.check_noise(digest, experiment.record.earlier_noise_key_digests)
        about = experiment.record.about
        planned = self._journal.state.planned
        assert planned is not None
        if about is not None:
            about = dataclasses.replace(about, begun=planned.date, version=planned.version)
        record = dataclasses.replace(experiment.record, noise_key_digest=digest, about=about)
        if planned.settings is None:
            limits = (*record.also_not_covered, archive.OWN_LOOP)
            record = dataclasses.replace(record, also_not_covered=limits)
        directory.write_strategy(experiment.plan.mechanism)
        built = journal.Built(
            record=record.to_dict(),
            configuration=json.loads(json.dumps(dict(experiment.configuration))),
            data=self._data,
            has_fixed_weights=bool(tree.flatten(state.global_model_weights.non_trainable)),
            references={n: float(v) for n, v in experiment.reference_accuracies.items()} or None,
        )
        before = self._journal.state.built  # Of a process that ended before the first checkpoint.
        if before is None or before.to_dict() != built.to_dict():
            if before is not None:
                self._journal.append(planned)
            self._journal.append(built)
        directory.write_tables()

    def _observe_data(self, clients: list[bytes]) -> None:
        """Keeps the digest of a cohort's data for its round, made from the digest of each client.

        Called in the thread of the shards.
        """
        keyed = data_digest.of_digests(self._data_key, clients)
        # Two runs with one noise seed have the same noise, but not the same key of the digests.
        plain = data_digest.of_digests(b'', clients) if self._is_supplied else ''
        self._data_digests.append((keyed, plain))

    def _begin(self, t: int, state: Any) -> tuple[str, str, str]:
        """Records round `t` before it is computed; gives the intent from which its sum follows."""
        cohort: Any = self._experiment.sampler.cohort(t)
        keyed, plain = self._data_digests.popleft()
        model = self._model or state_lib.digests(state)[0]
        event = state_lib.began(t, state, model, cohort, keyed)
        self._journal.begin(event, cohort)
        self._compare(t, len(cohort))
        return event.cohort, event.model, plain

    def _compare(self, t: int, size: int) -> None:
        """Warns once of a cohort that is far from the planned one."""
        planned = self._planned
        if planned is None:
            return
        if abs(size - planned) > max(_FAR_FROM_PLAN * planned, _DEVIATIONS * math.sqrt(planned)):
            self._planned = None
            _log.warning(_FAR_COHORT, t + 1, size, planned, size / planned)

    @contextlib.contextmanager
    def _noise(self) -> Iterator[Callable[[Any, Any], Any]]:
        """A function of a state and the intent of its round: adds noise drawn outside of TFF."""
        storage, path = self._experiment.noise_storage, self._directory.path
        if storage is None or not storage.is_supplied:
            yield lambda state, intent: state
            return
        folder = path if storage.name == 'file' else None
        plan, progress = self._experiment.plan, self._experiment.progress
        with aggregators.build_noise_ring(plan, folder, show_progress=progress) as ring:

            def supplied(state: Any, intent: Any) -> Any:
                with _storage.naming(path):
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
        experiment = self._experiment
        started = time.monotonic()
        before = collections.Counter(self._runtime.losses)
        data = next(shards)
        intent = self._begin(t, state)
        supplied = with_noise(state, intent)
        output = experiment.process.next(supplied, data)
        for loss, count in (collections.Counter(self._runtime.losses) - before).items():
            _log.warning('round %d: %s, %d times; computed again', t + 1, loss, count)
            self._journal.note(ray_losses=count)
        values = _round_metrics(experiment, output, t + 1)
        values |= adaptive_clip.recorded(experiment.plan, t, output.metrics['aggregator'])
        values['epsilon'] = self._epsilon.after(t + 1)
        self._model, whole = state_lib.digests(output.state)
        numbers = {name: float(value) for name, value in values.items()}
        released = journal.Released(round=t, model=self._model, state=whole, metrics=numbers)
        row = self._journal.release(released, time.monotonic() - started)
        recorded.release(t + 1, {name: row[name] for name in row if name != 'round'})
        return output.state

    def _checkpoint(self, done: int, state: Any) -> checkpoint.Checkpoint:
        self._journal.sync()  # Else a power failure may leave a checkpoint that knows more.
        return checkpoint.Checkpoint(
            rounds=done, head=self._journal.head_after(done), state=state_lib.leaves(state)
        )


def start(
    directory: run_directory.RunDirectory, tell: Callable[[str], None]
) -> checkpoint.Checkpoint | None:
    """The checkpoint that the run in a directory continues from; None if it begins.

    A run of which no round began is built anew: its data may have been mended since.

    Args:
      directory: of the run, in use.
      tell: gets a line for each newer checkpoint that cannot be used, and one about going back.

    Raises:
      RunError: if there is no checkpoint to continue from.
    """
    run_journal, folder = directory.journal, directory.path / archive.CHECKPOINTS
    if not run_journal.state.begun:
        return None
    at = max(i for i, kind in enumerate(run_journal.kinds) if kind is journal.Built)
    refused: list[str] = []
    try:
        latest = checkpoint.latest(folder, refused.append, {*run_journal.heads[at:]})
    finally:
        for reason in refused:
            tell(f'refused: {reason}')
    if latest is None:
        raise errors.RunError(
            f'{directory.path / archive.LEDGER}: has {run_journal.state.begun} rounds, and there '
            'is no checkpoint to continue from'
        )
    if refused:
        tell(f'{folder}: going back to that of round {latest.rounds}')
    return latest


def _is_of_fewer_rounds(run_journal: RunJournal, saved: checkpoint.Checkpoint) -> bool:
    """Whether a checkpoint was saved before the run went on with more rounds."""
    extended = [i for i, kind in enumerate(run_journal.kinds) if kind is journal.Extended]
    return bool(extended) and run_journal.heads.index(saved.head) < extended[-1]


def _require_plan(run_journal: RunJournal, plan: accounting.PrivacyPlan) -> None:
    """Checks that a run continues with the plan that its journal has."""
    record = run_journal.state.record
    assert record is not None
    now = json.loads(json.dumps(plan.to_dict()))
    for where, was, is_now in comparison.differences({n: record.get(n) for n in now}, now):
        raise errors.ArgumentError(where, is_now, f'must be {was}, as when the run began')


@contextlib.contextmanager
def _naming_round(number: int) -> Iterator[None]:
    """Adds the number of the round to the message of an error."""
    try:
        yield
    except errors.RunError as error:
        raise type(error)(f'round {number}: {error}') from error


def _round_metrics(experiment: Experiment, output: Any, done: int) -> dict[str, float]:
    """Metrics after `done` rounds: of the evaluation if one is due, and of training."""
    values: dict[str, float] = {}
    if done % experiment.eval_every == 0 or done == experiment.plan.participation.rounds:
        weights = experiment.process.get_model_weights(output.state)
        values.update(experiment.evaluate(weights))
    if experiment.record.train_metrics_released:
        for name, value in output.metrics['client_work']['train'].items():
            values[f'train_{name}'] = float(value)
    return values
