"""The local worker that executes TFF computations, owned from its start to its end.

TFF executes computations in a child process, the `worker_binary` of its wheel. Started by TFF
itself, that child keeps the standard output of its parent open and can outlive it. Here it belongs
to a `with` block instead:

```python
with runtime.local_runtime():
    state = process.initialize()
    state, metrics = process.next(state, cohort)
```

The child is dead when the block is left, whether by its end, an exception, Ctrl-C, SIGTERM or
SIGHUP. On Linux the kernel also kills it when its parent dies without leaving the block (SIGKILL):
to be exact, when the thread ends that entered the block. It has a session of its own, so that
Ctrl-C in a terminal reaches the parent alone, and none of the parent's standard streams, so that a
pipe ends with the parent.

What does not hold: the worker accepts connections on every network interface of the host, without
authentication, and executes any graph it is sent; its address is fixed in the binary. On a host
that others can reach, close its ports to them with a firewall, or run everything in a network
namespace: `unshare -rn sh -c 'ip link set lo up; exec python ...'`.
"""

import asyncio
import collections
import contextlib
import dataclasses
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import grpc
import tensorflow_federated as tff

from dpfl import _validate
from dpfl.simulation import files

# Runs between fork and worker: asks the kernel (prctl 1, PR_SET_PDEATHSIG) to kill this process
# when its parent dies, and gives up if the parent died before that. A small interpreter rather than
# a `preexec_fn`: Python code between fork and exec can deadlock in a process with threads.
_LAUNCHER = """
import ctypes, os, signal, sys
if sys.platform == 'linux':
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""

_HOST = '127.0.0.1'

_CHANNEL_OPTIONS = (
    ('grpc.max_receive_message_length', -1),
    ('grpc.max_send_message_length', -1),
    ('grpc.enable_http_proxy', 0),
)

# Seconds that a round in progress has for noticing that its worker is gone.
_DRAIN_SECONDS = 10.0


class WorkerError(files.RunError):
    """The worker could not be started, died, or is no longer reachable."""


class ComputationError(RuntimeError):
    """A computation failed in the worker, for instance by an error of TensorFlow in one client."""


@dataclasses.dataclass(frozen=True)
class LocalRuntime:
    """A running local worker.

    Attributes:
      pid: process id of the worker.
      address: where it listens, as `host:port`.
      async_context: the same worker for callers that bring their own event loop, such as
        `tff.program.NativeFederatedContext`.
    """

    pid: int
    address: str
    async_context: tff.framework.AsyncExecutionContext


@contextlib.contextmanager
def local_runtime(
    *,
    max_concurrent_clients: int | None = None,
    max_cohort_sizes: int = 10,
    log_file: str | os.PathLike | None = None,
    start_timeout: float = 60.0,
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
        signals = stack.enter_context(_Signals())
        worker = stack.enter_context(_Worker(max_concurrent_clients, log_file))
        _await_ready(worker, start_timeout)
        channel = stack.enter_context(grpc.insecure_channel(worker.address, _CHANNEL_OPTIONS))
        executors = _Executors(_Stub(worker, channel), max_cohort_sizes)
        factory = stack.enter_context(contextlib.closing(executors))
        context = stack.enter_context(contextlib.closing(_Context(factory, signals)))
        stack.enter_context(tff.framework.get_context_stack().install(context))
        # First of all at exit: whatever interrupts the steps after it, the worker is gone.
        stack.callback(worker.kill)
        yield LocalRuntime(worker.pid, worker.address, context.async_context)


class _Signals:
    """Context manager in which signals that ask the process to end raise exceptions.

    An exception that is raised between any two steps of the main thread can get lost: in a
    finalizer, in native code that clears errors, or in the callback that JAX, which TFF imports,
    adds to every garbage collection. `check` is called where that cannot happen.
    """

    def __init__(self):
        self._previous = {}
        self._pending = None

    def __enter__(self):
        if threading.current_thread() is threading.main_thread():
            for number, default in _DEFAULT_HANDLERS.items():
                if signal.getsignal(number) is default:
                    self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *error):
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, number, frame):
        del frame
        error = KeyboardInterrupt if number == signal.SIGINT else SystemExit
        arguments = () if number == signal.SIGINT else (128 + number,)
        self._pending = error(*arguments)
        raise error(*arguments)

    def check(self):
        """Raises the exception of a signal again, if it came and nothing is handling it."""
        if self._pending is None or threading.current_thread() is not threading.main_thread():
            return
        handled = sys.exc_info()[1]
        while handled is not None and not isinstance(handled, type(self._pending)):
            handled = handled.__context__
        if handled is None:
            pending, self._pending = self._pending, None
            raise pending


# Left alone where the process ignores a signal or has a handler of its own.
_DEFAULT_HANDLERS = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
}


class _Worker:
    """The worker process, its port and its log; a context manager that ends all three."""

    def __init__(self, max_concurrent_clients, log_file):
        with contextlib.ExitStack() as stack:
            self._log = stack.enter_context(
                tempfile.TemporaryFile() if log_file is None else open(log_file, 'ab+')
            )
            self._port = stack.enter_context(_reserve_port())
            self._process = _start_worker(self._port, max_concurrent_clients, self._log)
            self._resources = stack.pop_all()
        self.pid = self._process.pid
        self.address = f'{_HOST}:{self._port}'

    def __enter__(self):
        return self

    def __exit__(self, *error):
        try:
            self.kill()
            self._process.wait()
        finally:
            self._resources.close()

    def kill(self):
        """Ends the process at once: it holds nothing that is worth saving."""
        self._process.kill()

    def is_running(self) -> bool:
        return self._process.poll() is None

    def await_end(self, timeout: float):
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout)

    def accepts_connections(self) -> bool:
        try:
            socket.create_connection((_HOST, self._port), timeout=1.0).close()
        except OSError:
            return False
        return True

    def describe_end(self) -> str:
        """How the process ended, in one line, with the last line of its log."""
        status = self._process.wait()
        how = f'was killed by signal {-status}' if status < 0 else f'exited with status {status}'
        return f'the TFF worker (process {self.pid}) {how}; {self._describe_log()}'

    def _describe_log(self) -> str:
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - 4096))
        lines = self._log.read().decode(errors='replace').strip().splitlines()
        return f'its log ends with: {lines[-1].strip()}' if lines else 'its log is empty'


@contextlib.contextmanager
def _reserve_port():
    """Yields a free TCP port that stays out of the pool of free ports until the end of the block.

    The worker shares the port (gRPC sets SO_REUSEPORT). A socket that is bound but does not listen
    gets no connections, and keeps two runs on one host from being given the same port: they would
    share it, and each other's clients, without an error.
    """
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as reservation:
        if family == socket.AF_INET6:
            reservation.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reservation.bind(('', 0))
        yield reservation.getsockname()[1]


def _start_worker(port, max_concurrent_clients, log) -> subprocess.Popen:
    binary = pathlib.Path(tff.__file__).parent / 'data' / 'worker_binary'
    if not binary.is_file():
        raise WorkerError(f'{binary}: not found; the installed TFF has no worker for this platform')
    concurrency = -1 if max_concurrent_clients is None else max_concurrent_clients
    flags = [f'--port={port}', f'--max_concurrent_computation_calls={concurrency}']
    return subprocess.Popen(
        [sys.executable, '-ISc', _LAUNCHER, str(os.getpid()), str(binary), *flags],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        # The worker warns in every round of events that are part of its normal work; and with a
        # heap for every thread it grows by tens of megabytes in hundreds of rounds (fragmentation).
        env={'TF_CPP_MIN_LOG_LEVEL': '2', 'MALLOC_ARENA_MAX': '2', **os.environ},
        start_new_session=True,
    )


def _await_ready(worker, timeout):
    deadline = time.monotonic() + timeout
    while not worker.accepts_connections():
        if not worker.is_running():
            raise WorkerError(worker.describe_end())
        if time.monotonic() > deadline:
            raise WorkerError(f'the TFF worker did not answer within {timeout:g} seconds')
        time.sleep(0.02)


class _QuietChannel:
    """A channel that reports no changes of its state.

    TFF subscribes to them for its restarts. A thread of gRPC polls for them, and writes a traceback
    to standard error when the channel is closed under it.
    """

    def __init__(self, channel):
        self._channel = channel

    def subscribe(self, callback, try_to_connect=False):
        """Ignores the subscription."""

    def __getattr__(self, name):
        return getattr(self._channel, name)


class _Stub(tff.framework.RemoteExecutorStub):
    """Calls to the worker, whose failures are errors in one line.

    The absence of the worker is an error at once. TFF takes an unreachable executor for one that is
    being restarted, and repeats the computation until it answers: here, a hang.
    """

    def __init__(self, worker, channel):
        self._worker = worker
        self._stub = tff.framework.RemoteExecutorGrpcStub(_QuietChannel(channel))

    def _call(self, method, request):
        try:
            return method(request)
        except grpc.RpcError as error:
            details = ' '.join(str(error.details()).split())
            retryable = isinstance(error, tff.framework.RetryableError)
        if retryable:
            # The connection breaks a moment before the process can be waited for.
            self._worker.await_end(timeout=1.0)
        if not self._worker.is_running():
            raise WorkerError(self._worker.describe_end())
        if retryable:
            raise WorkerError(f'the TFF worker refused a call: {details}')
        raise ComputationError(details)

    def _release(self, method, request):
        # Called by finalizers too; a worker that is gone has nothing to release.
        with contextlib.suppress(grpc.RpcError, ValueError):
            return method(request)

    def get_executor(self, request):
        return self._call(self._stub.get_executor, request)

    def create_value(self, request):
        return self._call(self._stub.create_value, request)

    def create_struct(self, request):
        return self._call(self._stub.create_struct, request)

    def create_call(self, request):
        return self._call(self._stub.create_call, request)

    def create_selection(self, request):
        return self._call(self._stub.create_selection, request)

    def compute(self, request):
        return self._call(self._stub.compute, request)

    def dispose(self, request):
        return self._release(self._stub.dispose, request)

    def dispose_executor(self, request):
        return self._release(self._stub.dispose_executor, request)


class _Executors(tff.framework.ExecutorFactory):
    """The executors of the cohort sizes used last, one for each.

    Unlike TFF's own factory, it closes the executors that it drops, and has their values released
    at once rather than twenty at a time: otherwise a cohort size that changes from round to round
    fills the memory of the worker with graphs and models of earlier rounds.
    """

    def __init__(self, stub, max_count):
        self._stub = stub
        self._max_count = max_count
        self._executors = collections.OrderedDict()

    def create_executor(self, cardinalities):
        key = self._key(cardinalities)
        if key not in self._executors:
            while len(self._executors) >= self._max_count:
                self._executors.popitem(last=False)[1].close()
            executor = tff.framework.RemoteExecutor(self._stub, dispose_batch_size=1)
            executor.set_cardinalities({tff.CLIENTS: 0, **cardinalities})
            self._executors[key] = executor
        self._executors.move_to_end(key)
        return self._executors[key]

    def clean_up_executor(self, cardinalities):
        executor = self._executors.pop(self._key(cardinalities), None)
        if executor is not None:
            executor.close()

    def close(self):
        while self._executors:
            self._executors.popitem()[1].close()

    def _key(self, cardinalities):
        return frozenset((str(placement), count) for placement, count in cardinalities.items())


class _Context(tff.framework.SyncContext):
    """Executes computations on an event loop in a thread, and ends that thread when told to.

    TFF's own context joins its thread in a finalizer, which may run when the interpreter has
    already stopped the thread.
    """

    def __init__(self, factory, signals):
        self._signals = signals
        self.async_context = tff.framework.AsyncExecutionContext(
            executor_fn=factory,
            compiler_fn=tff.backends.native.desugar_and_transform_to_native,
            transform_args=tff.tensorflow.transform_args,
            transform_result=tff.tensorflow.transform_result,
        )
        self._loop = asyncio.new_event_loop()
        # A daemon: a compilation that outlasts the drain must not keep the interpreter alive.
        self._thread = threading.Thread(target=self._run, name='dpfl-runtime', daemon=True)
        self._thread.start()

    def _run(self):
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def invoke(self, comp, arg):
        """Executes a computation; an exception raised here by a signal leaves it running."""
        self._signals.check()
        coroutine = self.async_context.invoke(comp, arg)
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def close(self):
        """Waits until computations that were interrupted have failed, and ends the thread."""
        asyncio.run_coroutine_threadsafe(self._drain(), self._loop)
        self._thread.join(_DRAIN_SECONDS)

    async def _drain(self):
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._loop.stop()
