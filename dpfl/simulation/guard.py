"""A learning process for loops of one's own that never releases two results of a round.

`tff.simulation.run_training_process` saves the state every few rounds. After a restart it repeats
the rounds since then, with whatever cohorts it is given. A round of another cohort is a second
release, with noise of its own, which the plan does not count. A state manager cannot prevent this,
since it does not see the data. So the process itself is wrapped.

The guarantee, for all calls of `next` with one directory, in any number of processes: two states
that it returned for the same noise key and the same round are equal, bit for bit. Proof: a state is
returned only while the directory is locked, and only after its digest was found in the event that
the journal has for the round, or was written there because there was none. So each round has one
state. (The journal has refused other keys, models and data before; the check at the end is the one
that the proof needs.)

A process may take ids of clients, and read their data itself. Then the journal has a digest of the
ids: it cannot tell that the data of an id are other data, and the check at the end does.
"""

import asyncio
import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
import tree

from dpfl import _validate, accounting, errors
from dpfl.accounting.records import archive, journal
from dpfl.accounting.reports import inputs
from dpfl.simulation import data_digest, run_directory
from dpfl.simulation import state as state_lib

_DELTAS = (1e-6, 1e-10)
_MOST_ID = 2**63 - 1
_REASONS = {
    'noise': (
        'with another noise key, so it was another run; the guarantee of the plan covers one of '
        'them: begin in another directory, and count both'
    ),
    'model': 'from another model; the plan counts one release of a round',
    'cohort': 'with another cohort; the plan counts one release of a round',
    'data': 'with other clients or other data of theirs; the plan counts one release of a round',
}


