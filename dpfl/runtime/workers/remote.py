"""Remote workers: checked at the start, then watched by pings.

A worker that is killed closes its connections, and calls fail at once. A worker that is stopped or
no longer reachable does not answer, but neither does one that is computing. So a second connection
regularly sends a small request. (gRPC's own keepalive pings do not help: by default a server, such
as the worker, closes the connection if they come more often than every five minutes.)
"""

import concurrent.futures
import contextlib
import functools
import importlib.metadata
import os
import socket
import threading
import time
from typing import Any

import grpc
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
from tensorflow_federated.proto.v0 import executor_pb2, executor_pb2_grpc

from dpfl.runtime import failures
from dpfl.runtime.workers import addresses, answers, executors, tls, tunnel

# A worker is lost after this many unanswered pings in a row. Not after a time, because clocks go on
# while this process is stopped.
_PING_SECONDS = 4.0
_PINGS = 4
_CONNECT_SECONDS = 10.0
_CHECK_SECONDS = 60.0
_RELEASE_SECONDS = 5.0

# A request to release nothing, of an executor that no worker has.
_PING = executor_pb2.DisposeRequest(executor=executor_pb2.ExecutorId(id='dpfl'))
_ANSWER = 42


class RemoteWorker:
    """A worker at an address; a context manager that leaves it running.

    Args:
      address: where it listens. With a token in it, connections are encrypted.
      max_cohort_sizes: as in `executors.Runner`.
    """

    def __init__(self, address: addresses.Address, max_cohort_sizes: int):
        self._address = address
        self._max_cohort_sizes = max_cohort_sizes
        self._tunnel: tunnel.Tunnel | None = None
        self._failure: str | None = None
        self._closed = threading.Event()

    def __enter__(self):
        """Connects and checks.

        Raises:
          WorkerError: if it cannot be reached, does not compute, or has another version of TFF.
        """
        with contextlib.ExitStack() as stack:
            self._target = str(self._address)
            if self._address.token is not None:
                self._tunnel = stack.enter_context(tunnel.Tunnel(self._address))
                self._target = self._tunnel.target
            self._require_port()
            self._channel = stack.enter_context(executors.channel(self._target))
            self._runner = executors.Runner(self._channel, self.explain, self._max_cohort_sizes)
            stack.callback(self._close)
            watcher = threading.Thread(target=self._watch, name='dpfl-watch', daemon=True)
            watcher.start()
            try:
                self._check()
            except failures.WorkerError as error:
                if self._tunnel is None and tls.is_spoken(self._address.host, self._address.port):
                    raise self._error('asks for a token, and none was given for it') from error
                raise
            self._resources = stack.pop_all()
        return self

    def __exit__(self, *error):
        self._resources.close()

    def submit(self, comp: tff.Computation, arg: Any) -> concurrent.futures.Future:
        """Starts a computation."""
        return self._runner.submit(comp, arg)

    def explain(self, error: Exception) -> Exception:
        """The exception to raise for a failed call, with a message of one line."""
        if self._failure is not None:
            return self._error(self._failure)
        if isinstance(error, answers.AnswerError):
            what = failures.printable(str(error))
            return self._error(f'answers what it was not asked for: {what}')
        if not isinstance(error, grpc.RpcError):
            return error
        if failures.is_of_worker(error):
            why = self._tunnel is not None and self._tunnel.failure or failures.details(error)
            return self._error(f'does not answer: {why}')
        return failures.RemoteComputationError(f'worker {self._address}: {failures.details(error)}')

    def _error(self, message) -> failures.WorkerError:
        return failures.WorkerError(f'worker {self._address} {message}')

    def _require_port(self) -> None:
        try:
            if self._tunnel is not None:
                self._tunnel.check()
            else:
                place = (self._address.host, self._address.port)
                socket.create_connection(place, _CONNECT_SECONDS).close()
        except OSError as error:
            reason = str(error.strerror or error)
            if reason == tls.NO_TLS:
                reason += ', as a worker that was started without a token'
            raise self._error(f'cannot be reached: {reason}') from error

    def _check(self) -> None:
        try:
            answer, versions = self.submit(_probe(), np.int32(_ANSWER)).result(_CHECK_SECONDS)
        except concurrent.futures.TimeoutError:
            raise self._error(f'computed nothing for {_CHECK_SECONDS:g} seconds') from None
        except failures.RemoteComputationError as error:
            raise self._error(f'cannot compute: {error}') from error
        if answer != _ANSWER + 1:
            raise self._error(f'computes wrongly: {_ANSWER} + 1 = {answer}')
        ours = _installed_version()
        theirs = sorted({_version(path.decode(errors='replace')) for path in versions})
        if ours is not None and theirs and ours not in theirs:
            named = failures.printable(', '.join(theirs))
            raise self._error(f'has TFF {named}; this process has {ours}')

    def _watch(self) -> None:
        """Pings the worker. If it does not answer, closes the channel: calls in progress fail."""
        # Without its own pool, gRPC would reuse the watched connection.
        options = [('grpc.use_local_subchannel_pool', 1), ('grpc.max_reconnect_backoff_ms', 1000)]
        with executors.channel(self._target, *options) as channel:
            dispose = executor_pb2_grpc.ExecutorGroupStub(executors.QuietChannel(channel)).Dispose
            unanswered = 0
            while not self._closed.wait(_PING_SECONDS if unanswered == 0 else 0):
                started = time.monotonic()
                try:
                    is_answer = _is_answer(dispose, _PING_SECONDS)
                except ValueError:  # The process is ending, and has closed the channel.
                    return
                unanswered = 0 if is_answer else unanswered + 1
                if unanswered == _PINGS:
                    self._failure = f'has not answered for {_PINGS * _PING_SECONDS:g} seconds'
                    self._channel.close()
                    return
                if not is_answer:
                    self._closed.wait(max(0.0, started + _PING_SECONDS - time.monotonic()))

    def _close(self) -> None:
        if self._failure is None:
            # In a thread, because a worker that was just lost would not answer.
            releasing = threading.Thread(target=self._runner.release, daemon=True)
            releasing.start()
            releasing.join(_RELEASE_SECONDS)
        self._closed.set()
        self._channel.close()
        self._runner.close()


def _is_answer(dispose, timeout) -> bool:
    try:
        dispose(_PING, timeout=timeout)
    except grpc.RpcError:
        return False
    return True


@functools.cache
def _probe() -> tff.Computation:
    """Takes n. Returns n + 1, and the TFF packages installed where `start_worker` runs workers."""

    @tff.tensorflow.computation(np.int32)
    def probe(number):
        found = tf.io.matching_files('tensorflow_federated*-*.dist-info')
        return number + 1, found

    return probe


def _version(path: str) -> str:
    return os.path.basename(path).removesuffix('.dist-info').partition('-')[2]


def _installed_version() -> str | None:
    try:
        return importlib.metadata.version('tensorflow-federated')
    except importlib.metadata.PackageNotFoundError:
        return None
