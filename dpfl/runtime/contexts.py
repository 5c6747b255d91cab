"""Where TFF computations execute: in threads of this process, or shards also on other hosts.

```python
with runtime.local_runtime():
    state = process.initialize()
    state, metrics = process.next(state, cohort)
```

TFF's own runtime executes in a worker process, to which model, state and data are sent in every
round, in messages of at most 2 GB. Here they stay where they are, nothing is started, and nothing
listens. Workers of other hosts (`--workers`) are TFF's.
"""

import concurrent.futures
import contextlib
import time
from collections.abc import Callable, Sequence

import tensorflow as tf
import tensorflow_federated as tff

from dpfl import _validate
from dpfl.runtime import interpreter, memory, shards, signals, split_round
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
# A run has few: a round's, and none for computations without shards.
_MAX_COHORT_SIZES = 10


@contextlib.contextmanager
def local_runtime(
    *,
    max_concurrent_clients: int | None = None,
    observe: Callable[[str, float], None] | None = None,
) -> Iterator[None]:
    """Context manager within which TFF computations of this thread execute in this process.

    In the main thread SIGINT raises `KeyboardInterrupt` within the block, SIGTERM and SIGHUP raise
    `SystemExit(128 + number)`, unless the process handles or ignores them itself. Each means the
    end of the block, and of a computation in progress: if the exception gets lost on its way, or is
    caught, the next computation raises it once more. Long native calls in the main thread, other
    than computations, delay it.

    TensorFlow is fastest with TF_NUM_INTRAOP_THREADS=1 and TF_ENABLE_ONEDNN_OPTS=1 in the
    environment before it is imported; the binaries set both.

    Args:
      max_concurrent_clients: how many clients (shards) of a round are worked on at a time; the
        number of processor cores that this process may use by default.
      observe: as in `interpreter.Interpreter`.

    Raises:
      ValueError: if an argument is out of bounds.
      ComputationError: out of a computation in the block, if it fails, or if it needs what is not
        executed here: secure sums (TFF has a test context for those), `federated_select`, code of
        other frameworks than TensorFlow.
      OutOfMemoryError: out of a computation in the block, if a tensor finds no memory.
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
        stack.enter_context(tff.framework.get_context_stack().install(context))
        yield


def _prepare_process() -> None:
    """Settings of this process that make rounds faster."""
    # Shards already run side by side: with two threads per operation a round takes a third longer.
    # Where TensorFlow has begun to compute, or to trace functions, its threads stay as they are
    # (TF_NUM_INTRAOP_THREADS=1 in the environment holds from the start).
    with contextlib.suppress(RuntimeError):
        tf.config.threading.set_intra_op_parallelism_threads(1)
    memory.keep_freed()


class _LocalContext(tff.framework.SyncContext):
    """Executes computations in a thread, so that the main thread is free for signals."""

    def __init__(self, max_concurrent_clients, watch, observe):
        self._watch = watch
        self._interpreter = interpreter.Interpreter(max_concurrent_clients, observe)
        self._thread = concurrent.futures.ThreadPoolExecutor(1, 'dpfl-runtime')

    def invoke(self, comp, arg):
        """Executes a computation; an exception raised here by a signal leaves it running."""
        self._watch.check()
        future = self._thread.submit(self._interpreter.execute, comp, arg)
        # Another thread may take a signal, and nothing then wakes the main thread, in which Python
        # handles it.
        while not future.done():
            concurrent.futures.wait([future], timeout=_SIGNAL_SECONDS)
        return future.result()

    def close(self):
        """Ends a computation in progress."""
        self._interpreter.close()
        self._thread.shutdown()


@contextlib.contextmanager
def distributed_runtime(
    workers: Sequence[str | addresses.Address],
    *,
    observe: Callable[[str, float], None] | None = None,
) -> Iterator[None]:
    """Context manager within which shards are worked on elsewhere, and all else as locally.

    A computation that takes a state and shards is divided (`split_round.py`): each worker gets
    what the server sends to clients, and consecutive shards, as many as the others or one more; and
    returns an update per shard. Whatever else the state holds stays on this host, the key of the
    noise above all. Results do not depend on how many workers there are. They differ from those of
    `local_runtime` by the rounding of float32: TFF's worker is another build of TensorFlow.

    With the token of a worker (`addresses.parse`) the connection to it is encrypted, and each side
    knows that the other has the token. Without, nothing is encrypted, and nobody is asked who they
    are: the network has to be one where neither matters, or connections go through a tunnel.

    Args:
      workers: where workers listen, as `host:port` or as `addresses.Address`; none for
        `local_runtime`.
      observe: as in `local_runtime`; and 'workers' with the seconds that a round waited for them.

    Raises:
      ValueError: if one of `workers` is not an address.
      WorkerError: if a worker cannot be reached, has another token, does not compute or has another
        version of TFF; out of a computation in the block, within half a minute, if a worker no
        longer answers.
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
        done, _ = concurrent.futures.wait(futures, return_when=concurrent.futures.FIRST_EXCEPTION)
        for future in done:
            future.result()
        return split_round.join([future.result() for future in futures], work.type_signature.result)


def _pair(first, second):
    return tff.structure.Struct.unnamed(first, second)