class GuardedProcess:
    """A learning process that keeps a journal, and refuses a second release of a round.

    It has the methods that `tff.simulation.run_training_process` calls. Each round is written to
    the journal, with a keyed digest of its data, before it is computed. A round that is run again
    is refused unless noise key, model and data are those of the first time. Its result is refused
    unless it equals the first one: so client work that is not repeatable, such as dropout, gives
    no second release either.

    Data sets of clients are read once, and the process gets the batches that were read: a data set
    that shuffles gives others each time. Ids, of a process that reads the data itself
    (`tff.simulation.compose_dataset_computation_with_learning_process`), are recorded as they are.
    Then other data of the same clients are noticed by the state that they give, not before.

    Args:
      process: the process, whose aggregator is made from the plan. Call it through this object
        only.
      plan: the plan of the run.
      directory: of the run, made if it is missing. `ledger.jsonl` in it, and the keys in
        `checkpoints/`, are as secret as the saved states. One directory holds one run.
      deltas: at which the report gives epsilon.
      accountant: by which it does.

    Raises:
      ValueError: if the directory cannot be written, or there is no such report.
      RunError: if its journal is damaged, or that of another plan.
    """

    def __init__(
        self,
        process: tff.learning.templates.LearningProcess,
        plan: accounting.PrivacyPlan,
        directory: str | os.PathLike[str],
        *,
        deltas: Sequence[float] = _DELTAS,
        accountant: str = 'pld',
    ):
        plan.check_accountant(accountant)
        self._process, self._plan = process, plan
        self._directory = run_directory.RunDirectory(directory, resume=True)
        self._path = self._directory.path / archive.LEDGER
        self._record = archive.PlanRecord(
            plan,
            inputs.deltas([*deltas]),
            accountant,
            noise_is_seeded=False,
            also_not_covered=(archive.OWN_LOOP,),
        )
        with self._directory.in_use():
            self._directory.begin(None, {})
            self._require_plan()

    def _require_plan(self) -> None:
        record = self._directory.state.record
        if record is None:
            return
        own = self._record.to_dict()
        for name in (*self._plan.to_dict(), 'deltas', 'accountant'):
            if record.get(name) != own.get(name):
                raise errors.RunError(f'{self._path}: is the journal of another plan ({name})')

    def initialize(self) -> Any:
        """A state before the first round, with a noise key of its own.

        Raises:
          ArgumentError: if the aggregator of the process was made from another plan, or the process
            has several with noise.
        """
        state = self._process.initialize()
        if not _has_references(state):  # Otherwise `next` checks the values.
            state_lib.require_plan(state, self._plan)
        return state

    def get_model_weights(self, state: Any) -> Any:
        """The model of a state."""
        return self._process.get_model_weights(state)

    @property
    def rounds(self) -> int:
        """Number of rounds that were released, or were about to be."""
        with self._directory.in_use():
            return self._directory.state.begun

    def next(
        self, state: Any, client_data: Iterable[Any], client_ids: Sequence[int] | None = None
    ) -> Any:
        """Runs a round and returns the output of the process.

        In a `tff.program.FederatedContext` the output consists of references. A reference gives its
        value only after the release of the round was recorded, or raises a `RunError`.

        Args:
          state: the state before the round, of `initialize`, of `next`, or one that was saved.
          client_data: for each client a data set, a list of batches, or its id: a string, bytes or
            an integer, where the process takes ids.
          client_ids: numbers of the clients, at least 0, in the order of their data. If they are
            given in every round, the report compares who took part with the plan; otherwise it
            says that it could not.

        Raises:
          ArgumentError: if the state was made under another plan, or ids are no integers of at
            least 0, or are given in some rounds only.
          RunError: if the round was released before from anything else, if the plan has no such
            round, or if rounds before it are missing in the journal. Nothing is released then.
          StorageError: if another process or thread uses the directory, or it cannot be written.
        """
        state_lib.require_plan(state, self._plan)
        clients = [_read(data) for data in client_data]
        if client_ids is not None:
            client_ids = _validate.integers('client_ids', client_ids, minimum=0, maximum=_MOST_ID)
            if len(client_ids) != len(clients):
                raise errors.ArgumentError(
                    'client_ids', errors.NOT_SHOWN, f'must be {len(clients)}, one for each client'
                )
        with self._directory.in_use():
            self._build(state, shows_clients=client_ids is not None)
            t = self._begin(state, [batches for batches, _ in clients], client_ids)
            output = self._process.next(state, [again for _, again in clients])
            if not _has_references(output):
                self._release(t, output.state)
                return output
        recorded = asyncio.ensure_future(self._release_values(t, output.state))
        return tree.map_structure(lambda value: _Released(value, recorded), output)

    async def _release_values(self, t: int, references: Any) -> None:
        state = await tff.program.materialize_value(references)
        with self._directory.in_use():
            self._release(t, state)

    def _release(self, t: int, state: Any) -> None:
        """Compares the state after a round with that of the first time, or records it."""
        model, whole = state_lib.digests(state)
        self._directory.journal.release(
            journal.Released(round=t, model=model, state=whole, metrics={})
        )

    def finish(self) -> accounting.PrivacyReport:
        """Records that nothing more is released, and writes the report; gives it.

        Raises:
          RunError: if rounds of the plan are missing.
          StorageError: if a file cannot be written.
        """
        with self._directory.in_use():
            run_journal = self._directory.journal
            if run_journal.state.ended is None:
                planned = self._plan.participation.rounds
                done = run_journal.state.begun - (not run_journal.state.is_released)
                if done < planned:
                    raise errors.RunError(
                        f'{self._path}: has {done} of {planned} rounds; report() gives the '
                        'guarantee of a run that stops early'
                    )
                run_journal.append(journal.Ended(why='all rounds are done', results={}))
            return self._directory.write_pages()

    def report(self) -> accounting.PrivacyReport:
        """The report of the rounds so far; writes it, too.

        Raises:
          RunError: if no round was released.
          StorageError: if a file cannot be written.
        """
        with self._directory.in_use():
            if not self._directory.state.begun:
                raise errors.RunError(f'{self._path}: no round was released')
            return self._directory.write_pages()

    def _build(self, state: Any, shows_clients: bool) -> None:
        """Records the plan before the first round."""
        recorded = self._directory.state
        if recorded.built is not None and recorded.begun:
            if recorded.built.shows_clients != shows_clients:
                raise errors.ArgumentError(
                    'client_ids', errors.NOT_SHOWN, 'must be given in every round, or in none'
                )
            return
        key = inputs.noise_key_digest(state_lib.noise_digest(state))
        values = {**self._record.to_dict(), 'noise_key_digest': key}
        if recorded.built is not None:
            # The process ended before its round; this may be another key.
            assert recorded.planned is not None
            self._directory.journal.append(recorded.planned)
        self._directory.write_strategy(self._plan.mechanism)
        self._directory.journal.append(
            journal.Built(record=values, configuration={}, data={}, shows_clients=shows_clients)
        )

    def _begin(self, state: Any, clients: list[list[Any]], ids: Sequence[int] | None) -> int:
        """Records a round before it is computed; returns its number, counted from 0."""
        run_journal, t = self._directory.journal, state_lib.rounds_done(state)
        planned = self._plan.participation.rounds
        if t >= planned:  # Without ids no report would count it.
            raise errors.RunError(
                f'{self._path}: round {t + 1} is beyond the {planned} of the plan'
            )
        digest = data_digest.of_cohort(self._directory.data_key(), clients)
        model, _ = state_lib.digests(state)
        # Without ids the data of the clients, in their order, stand for them.
        cohort = range(len(clients)) if ids is None else ids
        event = state_lib.began(t, state, model, cohort, digest)
        changed = run_journal.changes(event)
        if changed:
            reason = next(text for name, text in _REASONS.items() if name in changed)
            raise errors.RunError(f'{self._path}: round {t + 1} was released before {reason}')
        if t > run_journal.state.begun or (
            t == run_journal.state.begun and not run_journal.state.is_released
        ):
            raise errors.RunError(f'{self._path}: ends before round {t + 1}')
        if t and run_journal.began(t - 1).noise != state_lib.noise_digest(state, rounds_ago=1):
            raise errors.RunError(
                f'{self._path}: round {t + 1} has another noise key than round {t}; the noise of '
                'all rounds must have one key'
            )
        run_journal.begin(event, ids)
        return t


