"""Runs TFF computations in threads of this process, or the shards of their rounds on Ray.

```python
with contexts.local_runtime():  # or ray_runtime(), with the same results
    state = process.initialize()
    state, metrics = process.next(state, cohort)
```

TFF's own runtime sends model, state and data to a worker process in every round, in messages of at
most 2 GB. Here they stay in this process, which starts no other process and opens no port, unless
the run is on Ray.
"""

import asyncio
import atexit
import concurrent.futures
import contextlib
import dataclasses
import functools
import threading
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from dpfl import _validate
from dpfl.runtime import interpreter, memory, shards, signals, split_round, tff_import
from dpfl.runtime.failures import ComputationError, OutOfMemoryError, RayError

__all__ = [
    'ComputationError',
    'OutOfMemoryError',
    'RayError',
    'local_runtime',
    'ray_runtime',
    'runtime',
]

# How long a signal may wait.
_SIGNAL_SECONDS = 0.2
RAY_TIMEOUT = 3600.0


@contextlib.contextmanager
def local_runtime(*, for_programs: bool = False) -> Iterator[None]:
    """Context manager within which TFF computations of this thread execute in this process.

    In the main thread SIGINT raises `KeyboardInterrupt` within the block, SIGTERM and SIGHUP raise
    `SystemExit(128 + number)`, unless the process handles or ignores them itself. A signal ends the
    block and a computation in progress. If the exception is caught or gets lost, the next
    computation raises it again. Long native calls in the main thread, other than computations,
    delay it.

    TensorFlow is fastest with TF_NUM_INTRAOP_THREADS=1 and TF_ENABLE_ONEDNN_OPTS=1 in the
    environment before it is imported; the binaries set both.

    Args:
      for_programs: whether to install a `tff.program.FederatedContext`, which TFF's programs need,
        such as `tff.learning.programs.train_model`. Computations then return references to values,
        within a running event loop only.

    Raises:
      ComputationError: from a computation in the block, if it fails or needs something unsupported:
        secure sums (TFF has a test context for them), `federated_select`, code of frameworks other
        than TensorFlow.
      OutOfMemoryError: from a computation in the block, if there is not enough memory for a tensor.
    """
    _prepare_process()
    with contextlib.ExitStack() as stack:
        watch = stack.enter_context(signals.Signals())
        context = stack.enter_context(contextlib.closing(_LocalContext(watch)))
        installed: Any = context
        if for_programs:  # Of a context, TFF calls nothing but this coroutine.
            asynchronous: Any = types.SimpleNamespace(invoke=context.invoke_async)
            installed = tff.program.NativeFederatedContext(asynchronous)
        stack.enter_context(tff.framework.get_context_stack().install(installed))
        yield


@functools.cache
def _prepare_process() -> None:
    """Settings of this process that make rounds faster, and its end clean; made once."""
    # TFF's default context has to end before the interpreter does.
    atexit.register(tff_import.drop_default_context)
    # Shards already run in parallel: with two threads per operation a round takes a third longer.
    # Once TensorFlow has computed or traced something, the setting cannot be changed
    # (TF_NUM_INTRAOP_THREADS=1 in the environment holds from the start).
    with contextlib.suppress(RuntimeError):
        tf.config.threading.set_intra_op_parallelism_threads(1)
    memory.keep_freed()


class _LocalContext(tff.framework.SyncContext):
    """Executes computations in a thread, so that the main thread can handle signals."""

    def __init__(self, watch):
        # A client (or shard) for each processor core that this process may use.
        self._interpreter = interpreter.Interpreter(shards.default_num_shards())
        self._thread = _Thread('dpfl-runtime', watch)

    def invoke(self, comp, arg):
        """Executes a computation. It keeps running if a signal raises an exception here."""
        return self._thread.call(self._interpreter.execute, comp, arg)

    async def invoke_async(self, comp, arg):
        """Executes a computation while the event loop of this thread goes on."""
        return await asyncio.wrap_future(self._thread.submit(self._interpreter.execute, comp, arg))

    def close(self):
        """Ends a computation in progress."""
        self._interpreter.close()
        self._thread.close()


class _Thread:
    """A thread that works while the main thread can handle signals.

    Attributes:
      abandoned: set when nobody waits for the function in progress any more, because of a signal.
    """

    def __init__(self, name, watch):
        self._thread = concurrent.futures.ThreadPoolExecutor(1, name)
        self._watch = watch
        self.abandoned = threading.Event()

    def call(self, function, *arguments):
        """The result of a function. It keeps running if a signal raises an exception here."""
        self._watch.check()
        return self.finish(function, *arguments)

    def finish(self, function, *arguments):
        """As `call`, also while the exception of a signal is on its way."""
        future = self._submit(function, *arguments)
        # The system may deliver a signal to another thread. Nothing then wakes the main thread, in
        # which Python handles it.
        try:
            while not future.done():
                concurrent.futures.wait([future], timeout=_SIGNAL_SECONDS)
        except BaseException:
            self.abandoned.set()
            raise
        return future.result()

    def submit(self, function, *arguments) -> concurrent.futures.Future:
        """Begins to call a function."""
        self._watch.check()
        return self._submit(function, *arguments)

    def _submit(self, function, *arguments) -> concurrent.futures.Future:
        """As `submit`, also while the exception of a signal is on its way."""

        def begin():
            self.abandoned.clear()
            return function(*arguments)

        return self._thread.submit(begin)

    def close(self):
        """Waits for the function in progress, unless a signal made its caller abandon it.

        A computation is not interrupted while TFF compiles it.
        """
        self._thread.shutdown(wait=not self.abandoned.is_set())


