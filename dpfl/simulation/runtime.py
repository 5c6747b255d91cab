"""Where TFF computations execute: in a worker of this host, or also in workers of others.

```python
with runtime.local_runtime():
    state = process.initialize()
    state, metrics = process.next(state, cohort)
```

The worker of this host is a process of its own (`worker.py`), dead when the block is left, whether
by its end, an exception, Ctrl-C, SIGTERM or SIGHUP. It executes any graph that it is sent, and asks
nobody who they are. Where the kernel allows it, it has no network, and nobody but this process can
reach it; `LocalRuntime.is_isolated` says whether that is so. Otherwise it listens on every network
interface of the host: close its ports with a firewall.
"""

import concurrent.futures
import contextlib
import dataclasses
import logging
import os
import time
from collections.abc import Callable, Sequence

import tensorflow_federated as tff

from dpfl import _validate
from dpfl.simulation import addresses, executors, remote, signals, split_round
from dpfl.simulation import worker as worker_lib
from dpfl.simulation.failures import ComputationError, WorkerError

__all__ = [
    'ComputationError', 'LocalRuntime', 'WorkerError', 'distributed_runtime', 'local_runtime',
]

_log = logging.getLogger(__name__)

# A run has few: a round's, and none for computations without shards.
_MAX_COHORT_SIZES = 10


@dataclasses.dataclass(frozen=True)
class LocalRuntime:
    """A running local worker.

    Attributes:
      pid: process id of the worker.
      address: where it listens, as gRPC takes it.
      is_isolated: whether it can be reached from this process alone.
      async_context: the same worker for callers that bring their own event loop, such as
        `tff.program.NativeFederatedContext`.
    """

    pid: int
    address: str
    is_isolated: bool
    async_context: tff.framework.AsyncExecutionContext


@contextlib.contextmanager
def local_runtime(
    *,
    max_concurrent_clients: int | None = None,
    max_cohort_sizes: int = _MAX_COHORT_SIZES,
    log_file: str | os.PathLike | None = None,
    start_timeout: float = 60.0,
    observe: Callable[[str, float], None] | None = None,
):
    """Context manager within which TFF computations of this thread execute in an own worker.

    In the main thread SIGINT raises `KeyboardInterrupt` within the block, SIGTERM and SIGHUP raise
    `SystemExit(128 + number)`, unless the process handles or ignores them itself. Each means the
    end of the block: if the exception gets lost on its way, or is caught, the next computation
    raises it once more. Long native calls in the main thread, other than computations, delay it.

    Args:
      max_concurrent_clients: how many clients of a round the worker trains at a time; None for no
        limit other than its threads.
      max_cohort_sizes: for how many cohort sizes (0 is one: computations without clients), those
        used last, the worker keeps what it built. A size that it does not know makes a round
        slower; each that it keeps takes several times the memory of the model.
      log_file: where the output of the worker is appended (that of `tf.print` included); None
        discards it with the worker, except that an error message about its death quotes the end.
      start_timeout: seconds that the worker has for answering.
      observe: as in `executors.Runner`.

    Yields:
      A `LocalRuntime`.

    Raises:
      OSError: if the log file cannot be written or the process not be started.
      ValueError: if an argument is out of bounds.
      WorkerError: if the worker ends or does not answer in time; out of a computation in the block,
        if the worker dies under it. It is not restarted.
      ComputationError: out of a computation in the block, if it fails.
    """
    if max_concurrent_clients is not None:
        _validate.integer('max_concurrent_clients', max_concurrent_clients, minimum=1)
    _validate.integer('max_cohort_sizes', max_cohort_sizes, minimum=1)
    start_timeout = _validate.number('start_timeout', start_timeout, above=0)
    with contextlib.ExitStack() as stack:
        watch = stack.enter_context(signals.Signals())
        worker = stack.enter_context(worker_lib.Worker(
            max_concurrent_clients=max_concurrent_clients, log_file=log_file
        ))
        worker.await_ready(start_timeout)
        if not worker.is_isolated():
            _log.warning(
                'the TFF worker listens on every network interface: this system allows no user '
                'namespaces'
            )
        channel = stack.enter_context(executors.channel(worker.target))
        runner = stack.enter_context(
            executors.Runner(channel, worker.explain, max_cohort_sizes, observe)
        )
        stack.enter_context(tff.framework.get_context_stack().install(_Context(runner, watch)))
        # First of all at exit: whatever interrupts the steps after it, the worker is gone.
        stack.callback(worker.kill)
        yield LocalRuntime(
            worker.pid, worker.target, worker.is_isolated(), runner.async_context
        )