class _Released(tff.program.MaterializableValueReference):
    """Reference to a value of a round, which is given only after the release was recorded."""

    def __init__(self, value: tff.program.MaterializableValueReference, recorded: asyncio.Task):
        self._value, self._recorded = value, recorded

    @property
    def type_signature(self) -> tff.Type:
        return self._value.type_signature

    async def get_value(self) -> Any:
        await self._recorded
        return await self._value.get_value()


def _has_references(structure: Any) -> bool:
    leaves = tree.flatten(structure)
    return any(isinstance(leaf, tff.program.MaterializableValueReference) for leaf in leaves)


def _is_id(data: Any) -> bool:
    return isinstance(data, str | bytes | int) or getattr(data, 'shape', None) == ()


def _read(data: Any) -> tuple[list[Any], Any]:
    """The data of a client, read once: as a list of batches, and in the form it was given."""
    if _is_id(data):
        # As an object: an array of bytes would drop zeros at the end.
        return [np.array(data.numpy() if isinstance(data, tf.Tensor) else data, object)], data
    batches = list(data.as_numpy_iterator() if isinstance(data, tf.data.Dataset) else data)
    if not isinstance(data, tf.data.Dataset):
        return batches, batches
    # Batches of one shape are stacked, so that the graph of the data set stays small.
    groups: list[list[Any]] = []
    for batch in batches:
        if groups and _shapes(groups[-1][0]) == _shapes(batch):
            groups[-1].append(batch)
        else:
            groups.append([batch])
    again = data.take(0)
    for group in groups:
        stacked = tf.nest.map_structure(lambda *leaves: np.stack(_objects(leaves)), *group)
        again = again.concatenate(tf.data.Dataset.from_tensor_slices(stacked))
    return batches, again


def _objects(leaves: Sequence[Any]) -> list[np.ndarray]:
    """Leaves as arrays; strings are objects, as arrays of bytes would drop zeros at the end."""
    return [np.array(leaf, object) if isinstance(leaf, bytes) else leaf for leaf in leaves]


def _shapes(batch: Any) -> list[tuple[int, ...]]:
    return [np.shape(leaf) for leaf in tf.nest.flatten(batch)]