@dataclasses.dataclass(frozen=True)
class Runtime:
    """A runtime within its block.

    Attributes:
      losses: numbers of losses of Ray so far, by kind, such as 'a node ended'; all were computed
        again. Empty without Ray.
      sharded_cohorts: like `shards.sharded_cohorts`, with the same results. Processes of Ray read
        the data themselves, if `client_data` and `describe` can be pickled and they can open the
        files that these open. Close the iterator that it returns.
    """

    losses: Mapping[str, int]
    sharded_cohorts: Callable[..., Any]


@contextlib.contextmanager
def ray_runtime(
    address: str | None = None,
    *,
    timeout: float = RAY_TIMEOUT,
) -> Iterator[Runtime]:
    """Context manager within which Ray executes the shards of rounds, and this process the rest.

    A computation that takes a state and shards is split (`split_round.py`). The processes of Ray
    get what the server sends to clients, and their shards, and return an update for each shard.
    Everything else in the state stays in this process, above all the key of the noise. Results have
    the bits of `local_runtime`, for any number of processes and nodes, if their processors and
    packages are the same.

    A shard whose process, node or objects are lost is computed again, to the same bits. Signals are
    as in `local_runtime`. No process of a Ray that was started here outlives the block.

    Args:
      address: 'local', 'auto', `host:port` or None, as in `ray_cluster.connected`.
      timeout: seconds within which some shard of a round must arrive.

    Raises:
      ArgumentError: if an argument is out of range, or the process is connected to another cluster.
      RayError: if Ray is not installed, does not start, or does not answer; from a computation in
        the block, if a shard fails three times in the same way, if none arrives in time, or if
        there has been no node that computes for a minute.
      ComputationError, OutOfMemoryError: as in `local_runtime`.
    """
    _validate.number('ray_timeout', timeout, above=0)
    from dpfl.runtime import ray_cluster

    with contextlib.ExitStack() as stack:
        watch = stack.enter_context(signals.Signals())
        stack.enter_context(local_runtime())
        thread = stack.enter_context(contextlib.closing(_Thread('dpfl-ray', watch)))
        connection = contextlib.ExitStack()

        @stack.callback
        def leave():
            # In this order: what is in progress, then the connection, also if it just begins.
            thread.abandoned.set()
            thread.finish(connection.close)

        thread.call(connection.enter_context, ray_cluster.connected(address))
        signals.reinstall()  # Ray's own for SIGTERM would write a stack trace first.
        from dpfl.runtime import ray_rounds  # Imports Ray.

        rounds = thread.call(ray_rounds.Rounds, timeout, thread.abandoned)
        contexts = tff.framework.get_context_stack()
        context = _RayContext(contexts.current, thread, rounds)
        stack.enter_context(contexts.install(context))

        def sharded_cohorts(*arguments: Any) -> Any:
            return _Called(thread, ray_rounds.Cohorts(rounds, *arguments))

        yield Runtime(rounds.losses, sharded_cohorts)


class _Called:
    """An iterator that works in another thread."""

    def __init__(self, thread, iterator):
        self._thread = thread
        self._iterator = iterator

    def __iter__(self):
        return self

    def __next__(self):
        # `self` marks the end, because a future does not take a StopIteration.
        element = self._thread.call(next, self._iterator, self)
        if element is self:
            raise StopIteration
        return element

    def close(self):
        self._thread.finish(self._iterator.close)


@contextlib.contextmanager
def runtime(
    ray: str | None,
    *,
    ray_timeout: float = RAY_TIMEOUT,
) -> Iterator[Runtime]:
    """The runtime of a setting: `ray_runtime`, or `local_runtime` if `ray` is None.

    Args:
      ray: the address of `ray_runtime`; None for this process alone.
      ray_timeout: the timeout of `ray_runtime`.
    """
    if ray is not None:
        with ray_runtime(ray, timeout=ray_timeout) as runtime:
            yield runtime
        return
    with local_runtime():
        yield Runtime({}, shards.sharded_cohorts)


class _RayContext(tff.framework.SyncContext):
    """Executes shards on Ray, and everything else in a local context."""

    def __init__(self, local, thread, rounds):
        self._local = local
        self._thread = thread
        self._rounds = rounds
        self._splits: dict[int, tuple[Any, split_round.SplitRound]] = {}

    def invoke(self, comp, arg):
        if not split_round.has_shards(comp):
            return self._local.invoke(comp, arg)
        # By identity: the hash of a computation is computed from all of its graphs.
        if id(comp) not in self._splits:
            self._splits[id(comp)] = (comp, split_round.split(comp))
        split = self._splits[id(comp)][1]
        state, shards = arg
        message, kept = self._local.invoke(split.begin, state)
        updates = self._thread.call(self._rounds.updates, split, message, shards)
        return self._local.invoke(split.finish, tff.structure.Struct.unnamed(kept, updates))
