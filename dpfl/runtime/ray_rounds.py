"""Executes the shards of rounds on Ray, and again where Ray loses one.

Ray places tasks on nodes and moves objects between them. This module submits one task for each
shard, collects the results in the order of the shards, and submits a task again if its process,
its node or one of its objects was lost: a task is a pure function of its arguments, so the result
has the same bits.
"""

import collections
import hashlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import ray
import tensorflow_federated as tff

from dpfl import errors
from dpfl.runtime import compilation, ray_tasks, values
from dpfl.runtime.failures import ComputationError, OutOfMemoryError, RayError

# A task that fails in the same way this many times ends the run.
_MOST_FAILURES = 3
# How long the cluster may be without a node that computes.
_SECONDS_WITHOUT_NODES = 60.0
# Between two looks at signals, and at the cluster while nothing arrives.
_POLL_SECONDS = 0.2
_LOOK_SECONDS = 5.0
# Errors of a task that say what is wrong in one line.
_PLAIN = (ComputationError, errors.RunError, errors.DataError, errors.ArgumentError)

# What was lost, by the error that Ray raises; the first that matches.
_LOSSES = {
    ray.exceptions.OutOfMemoryError: 'a worker process was out of memory',
    ray.exceptions.WorkerCrashedError: 'a worker process ended',
    ray.exceptions.NodeDiedError: 'a node ended',
    ray.exceptions.ObjectLostError: 'an object of the store was lost',
}


class Rounds:
    """Executes shards on the cluster that this process is connected to.

    Args:
      timeout: seconds within which some shard of a round must arrive.

    Attributes:
      losses: how often something was lost, by what it was.
    """

    def __init__(self, timeout: float):
        self.losses: collections.Counter[str] = collections.Counter()
        self._timeout = timeout
        self._setting = ray_tasks.setting()
        # This module submits tasks again by itself, to count what was lost.
        self._run = ray.remote(num_cpus=1, max_retries=0)(ray_tasks.run)
        self._computations: dict[int, tuple[tff.Computation, str, np.ndarray]] = {}

    def updates(
        self, work: tff.Computation, message: Any, shards: Sequence[Any], stop: threading.Event
    ) -> list[Any]:
        """The updates of shards, in their order.

        Args:
          work: as in `split_round.SplitRound`.
          message: the message of the round.
          shards: their data, such as a `tf.data.Dataset` each.
          stop: ends the wait with a ComputationError when it is set.

        Raises:
          RayError: if a shard is lost too often, or too late, or there is no node to compute it.
          ComputationError, OutOfMemoryError: if a computation fails.
        """
        shard_type = work.type_signature.parameter[1].member
        data = [values.from_python(shard, shard_type) for shard in shards]
        key, program = self._bytes(work)

        def submit_all(put: Callable[[Any], Any]) -> Callable[[int], Any]:
            kept, common = ray_tasks.Kept(key, [put(program)]), put(message)
            return lambda index: self.submit('update', kept, common, data[index])

        return self.results(submit_all, len(shards), stop)

    def submit(self, name: str, *arguments: Any) -> Any:
        """Submits a task: a function of `ray_tasks` by its name; returns its reference."""
        return self._run.options(name=f'dpfl {name}').remote(self._setting, name, *arguments)

    def results(
        self,
        submit_all: Callable[[Callable[[Any], Any]], Callable[[int], Any]],
        count: int,
        stop: threading.Event,
    ) -> list[Any]:
        """The results of `count` tasks, in their order.

        Args:
          submit_all: takes a function that puts an object into Ray's store, and returns one that
            submits the task of an index. Called again after a loss: objects may be gone, too.
          count: number of tasks.
          stop: as in `updates`.

        Raises:
          RayError, ComputationError, OutOfMemoryError: as in `updates`.
        """
        submit = submit_all(ray.put)
        waiting = {submit(index): index for index in range(count)}
        results: list[Any] = [None] * count
        failures: collections.Counter[tuple[int, str]] = collections.Counter()
        patience = _Patience(self._timeout)
        try:
            while waiting:
                if stop.is_set():
                    raise ComputationError('the runtime has ended')
                done, _ = ray.wait(list(waiting), timeout=_POLL_SECONDS)
                for reference in done:
                    index = waiting.pop(reference)
                    try:
                        results[index] = ray.get(reference)
                        patience.renew()
                    except Exception as error:  # noqa: BLE001 - of Ray, or of any task.
                        loss = _loss(error)
                        failures[index, loss] += 1
                        if failures[index, loss] == _MOST_FAILURES:
                            raise _final(error, loss) from None
                        self.losses[loss] += 1
                        submit = submit_all(ray.put)
                        waiting[submit(index)] = index
                if not done:
                    patience.check()
        except BaseException:
            for reference in waiting:
                ray.cancel(reference, force=True)
            raise
        return results

    def _bytes(self, work: tff.Computation) -> tuple[str, np.ndarray]:
        # By identity: the hash of a computation is computed from all of its graphs.
        if id(work) not in self._computations:
            data = compilation.to_bytes(work)
            digest = hashlib.sha256(data).hexdigest()
            self._computations[id(work)] = work, digest, np.frombuffer(data, np.uint8)
        return self._computations[id(work)][1:]


class _Patience:
    """How long to wait for a cluster from which nothing arrives."""

    def __init__(self, timeout: float):
        self._timeout = timeout
        self.renew()
        self._with_nodes = self._looked = time.monotonic()

    def renew(self) -> None:
        """Something has arrived."""
        self._arrived = time.monotonic()

    def check(self) -> None:
        """Raises RayError if it takes too long."""
        now = time.monotonic()
        if now - self._arrived > self._timeout:
            raise RayError(f'Ray: no shard has arrived for {self._timeout:g} seconds (ray_timeout)')
        if now - self._looked < _LOOK_SECONDS:
            return
        self._looked = now
        if ray.cluster_resources().get('CPU', 0) >= 1:
            self._with_nodes = now
        elif now - self._with_nodes > _SECONDS_WITHOUT_NODES:
            seconds = f'{_SECONDS_WITHOUT_NODES:g} seconds'
            raise RayError(f'Ray: the cluster has had no node with a processor core for {seconds}')


def _loss(error: Exception) -> str:
    """What was lost, in words."""
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
    return RayError(f'Ray: {_MOST_FAILURES} times in one round, for one shard: {loss}')