class _Context(tff.framework.SyncContext):
    """Executes computations with a runner."""

    def __init__(self, runner, watch):
        self._runner = runner
        self._watch = watch

    def invoke(self, comp, arg):
        """Executes a computation; an exception raised here by a signal leaves it running."""
        self._watch.check()
        return self._runner.submit(comp, arg).result()


@contextlib.contextmanager
def distributed_runtime(
    workers: Sequence[str],
    *,
    observe: Callable[[str, float], None] | None = None,
):
    """Context manager within which shards are worked on elsewhere, and all else in an own worker.

    A computation that takes a state and shards is divided (`split_round.py`): each worker gets
    what the server sends to clients, and consecutive shards, as many as the others or one more; and
    returns an update per shard. Whatever else the state holds stays on this host, the key of the
    noise above all. Results are those of `local_runtime`, bit for bit.

    Nothing is encrypted, and nobody is asked who they are: the network has to be one where neither
    matters, or connections go through a tunnel.

    Args:
      workers: where workers listen, as `host:port`; none for `local_runtime`.
      observe: as in `executors.Runner`, of the own worker; and 'workers' with the seconds that a
        round waited for the others.

    Yields:
      The `LocalRuntime` of the own worker.

    Raises:
      ValueError: if one of `workers` is not an address.
      WorkerError: as in `local_runtime`; if a worker cannot be reached, does not compute or has
        another version of TFF; out of a computation in the block, within half a minute, if a worker
        no longer answers.
      ComputationError: as in `local_runtime`.
    """
    parsed = addresses.parse(workers)
    with contextlib.ExitStack() as stack:
        local = stack.enter_context(local_runtime(observe=observe))
        if parsed:
            remotes = [
                stack.enter_context(remote.RemoteWorker(address, _MAX_COHORT_SIZES))
                for address in parsed
            ]
            contexts = tff.framework.get_context_stack()
            context = _DistributedContext(contexts.current, remotes, observe)
            stack.enter_context(contexts.install(context))
        yield local


class _DistributedContext(tff.framework.SyncContext):
    """Executes the shards of computations that have any with workers, the rest in a context."""

    def __init__(self, local, workers, observe):
        self._local = local
        self._workers = workers
        self._observe = observe
        self._splits = {}

    def invoke(self, comp, arg):
        if not split_round.has_shards(comp):
            return self._local.invoke(comp, arg)
        split = self._split(comp)
        state, shards = arg
        message = self._local.invoke(split.begin, state)
        started = time.perf_counter()
        updates = self._work(split.work, message, shards)
        if self._observe is not None:
            self._observe('workers', time.perf_counter() - started)
        return self._local.invoke(split.finish, _pair(state, updates))

    def _split(self, comp):
        # By identity: its own hash is that of all of its graphs.
        if id(comp) not in self._splits:
            self._splits[id(comp)] = (comp, split_round.split(comp))
        return self._splits[id(comp)][1]

    def _work(self, work, message, shards):
        """The updates of all shards, in their order; raises the first error that occurs."""
        parts = split_round.divide(shards, len(self._workers))
        # If there are fewer shards than workers, the last ones have nothing to do.
        futures = [
            worker.submit(work, _pair(message, part))
            for worker, part in zip(self._workers, parts, strict=False)
        ]
        done, _ = concurrent.futures.wait(
            futures, return_when=concurrent.futures.FIRST_EXCEPTION
        )
        for future in done:
            future.result()
        return split_round.join(
            [future.result() for future in futures], work.type_signature.result
        )


def _pair(first, second):
    return tff.structure.Struct.unnamed(first, second)
