"""Executes the shards of rounds on Ray, and again where Ray loses one.

Ray places tasks on nodes and moves objects between them. This module submits one task for each
shard, collects the results in the order of the shards, and submits a task again if its process,
its node or one of its objects was lost: a task is a pure function of its arguments, so the result
has the same bits.

Updates that together take much memory stay where they are computed. Each is cut into parts, and a
task for each part adds that part of all updates, in the order of the shards. So this process gets
one sum, with the bits of a sum of whole updates.

The processes of Ray read the data of cohorts themselves, where they can. A round then sends ids of
clients and the model, not examples. A process reads its part of the next cohort, and returns for
each client the number of its rows and a description, such as a digest: from these this process
makes the same shards as `shards.shard`, and knows the data that a round is about to release. A
shard is read again by the process that trains it, which refuses data that do not have the
descriptions.

Where no process of Ray can read the data, this process reads and sends them.
"""

import collections
import hashlib
import itertools
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import ray
import tensorflow_federated as tff

from dpfl import errors
from dpfl.runtime import compilation, expressions, ray_tasks, split_round
from dpfl.runtime import shards as shards_lib
from dpfl.runtime.failures import ComputationError, OutOfMemoryError, RayError

# A task that fails in the same way this many times ends the run.
_MOST_FAILURES = 3
# What ends a process may be about to end those beside it.
_SECONDS_BEFORE_AGAIN = 1.0
# How long the cluster may be without a node that computes.
_SECONDS_WITHOUT_NODES = 60.0
# How long its head may not answer. Ray itself ends this process after 60 seconds.
_SECONDS_WITHOUT_HEAD = 30.0
_ANSWER_SECONDS = 2.0
# Between two looks at `stop`, and at the cluster.
_POLL_SECONDS = 0.2
_LOOK_SECONDS = 5.0
# Updates that together take more stay in Ray's store, and are added there, in parts of this size.
_MOST_BYTES = 64 << 20
_PART_BYTES, _MOST_PARTS = 1 << 20, 8
# Errors of a task that say what is wrong in one line.
_PLAIN = (ComputationError, errors.RunError, errors.DataError, errors.ArgumentError)

# What was lost, by the error that Ray raises; the first that matches.
_LOSSES = {
    ray.exceptions.OutOfMemoryError: 'a process was out of memory',
    ray.exceptions.WorkerCrashedError: 'a process ended',
    ray.exceptions.NodeDiedError: 'a node ended',
    ray.exceptions.ObjectLostError: 'an object of the store was lost',
    ray.exceptions.LocalRayletDiedError: 'the raylet of the machine of this process ended',
}

_FAILED = f'Ray: {_MOST_FAILURES} times in one round, for one shard: {{}}'

# Puts an object into Ray's store, and returns a reference to it.
Put = Callable[[Any], Any]
# Submits the task of an index, and returns the reference to its result, or a list of references.
Submit = Callable[[int], Any]
# Largest pickled reader of data that every process unpickles. With a larger one, this process reads
# the data and sends it.
_MOST_READER_BYTES = 64 << 20


class TaskError(RayError):
    """A task has raised the same error each time: Ray works, and the function does not."""


