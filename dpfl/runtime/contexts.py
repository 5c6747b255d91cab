"""Runs TFF computations in threads of this process, or their shards on other hosts.

```python
with runtime.local_runtime():
    state = process.initialize()
    state, metrics = process.next(state, cohort)
```

TFF's own runtime sends model, state and data to a worker process in every round, in messages of at
most 2 GB. Here they stay in this process, which starts no other process and opens no port. Workers
on other hosts (`--workers`) are TFF's.
"""

import asyncio
import atexit
import concurrent.futures
import contextlib
import functools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from dpfl import _validate
from dpfl.runtime import default_context, interpreter, memory, shards, signals, split_round
from dpfl.runtime.failures import ComputationError, OutOfMemoryError, WorkerError
from dpfl.runtime.workers import addresses, remote

__all__ = [
    'ComputationError',
    'OutOfMemoryError',
    'WorkerError',
    'distributed_runtime',
    'local_runtime',
]

# How long a signal may wait.
_SIGNAL_SECONDS = 0.2
# A run has few of them: the number of shards in its rounds, and 0 in other computations.
_MAX_COHORT_SIZES = 10


@contextlib.contextmanager
def local_runtime(
    *,
    max_concurrent_clients: int | None = None,
    observe: Callable[[str, float], None] | None = None,
    for_programs: bool = False,
) -> Iterator[None]:
    """Context manager within which TFF computations of this thread execute in this process.

    In the main thread SIGINT raises `KeyboardInterrupt` within the block, SIGTERM and SIGHUP raise
    `SystemExit(128 + number)`, unless the process handles or ignores them itself. A signal ends the
    block and a computation in progress. If the exception is caught or gets lost, the next
    computation raises it again. Long native calls in the main thread, other than computations,
    delay it.

    TensorFlow is fastest with TF_NUM_INTRAOP_THREADS=1 and TF_ENABLE_ONEDNN_OPTS=1 in the
    environment before it is imported; the binaries set both.

    Args:
      max_concurrent_clients: how many clients (shards) of a round run at a time; by default the
        number of processor cores that this process may use.
      observe: as in `interpreter.Interpreter`.
      for_programs: whether to install a `tff.program.FederatedContext`, which TFF's programs need,
        such as `tff.learning.programs.train_model`. Computations then return references to values,
        within a running event loop only.

    Raises:
      ValueError: if an argument is out of range.
      ComputationError: from a computation in the block, if it fails or needs something unsupported:
        secure sums (TFF has a test context for them), `federated_select`, code of frameworks other
        than TensorFlow.
      OutOfMemoryError: from a computation in the block, if there is not enough memory for a tensor.
    """
    if max_concurrent_clients is None:
        max_concurrent_clients = shards.default_num_shards()
    _validate.integer('max_concurrent_clients', max_concurrent_clients, minimum=1)
    _prepare_process()
    with contextlib.ExitStack() as stack:
        watch = stack.enter_context(signals.Signals())
        context = stack.enter_context(
            contextlib.closing(_LocalContext(max_concurrent_clients, watch, observe))
        )
        installed = tff.program.NativeFederatedContext(_Async(context)) if for_programs else context
        stack.enter_context(tff.framework.get_context_stack().install(installed))
        yield


@functools.cache
def _prepare_exit() -> None:
    """Lets TFF's default context end before the interpreter does, where it still can."""
    atexit.register(default_context.drop)


def _prepare_process() -> None:
    """Settings of this process that make rounds faster, and its end clean."""
    _prepare_exit()
    # Shards already run in parallel: with two threads per operation a round takes a third longer.
    # Once TensorFlow has computed or traced something, the setting cannot be changed
    # (TF_NUM_INTRAOP_THREADS=1 in the environment holds from the start).
    with contextlib.suppress(RuntimeError):
        tf.config.threading.set_intra_op_parallelism_threads(1)
    memory.keep_freed()


