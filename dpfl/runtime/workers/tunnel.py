"""The run's end of an encrypted connection to a worker. Imports no TensorFlow.

gRPC, as TFF uses it, is not encrypted. So it connects to a Unix socket in a directory that only
this user can enter, and a thread forwards its bytes to the worker over TLS, after both sides have
proved that they have the token (`credentials.py`).
"""

import contextlib
import os
import shutil
import socket
import tempfile
import threading
import time

from dpfl import errors
from dpfl.runtime import failures
from dpfl.runtime.workers import addresses, credentials, tls

_CONNECT_SECONDS = 10.0
_JOIN_SECONDS = 2.0


class Tunnel:
    """Connects gRPC with a worker; a context manager that ends all of its connections.

    Args:
      address: of the worker, with its token.

    Attributes:
      target: what gRPC connects to.
      failure: why the last connection to the worker failed, in a few words; None if none failed.

    Raises:
      ValueError: if the address has no token.
    """

    def __init__(self, address: addresses.Address):
        if address.token is None:
            raise errors.ArgumentError('address', address, 'must have a token')
        self._address = address
        found = credentials.for_run(address.token)
        self._context = tls.context(found.own, found.peer, is_server=False)
        self._threads: list[threading.Thread] = []
        self._clients: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._is_closed = False
        self.failure: str | None = None

    def __enter__(self):
        """Starts to listen.

        Raises:
          WorkerError: if the socket cannot be made.
        """
        with contextlib.ExitStack() as stack:
            try:
                folder = tempfile.mkdtemp(prefix='dpfl-')  # For this user alone.
                stack.callback(shutil.rmtree, folder, ignore_errors=True)
                # Such a path is short enough for a socket, wherever the directory is.
                descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
                stack.callback(os.close, descriptor)
                path = f'/proc/self/fd/{descriptor}/worker'
                self._listener = stack.enter_context(socket.socket(socket.AF_UNIX))
                self._listener.bind(path)
                self._listener.listen()
            except OSError as error:
                raise failures.WorkerError(
                    f'no socket can be made in {tempfile.gettempdir()}: {error.strerror or error}'
                ) from error
            self.target = f'unix:{path}'
            stack.callback(self._end)
            self._start(self._accept)
            self._resources = stack.pop_all()
        return self

    def __exit__(self, *error):
        self._resources.close()

    def check(self) -> None:
        """Connects once, to check that the worker has the token and accepts this run's.

        Raises:
          OSError: if not; its `strerror`, or else its message, says why.
        """
        with self._connected() as connection:
            tls.await_acceptance(connection)

    def _connected(self):
        plain = socket.create_connection((self._address.host, self._address.port), _CONNECT_SECONDS)
        tls.prepare(plain)
        return tls.handshake(plain, self._context, is_server=False)

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                if self._is_closed:
                    return
                time.sleep(0.1)  # Too many open files, for instance.
                continue
            with self._lock:
                self._clients.add(client)
            self._start(self._serve, client)

    def _serve(self, client):
        try:
            with client:
                tls.connect(client, self._connected())
        except OSError as error:
            self.failure = str(error.strerror or error)
        finally:
            with self._lock:
                self._clients.discard(client)

    def _start(self, work, *arguments):
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        thread = threading.Thread(target=work, args=arguments, name='dpfl-tunnel', daemon=True)
        thread.start()
        self._threads.append(thread)

    def _end(self):
        """Ends all connections. A thread that is still connecting ends by itself within seconds."""
        self._is_closed = True
        tls.shut(self._listener)
        with self._lock:
            for client in self._clients:
                tls.shut(client)
        deadline = time.monotonic() + _JOIN_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