class Rounds:
    """Executes shards on the cluster that this process is connected to.

    Args:
      timeout: seconds within which some shard of a round must arrive.
      stop: ends a wait with a ComputationError while it is set.

    Attributes:
      losses: numbers of losses, by kind.
    """

    def __init__(self, timeout: float, stop: threading.Event):
        self.losses: collections.Counter[str] = collections.Counter()
        self.timeout = timeout
        self.stop = stop
        self._setting = ray_tasks.setting()
        # Submitted again by `Tasks` and not by Ray, which would not report the loss.
        self._run = ray.remote(num_cpus=1, max_retries=0)(ray_tasks.run)
        self._works: dict[int, tuple[tff.Computation, Kept]] = {}

    def num_cores(self) -> int | None:
        """Processor cores of the cluster; None if its head does not answer."""
        host, _, port = ray.get_runtime_context().gcs_address.rpartition(':')
        try:
            # Without its head Ray would wait for a minute, and then end this process.
            socket.create_connection((host.strip('[]'), int(port)), _ANSWER_SECONDS).close()
        except OSError:
            return None
        return int(ray.cluster_resources().get('CPU', 0))

    def submit(self, name: str, *arguments: Any, num_returns: int = 1) -> Any:
        """Submits a function of `ray_tasks`, by its name; returns references to its results."""
        task = self._run.options(name=f'dpfl {name}', num_returns=num_returns)
        return task.remote(self._setting, name, *arguments)

    def updates(self, split: split_round.SplitRound, message: Any, shards: Sequence[Any]) -> Any:
        """The updates of shards, in their order, or their sum, as `split.finish` takes them.

        Args:
          split: the round.
          message: what its `begin` has computed.
          shards: their data, such as a `tf.data.Dataset` each, or the `Shards` of a
            cohort.

        Raises:
          RayError: if a shard is lost too often, or too late, or there is no node to compute it.
          ComputationError, OutOfMemoryError: if a computation fails.
        """
        work = split.work
        # By identity: the hash of a computation is computed from all of its graphs.
        if id(work) not in self._works:
            self._works[id(work)] = work, Kept(compilation.to_bytes(work))
        kept = self._works[id(work)][1]
        updates_type = work.type_signature.result
        of_shard = getattr(shards, 'of_shard', None)
        if of_shard is None:
            shard_type = work.type_signature.parameter[1].member
            data = [expressions.from_python(shard, shard_type) for shard in shards]

            def of_shard(put):
                del put
                return lambda index: ('update', data[index])

        # Into how many parts updates are cut, to be added on Ray; 0 for adding them here.
        num_parts, size = 0, split_round.num_bytes(updates_type)
        if split.only_adds and size is not None and size * len(shards) > _MOST_BYTES:
            num_parts = max(1, min(_MOST_PARTS, self.num_cores() or 1, size // _PART_BYTES))

        def submit_all(put: Put) -> Submit:
            program, common, arguments = kept.put(put), put(message), of_shard(put)

            def submit(index):
                name, *of_index = arguments(index)
                return self.submit(
                    name, program, num_parts, common, *of_index, num_returns=1 + num_parts
                )

            return submit

        submitted = getattr(shards, 'submitted', lambda: None)
        tasks = Tasks(self, submit_all, range(len(shards)))
        if num_parts:
            parts = self._totals(tasks, submit_all, num_parts, submitted)
            return split_round.uncut(parts, updates_type)
        submitted()
        return split_round.join(tasks.results(), updates_type)

    def _totals(
        self,
        tasks: 'Tasks',
        submit_all: Callable[[Put], Submit],
        num_parts: int,
        submitted: Callable[[], None],
    ) -> list[Any]:
        """The sums of the parts of updates.

        Args:
          tasks: compute the updates.
          submit_all: submits them again, if their results are lost.
          num_parts: number of parts.
          submitted: called when the tasks that add are submitted.
        """
        updates = dict(enumerate(tasks.results()))
        failures: collections.Counter[int] = collections.Counter()
        totals: dict[int, Any] = {}

        def add_all(put: Put) -> Submit:
            del put
            return lambda part: self.submit(
                'total', [updates[index][part] for index in range(len(updates))]
            )

        while len(totals) < num_parts:
            missing = [part for part in range(num_parts) if part not in totals]
            adding = Tasks(self, add_all, missing)
            submitted()
            results = dict(zip(missing, adding.results(), strict=True))
            lost = {
                index
                for result in results.values()
                if isinstance(result, ray_tasks.Lost)
                for index in result.indices
            }
            totals |= {
                part: result
                for part, result in results.items()
                if not isinstance(result, ray_tasks.Lost)
            }
            failures.update(lost)
            if _MOST_FAILURES in failures.values():
                raise RayError(_FAILED.format(_LOSSES[ray.exceptions.ObjectLostError]))
            again = sorted(lost)
            updates |= zip(again, Tasks(self, submit_all, again).results(), strict=True)
            if again:
                self.losses[_LOSSES[ray.exceptions.ObjectLostError]] += len(again)
        return [totals[part] for part in range(num_parts)]


class Kept:
    """Bytes that a process of Ray reads once, and keeps by their digest."""

    def __init__(self, data: bytes):
        self._key = hashlib.sha256(data).hexdigest()
        self._data = np.frombuffer(data, np.uint8)  # Processes of a node share an array.

    def put(self, put: Put) -> ray_tasks.Kept:
        """The object in the form that a task takes."""
        return ray_tasks.Kept(self._key, [put(self._data)])


class Tasks:
    """Tasks that are submitted, and again when they are lost.

    Args:
      rounds: what submits them.
      submit_all: takes `Put` and returns `Submit`. Called again after a loss: objects in the store
        may be lost, too.
      indices: of the tasks.
    """

    def __init__(self, rounds: Rounds, submit_all: Callable[[Put], Submit], indices: Sequence[int]):
        self._rounds = rounds
        self._submit_all = submit_all
        # By the reference to the first result of a task: its index, and its other references.
        self._waiting: dict[Any, tuple[int, list[Any]]] = {}
        self._results: dict[int, Any] = dict.fromkeys(indices)
        submit = submit_all(ray.put)
        for index in indices:
            self._submit(submit, index)
        self._losses: collections.Counter[str] = collections.Counter()

    def results(self) -> list[Any]:
        """Waits for the tasks, counts what was lost, and returns their results in order.

        The result of a task that has several is the references to all but the first one.

        Raises:
          RayError, ComputationError, OutOfMemoryError: as in `Rounds.updates`; another error of a
            task as it is, if it is of one line.
        """
        try:
            self._collect()
        except BaseException:
            self.cancel()
            raise
        self._rounds.losses.update(self._losses)
        return list(self._results.values())

    def cancel(self) -> None:
        """Ends the tasks that have not ended."""
        for reference in self._waiting:
            ray.cancel(reference, force=True)
        self._waiting.clear()

    def _submit(self, submit: Submit, index: int) -> None:
        references = submit(index)
        first, *others = references if isinstance(references, list) else [references]
        self._waiting[first] = index, others

    def _collect(self) -> None:
        rounds, waiting = self._rounds, self._waiting
        failures: collections.Counter[tuple[int, str]] = collections.Counter()
        patience = _Patience(rounds)
        while waiting:
            if rounds.stop.is_set():
                raise ComputationError('the runtime has ended')
            # All that are done, or that are within the time: one call for hundreds of tasks.
            done, _ = ray.wait([*waiting], num_returns=len(waiting), timeout=_POLL_SECONDS)
            lost = []
            for reference in done:
                index, others = waiting.pop(reference)
                try:
                    self._results[index] = ray.get(reference)
                    self._results[index] = others or self._results[index]
                    patience.renew()
                except Exception as error:  # Of Ray, or of any task.
                    loss = _loss(error)
                    failures[index, loss] += 1
                    if failures[index, loss] == _MOST_FAILURES:
                        raise _final(error, loss) from None
                    self._losses[loss] += 1
                    lost.append(index)
            if lost:
                rounds.stop.wait(_SECONDS_BEFORE_AGAIN)
                submit = self._submit_all(ray.put)
                for index in lost:
                    self._submit(submit, index)
            patience.check()


class _Patience:
    """How long to wait for a cluster."""

    def __init__(self, rounds: Rounds):
        self._rounds = rounds
        self._arrived = self._looked = time.monotonic()
        self._with_head = self._with_nodes = self._looked

    def renew(self) -> None:
        """Something has arrived."""
        self._arrived = time.monotonic()

    def check(self) -> None:
        """Raises RayError if it takes too long."""
        now, timeout = time.monotonic(), self._rounds.timeout
        if now - self._arrived > timeout:
            raise RayError(f'Ray: no shard has arrived for {timeout:g} seconds (ray_timeout)')
        if now - self._looked < _LOOK_SECONDS:
            return
        self._looked = now
        num_cores = self._rounds.num_cores()
        if num_cores is not None:
            self._with_head = now
        elif now - self._with_head > _SECONDS_WITHOUT_HEAD:
            seconds = f'{_SECONDS_WITHOUT_HEAD:g} seconds'
            raise RayError(f'Ray: the head of the cluster has not answered for {seconds}')
        if num_cores != 0:
            self._with_nodes = now
        elif now - self._with_nodes > _SECONDS_WITHOUT_NODES:
            seconds = f'{_SECONDS_WITHOUT_NODES:g} seconds'
            raise RayError(f'Ray: the cluster has had no node with a processor core for {seconds}')


def _loss(error: Exception) -> str:
    """The kind of a loss, in words."""
    for kind, words in _LOSSES.items():
        if isinstance(error, kind):
            return words
    cause = getattr(error, 'cause', None) or error
    if isinstance(cause, OutOfMemoryError | MemoryError):
        return 'a task was out of memory'
    return f'a task failed: {type(cause).__name__}: {errors.shown(cause)}'


def _final(error: Exception, loss: str) -> Exception:
    """The error that ends the run."""
    cause = getattr(error, 'cause', None)
    if isinstance(cause, _PLAIN):
        return cause
    kind = TaskError if isinstance(error, ray.exceptions.RayTaskError) else RayError
    return kind(_FAILED.format(loss))


_log = logging.getLogger(__name__)


class Shards(Sequence):
    """The shards of a cohort, as ids of clients.

    Attributes:
      submitted: called when their tasks are submitted, so that the next cohort is read while this
        process makes noise and writes files.
    """

    def __init__(self, reader, template, members, submitted):
        self._reader = reader
        self._template = template
        self._members = members
        self.submitted = submitted

    def __len__(self) -> int:
        return len(self._members)

    def __getitem__(self, index: Any) -> Any:
        return self._members[index]

    def of_shard(self, put: Put) -> Callable[[int], tuple[Any, ...]]:
        """The task of a shard: its name, and arguments after program and message."""
        reader = self._reader.put(put)
        return lambda index: ('update_of', reader, self._template, self._members[index])


class Cohorts:
    """Iterator over the shards of cohorts, read a round ahead.

    Args:
      rounds: what submits tasks.
      cohorts, client_data, num_shards, observe, describe: as in `shards.sharded_cohorts`.
    """

    def __init__(
        self,
        rounds: Rounds,
        cohorts: Iterable[Sequence[Any]],
        client_data: Callable[[Any], Any],
        num_shards: int,
        observe: Callable[[list[Any]], None],
        describe: Callable[[list[Any]], Any],
    ):
        self._rounds = rounds
        self._cohorts = iter(cohorts)
        self._of_here = client_data, num_shards, observe, describe
        self._num_shards = num_shards
        self._observe = observe
        # Both functions, if they have a form that other processes take.
        self._reader: Kept | None = None
        try:
            data = ray.cloudpickle.dumps((client_data, describe))
            self._reader = Kept(data) if len(data) <= _MOST_READER_BYTES else None
        except Exception as error:  # Pickling calls methods of any class.
            _log.info('the data of clients cannot be read by other processes: %s', error)
        # The next cohort, and the tasks that read it.
        self._next: tuple[Sequence[Any], Tasks] | None = None
        self._here: Any = None
        if self._reader is None:
            self._read_here(())

    def __iter__(self) -> 'Cohorts':
        return self

    def __next__(self) -> Any:
        if self._here is not None:
            return next(self._here)
        self.begin()
        if self._next is None:
            raise StopIteration
        cohort, tasks = self._next
        self._next = None
        try:
            parts = tasks.results()
        except (RuntimeError, ValueError) as error:
            is_lost = isinstance(error, RayError) and not isinstance(error, TaskError)
            if self._rounds.stop.is_set() or is_lost:
                raise
            # Such as a file that this process has and other nodes do not.
            _log.warning('this process reads the data of clients, for Ray cannot: %s', error)
            return next(self._read_here([cohort]))
        rows, descriptions = [], []
        for of_part in parts:
            rows += of_part.rows
            descriptions += of_part.descriptions
        self._observe(descriptions)
        template = next((part.template for part in parts if part.template is not None), None)
        divided = [] if template is None else shards_lib.balanced(rows, self._num_shards)
        members = [
            [(cohort[index], descriptions[index]) for index in of_shard] for of_shard in divided
        ]
        return Shards(self._reader, template, members, self.begin)

    def begin(self) -> None:
        """Begins to read the next cohort."""
        reader = self._reader
        if self._next is not None or self._here is not None or reader is None:
            return
        cohort = next(self._cohorts, None)
        if cohort is None:
            return
        parts = min(len(cohort), max(1, self._rounds.num_cores() or 1))
        bounds = [len(cohort) * part // max(1, parts) for part in range(parts + 1)]

        def submit_all(put: Put) -> Callable[[int], Any]:
            kept = reader.put(put)
            return lambda part: self._rounds.submit(
                'describe', kept, list(cohort[bounds[part] : bounds[part + 1]])
            )

        self._next = cohort, Tasks(self._rounds, submit_all, range(parts))

    def _read_here(self, first: Sequence[Sequence[Any]]) -> Any:
        client_data, num_shards, observe, describe = self._of_here
        cohorts = itertools.chain(first, self._cohorts)
        self._here = shards_lib.sharded_cohorts(cohorts, client_data, num_shards, observe, describe)
        return self._here

    def close(self) -> None:
        """Ends what reads the next cohort."""
        if self._here is not None:
            self._here.close()
        if self._next is not None:
            self._next[1].cancel()
