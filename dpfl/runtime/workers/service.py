"""A worker process that serves runs on other hosts. Imports no TensorFlow.

It is the `worker_binary` of TFF's wheel. Started by TFF, that process keeps its parent's standard
output open and can outlive it. Here it ends with the `with` block of its `Worker`. On Linux the
kernel also kills it when its parent dies inside the block (SIGKILL), or more exactly, when the
thread that started it ends. It has its own session, so that Ctrl-C in a terminal reaches only the
parent, and none of the parent's standard streams, so that a pipe ends with the parent.

`launcher.py` decides who can reach it.
"""

import contextlib
import dataclasses
import importlib.util
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

from dpfl import errors
from dpfl.runtime import failures
from dpfl.runtime.workers import credentials, launcher


class Worker:
    """The worker process, its port and its log; a context manager that ends all three.

    Args:
      listener: a bound socket that does not listen yet. Whoever connects to it reaches the worker.
        It is closed here.
      require_isolation: whether the process ends at once if it cannot be isolated, in which case it
        would listen on every network interface of the host.
      token: clients must prove that they have it, see `credentials.py`; needs `require_isolation`.
        None to accept everybody.
      max_concurrent_clients: how many clients of a round it trains at a time; None for no limit.

    Raises:
      OSError: if the process cannot be started.
      ValueError: for a token without isolation: clients could bypass the relay that asks for it.
      WorkerError: if the installed TFF has no worker.

    Attributes:
      pid: process id of the worker.
      target: where it listens, `host:port`.
    """

    def __init__(
        self,
        listener: socket.socket,
        *,
        require_isolation: bool = False,
        token: bytes | None = None,
        max_concurrent_clients: int | None = None,
    ):
        if token is not None and not require_isolation:
            raise errors.ArgumentError('require_isolation', 'False', 'must be True with a token')
        with contextlib.ExitStack() as stack:
            self._log = stack.enter_context(tempfile.TemporaryFile())
            port = stack.enter_context(_reserve_port())
            notices, writing = map(open, os.pipe(), 'rw')
            self._notices = stack.enter_context(notices)
            # Closes the parent's copies. Otherwise clients would wait on a listener that nobody
            # serves after the relay has ended, and the pipe would not end with the relay.
            with listener, writing, _secret(token) as secret:
                self._address = (listener.family, listener.getsockname())
                isolation = 'required' if require_isolation else 'tried'
                self._process = _start(
                    [listener.fileno(), port, isolation, writing.fileno(), secret],
                    [listener.fileno(), writing.fileno(), *({secret} - {'-'})],
                    -1 if max_concurrent_clients is None else max_concurrent_clients,
                    self._log,
                )
            self._resources = stack.pop_all()
        self.pid = self._process.pid
        self.target = _target(*self._address)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        try:
            self.kill()
            self._process.wait()
        finally:
            self._resources.close()

    def kill(self) -> None:
        """Kills the process, which has nothing to save."""
        self._process.kill()

    def wait(self, report: Callable[[str], None] = lambda line: None) -> None:
        """Waits for the end of the process.

        Args:
          report: called with a line about a refused client, at most once a second.
        """
        for line in self._notices:
            report(line.rstrip('\n'))
        self._process.wait()

    def await_ready(self, timeout: float) -> None:
        """Waits until the worker answers.

        Raises:
          IsolationError: if isolation is required, and the system does not allow it.
          WorkerError: if it ends, or does not answer within `timeout` seconds.
        """
        deadline = time.monotonic() + timeout
        while not self._accepts_connections():
            status = self._process.poll()
            if status == launcher.NO_ISOLATION_STATUS:
                raise failures.IsolationError(self.describe_end())
            if status is not None:
                raise failures.WorkerError(self.describe_end())
            if time.monotonic() > deadline:
                raise failures.WorkerError(
                    f'the TFF worker did not answer within {timeout:g} seconds'
                )
            time.sleep(0.02)

    def is_isolated(self) -> bool:
        """Whether a ready worker can be reached only through its listener.

        Otherwise it also listens on every network interface of the host.
        """
        try:
            theirs = os.readlink(f'/proc/{self.pid}/ns/net')
            return theirs != os.readlink('/proc/self/ns/net')
        except OSError:
            return False

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

    def _accepts_connections(self) -> bool:
        family, address = self._address
        with socket.socket(family) as client:
            client.settimeout(1.0)
            try:
                client.connect(address)
            except OSError:
                return False
        return True


@contextlib.contextmanager
def _secret(token: bytes | None):
    """Yields the descriptor of an in-memory file with the relay's credentials; '-' for no token."""
    if token is None:
        yield '-'
        return
    text = json.dumps(dataclasses.asdict(credentials.for_worker(token)))
    with open(os.memfd_create('dpfl-credentials'), 'w') as file:
        file.write(text)
        file.flush()
        os.lseek(file.fileno(), 0, os.SEEK_SET)
        yield file.fileno()


def _target(family, address) -> str:
    host = f'[{address[0]}]' if family == socket.AF_INET6 else address[0]
    return f'{host}:{address[1]}'


@contextlib.contextmanager
def _reserve_port():
    """Yields a free TCP port, which nobody else gets until the end of the block.

    For a worker that is not isolated. The worker can bind it too (gRPC sets SO_REUSEPORT). A socket
    that is bound but does not listen gets no connections. Without it two workers on one host could
    get the same port, and would share it and each other's clients without an error.
    """
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as reservation:
        if family == socket.AF_INET6:
            reservation.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reservation.bind(('', 0))
        yield reservation.getsockname()[1]


def binary() -> pathlib.Path:
    """Path of the worker of the installed TFF.

    Raises:
      WorkerError: if there is none.
    """
    spec = importlib.util.find_spec('tensorflow_federated')
    if spec is None or spec.origin is None:
        raise failures.WorkerError('tensorflow_federated: is not installed')
    path = pathlib.Path(spec.origin).parent / 'data' / 'worker_binary'
    if not path.is_file():
        raise failures.WorkerError(
            f'{path}: not found; the installed TFF has no worker for this platform'
        )
    return path


# Defaults; variables that the user has set take precedence.
_ENVIRONMENT = {
    # In every round the worker warns about events that are part of its normal work.
    'TF_CPP_MIN_LOG_LEVEL': '2',
    # Shards already run in parallel; with more threads per operation a round takes longer.
    'TF_NUM_INTRAOP_THREADS': '1',
    # With a heap per thread the worker grows by tens of megabytes in hundreds of rounds.
    'MALLOC_ARENA_MAX': '2',
    # Keeps the memory of freed tensors. Given back to the kernel, it would cost a page fault for
    # every 4 KB of every result. The threshold is the largest that glibc takes.
    'MALLOC_MMAP_THRESHOLD_': str(32 << 20),
    'MALLOC_TRIM_THRESHOLD_': str(1 << 30),
    'MALLOC_TOP_PAD_': str(64 << 20),
}


def _start(launch, descriptors, concurrency, log) -> subprocess.Popen:
    """Starts `launcher.py`; `launch` are its arguments between the parent and the binary."""
    path = binary()
    arguments = [os.getpid(), *launch, path, f'--max_concurrent_computation_calls={concurrency}']
    return subprocess.Popen(
        [sys.executable, '-IS', launcher.__file__, *map(str, arguments)],
        pass_fds=descriptors,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        # `remote.py` looks for the version of TFF relative to this folder.
        cwd=path.parents[2],
        env={**_ENVIRONMENT, **os.environ},
        start_new_session=True,
    )
