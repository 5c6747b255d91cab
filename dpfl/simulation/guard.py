"""A learning process for loops of one's own that never releases two results of a round.

`tff.simulation.run_training_process` saves the state every few rounds. After a restart it repeats
the rounds since then, with whatever cohorts it is given. A round of another cohort is a second
release, with noise of its own, which the plan does not count. A state manager cannot prevent this,
since it does not see the data. So the process itself is wrapped.

What holds, for all calls of `next` with one directory, in however many processes: two states that
it returned for the same noise key and the same round are equal, bit for bit. Proof: a state is
returned only while the directory is locked, and only after its digest was found in the line that
`releases.txt` has for the round, or was written there because there was none. So each round has one
state. (The ledger has refused other keys, models and data before; the check at the end is the one
that the proof needs.)

A process may take ids of clients, and read their data itself. Then the ledger has a digest of the
ids: it cannot tell that the data of an id are other data, and the check at the end does.
"""

import asyncio
import os
from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
import tree

from dpfl import _files, _storage, accounting
from dpfl.accounting.records import archive, ledger_lines
from dpfl.simulation import data_digest, ledger, outputs
from dpfl.simulation import state as state_lib

_RELEASES = 'releases.txt'
_DIGEST_BYTES = 65  # 64 hexadecimal digits and the end of the line.
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
    """A learning process that keeps a ledger, and refuses a second release of a round.

    It has the methods that `tff.simulation.run_training_process` calls. Each round is written to
    the ledger, with a keyed digest of its data, before it is computed. A round that is run again is
    refused unless noise key, model and data are those of the first time. What it returns is refused
    unless it is what was returned the first time: so client work that is not repeatable, such as
    dropout, gives no second release either.

    Data sets of clients are read once, and the process gets the batches that were read: a data set
    that shuffles gives others each time. Ids, of a process that reads the data itself
    (`tff.simulation.compose_dataset_computation_with_learning_process`), are recorded as they are.
    Then other data of the same clients are noticed by the state that they give, not before.

    Args:
      process: the process, whose aggregator is made from the plan. Call it through this object
        only.
      plan: the plan of the run.
      directory: for `ledger.jsonl`, `releases.txt` and the key of the data digests, which are as
        secret as the saved states. It is made if it is missing. One directory holds one run.

    Raises:
      ValueError: if the directory cannot be written.
      LedgerError: if its ledger is damaged, or that of another plan.
    """

    def __init__(
        self,
        process: tff.learning.templates.LearningProcess,
        plan: accounting.PrivacyPlan,
        directory: str | os.PathLike[str],
    ):
        self._process, self._plan = process, plan
        self._directory = outputs.RunDirectory(directory, resume=True)
        self._path = self._directory.path / archive.LEDGER
        self._ledger = ledger.Ledger(self._path, plan.digest())
        self._releases = self._directory.path / _RELEASES
        self._key = self._directory.data_key(is_new=self._ledger.rounds == 0)

    def initialize(self) -> Any:
        """A state before the first round, with a noise key of its own.

        Raises:
          ArgumentError: if the aggregator of the process was made from another plan.
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
        return self._ledger.rounds

    def next(self, state: Any, client_data: Iterable[Any]) -> Any:
        """Runs a round; what the process returns.

        In a `tff.program.FederatedContext` these are references. Each gives its value only after
        the release of the round was recorded, or raises a `LedgerError`.

        Args:
          state: the state before the round, of `initialize`, of `next`, or one that was saved.
          client_data: for each client a data set, a list of batches, or its id: a string, bytes or
            an integer, where the process takes ids.

        Raises:
          ArgumentError: if the state was made under another plan.
          LedgerError: if the round was released before from anything else, or if rounds before it
            are missing in the ledger. Nothing is released then.
          StorageError: if another process uses the directory, or it cannot be written.
        """
        state_lib.require_plan(state, self._plan)
        clients = [_read(data) for data in client_data]
        with self._directory.in_use():
            t = self._record(state, [batches for batches, _ in clients])
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

    def _record(self, state: Any, clients: list[list[Any]]) -> int:
        """Writes a round to the ledger; returns its number, counted from 0."""
        # Who the clients are is not known here: their data, in their order, stand for them.
        digest = data_digest.of_cohort(self._key, clients)
        entry = state_lib.ledger_entry(state, range(len(clients)), digest)
        t = state_lib.rounds_done(state)
        changed = self._ledger.changes(t, entry)
        if changed:
            reason = next(text for name, text in _REASONS.items() if name in changed)
            raise ledger.LedgerError(f'{self._path}: round {t + 1} was released before {reason}')
        self._ledger.record(t, entry)
        return t

    def _release(self, t: int, state: Any) -> None:
        """Compares the state after a round with that of the first time, or records it."""
        # The state holds the noise key, so nobody can check guesses of the rest by its digest.
        line = (ledger_lines.digest(tree.flatten(state)) + '\n').encode()
        path = self._releases
        with _storage.naming(path):
            known = _files.read_bytes(path) if path.exists() else b''
            begin = t * _DIGEST_BYTES
            if len(known) >= begin + _DIGEST_BYTES:
                if known[begin : begin + _DIGEST_BYTES] != line:
                    raise ledger.LedgerError(
                        f'{path}: round {t + 1} gave another model than before, with the same '
                        'noise and data: its computation is not repeatable (dropout, another '
                        'machine); it is not released'
                    )
                return
            # A later round began only after this line had been written.
            if len(known) < begin or t + 1 < self._ledger.rounds:
                raise ledger.LedgerError(f'{path}: ends before round {t + 1}')
            if len(known) > begin:
                # A crash cut the line off before its round was released.
                os.truncate(path, begin)
            _storage.append(path, line, begin, _storage.PRIVATE)


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
    """What a client trains on, read once: as a list of batches, and in the form it was given."""
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
        stacked = tf.nest.map_structure(lambda *leaves: np.stack(leaves), *group)
        again = again.concatenate(tf.data.Dataset.from_tensor_slices(stacked))
    return batches, again


def _shapes(batch: Any) -> list[tuple[int, ...]]:
    return [np.shape(leaf) for leaf in tf.nest.flatten(batch)]