class _LocalContext(tff.framework.SyncContext):
    """Executes computations in a thread, so that the main thread can handle signals."""

    def __init__(self, max_concurrent_clients, watch, observe):
        self._watch = watch
        self._interpreter = interpreter.Interpreter(max_concurrent_clients, observe)
        self._thread = concurrent.futures.ThreadPoolExecutor(1, 'dpfl-runtime')

    def invoke(self, comp, arg):
        """Executes a computation. It keeps running if a signal raises an exception here."""
        future = self.submit(comp, arg)
        # The system may deliver a signal to another thread. Nothing then wakes the main thread, in
        # which Python handles it.
        while not future.done():
            concurrent.futures.wait([future], timeout=_SIGNAL_SECONDS)
        return future.result()

    def submit(self, comp, arg) -> concurrent.futures.Future:
        """Begins to execute a computation."""
        self._watch.check()
        return self._thread.submit(self._interpreter.execute, comp, arg)

    def close(self):
        """Ends a computation in progress."""
        self._interpreter.close()
        self._thread.shutdown()


class _Async:
    """What `tff.program.NativeFederatedContext` needs of a context."""

    def __init__(self, context: _LocalContext):
        self._context = context

    async def invoke(self, comp, arg):
        return await asyncio.wrap_future(self._context.submit(comp, arg))


@contextlib.contextmanager
def distributed_runtime(
    workers: Sequence[str | addresses.Address],
    *,
    observe: Callable[[str, float], None] | None = None,
) -> Iterator[None]:
    """Context manager within which workers on other hosts execute shards, and this host the rest.

    A computation that takes a state and shards is split (`split_round.py`). Each worker gets what
    the server sends to clients and consecutive shards, equally many up to one, and returns an
    update per shard. All else in the state stays on this host, above all the key of the noise.
    Results do not depend on the number of workers. They differ from those of `local_runtime` by
    float32 rounding: TFF's worker is another build of TensorFlow.

    With a worker's token (`addresses.parse`) the connection to it is encrypted, and each side
    proves that it has the token. Without one, nothing is encrypted or authenticated: use a trusted
    network or a tunnel.

    Args:
      workers: where workers listen, as `host:port` or as `addresses.Address`; none for
        `local_runtime`.
      observe: as in `local_runtime`; also called with 'workers' and the seconds that a round waited
        for them.

    Raises:
      ValueError: if one of `workers` is not an address.
      WorkerError: if a worker cannot be reached, has another token, does not compute or has another
        version of TFF; from a computation in the block, within half a minute, if a worker no longer
        answers.
      ComputationError: as in `local_runtime`.
    """
    parsed = addresses.parse(workers)
    with contextlib.ExitStack() as stack:
        stack.enter_context(local_runtime(observe=observe))
        if parsed:
            remotes = [
                stack.enter_context(remote.RemoteWorker(address, _MAX_COHORT_SIZES))
                for address in parsed
            ]
            contexts = tff.framework.get_context_stack()
            context = _DistributedContext(contexts.current, remotes, observe)
            stack.enter_context(contexts.install(context))
        yield


class _DistributedContext(tff.framework.SyncContext):
    """Executes shards on workers, and all else in a local context."""

    def __init__(self, local, workers, observe):
        self._local = local
        self._workers = workers
        self._observe = observe
        self._splits: dict[int, tuple[Any, split_round.SplitRound]] = {}

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
        # By identity: the hash of a computation is computed from all of its graphs.
        if id(comp) not in self._splits:
            self._splits[id(comp)] = (comp, split_round.split(comp))
        return self._splits[id(comp)][1]

    def _work(self, work, message, shards):
        """The updates of all shards, in their order; raises the first error that occurs."""
        parts = split_round.divide(shards, len(self._workers))
        # With fewer shards than workers, the last workers get none.
        futures = [
            worker.submit(work, _pair(message, part))
            for worker, part in zip(self._workers, parts, strict=False)
        ]
        done, _ = concurrent.futures.wait(futures, return_when=concurrent.futures.FIRST_EXCEPTION)
        for future in done:
            future.result()
        return split_round.join([future.result() for future in futures], work.type_signature.result)


def _pair(first, second):
    return tff.structure.Struct.unnamed(first, second)
