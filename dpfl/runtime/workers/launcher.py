"""Becomes TFF's worker, isolated from the network; a relay is the only way to reach it.

    python -IS launcher.py PARENT LISTENER PORT ISOLATION NOTICES SECRET BINARY [FLAG ...]

TFF's `worker_binary` listens on every network interface of the host (`[::]:` and the port of its
flag), authenticates nobody, and executes whatever it receives. So it gets its own network
namespace, with only a loopback interface. The superuser may create one; other users need a user
namespace for it. A relay, forked here, accepts connections on a socket from outside the namespace
(a socket stays in the namespace in which it was made) and forwards their bytes; with a token, only
those of clients that have proved over TLS that they have it (`tls.py`). The worker itself never has
the token.

A client has 10 seconds for that proof. At most 32 clients may be in a handshake: one more, and the
oldest is dropped, so that idle connections cannot keep others out. The relay writes at most one
line a second about refused clients.

If the kernel or a container allows no namespace, and on systems other than Linux, the worker runs
without isolation, or not at all if ISOLATION is `required`. On those systems it also does not die
with its parent.

Arguments:
  PARENT: process id of the parent, with which the worker dies.
  LISTENER: descriptor of a bound socket. The relay calls `listen` when the worker is ready.
  PORT: port of the worker.
  ISOLATION: `required` or `tried`.
  NOTICES: descriptor of a pipe for lines about refused clients.
  SECRET: descriptor of a JSON file with the fields of `credentials.Credentials`; `-` for no token.
  BINARY, FLAG: the worker and its flags.

It is a small script for an interpreter without packages, because Python code between fork and exec
can deadlock in a large process with threads.
"""

import contextlib
import ctypes
import fcntl
import importlib.util
import json
import os
import pathlib
import signal
import socket
import struct
import sys
import threading
import time

_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_PR_SET_PDEATHSIG = 1
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 1
# Exit status if ISOLATION is `required`, and the system does not allow it.
NO_ISOLATION_STATUS = 77
_MAX_STRANGERS = 32
_NOTICE_SECONDS = 1.0


class _WorkerIsGoneError(Exception):
    pass


def main(
    parent: int,
    listener: socket.socket,
    port: int,
    isolation: str,
    notices: int,
    secret: int | None,
    command: list[str],
) -> None:
    """Forks the relay and becomes the worker; ends at once if the parent is gone."""
    is_isolated = sys.platform == 'linux' and _leave_network()
    if not is_isolated and isolation == 'required':
        print('this system gives a process no network of its own', file=sys.stderr)
        sys.exit(NO_ISOLATION_STATUS)
    if sys.platform == 'linux':
        _die_with_parent()  # After the namespaces: a change of credentials would undo it.
    if os.getppid() != parent:
        return
    worker = os.getpid()
    if os.fork() == 0:
        if sys.platform == 'linux':
            _die_with_parent()
        relay = _Relay(port, _Notices(notices), secret)
        with contextlib.suppress(_WorkerIsGoneError):
            relay.run(listener, worker)
    else:
        listener.close()
        os.close(notices)
        if secret is not None:
            os.close(secret)
        os.execv(command[0], [*command, f'--port={port}'])


def _leave_network() -> bool:
    """Moves this process to its own network namespace; False if that is not permitted."""
    user, group = os.getuid(), os.getgid()
    unshare = ctypes.CDLL(None).unshare
    if unshare(_CLONE_NEWNET) != 0:
        if unshare(_CLONE_NEWUSER | _CLONE_NEWNET) != 0:
            return False
        # Keeps its user and group.
        for name, text in (
            ('setgroups', 'deny'),
            ('uid_map', f'{user} {user} 1'),
            ('gid_map', f'{group} {group} 1'),
        ):
            with open(f'/proc/self/{name}', 'w') as file:
                file.write(text)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack('16sh14x', b'lo', _IFF_UP))
    return True


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _load_tls():
    """Loads `tls.py` by its path: with this folder on `sys.path` it would shadow other modules."""
    path = pathlib.Path(__file__).with_name('tls.py')
    spec = importlib.util.spec_from_file_location('dpfl_tls', path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class _Relay:
    """Connects clients with the worker: all, or only those that prove that they have the token.

    Args:
      port: of the worker.
      notices: where it reports refused clients.
      secret: descriptor of the credentials; None to accept everybody.
    """

    def __init__(self, port, notices, secret):
        self._tls = _load_tls()
        self._port = port
        self._notices = notices
        self._context = None
        if secret is not None:
            with open(secret) as file:
                self._context = self._tls.context(**json.load(file), is_server=True)
        # Connections in their handshake, the oldest first.
        self._strangers = []
        self._lock = threading.Lock()

    def run(self, listener: socket.socket, worker: int) -> None:
        """Waits for the worker, then accepts connections until it is gone."""
        while not _is_listening(self._port):
            _require_parent(worker)
            time.sleep(0.02)
        listener.listen()
        listener.settimeout(1.0)
        while True:
            try:
                client, address = listener.accept()
            except TimeoutError:
                _require_parent(worker)
                continue
            except OSError:  # Too many open files, for instance.
                _require_parent(worker)
                time.sleep(0.1)
                continue
            try:
                threading.Thread(target=self._serve, args=(client, address[0]), daemon=True).start()
            except RuntimeError:  # Too many threads.
                client.close()

    def _serve(self, client, host):
        try:
            self._tls.prepare(client)
            if self._context is not None:
                client = self._proved(client, host)
            self._tls.connect(client, _connect(self._port))
        except OSError:
            client.close()

    def _proved(self, client, host):
        """The client over TLS, if it proves that it has the token."""
        try:
            with self._as_stranger(client):
                return self._tls.handshake(client, self._context, is_server=True)
        except self._tls.HandshakeError as error:
            if str(error) != self._tls.CLOSED:  # A mere check that the port is open is no refusal.
                self._notices.refused(host, str(error))
            raise

    @contextlib.contextmanager
    def _as_stranger(self, client):
        with client.dup() as stranger:  # Still the same connection when `client` is closed.
            with self._lock:
                if len(self._strangers) == _MAX_STRANGERS:
                    self._tls.shut(self._strangers.pop(0))
                self._strangers.append(stranger)
            try:
                yield
            finally:
                with self._lock:
                    if stranger in self._strangers:
                        self._strangers.remove(stranger)


class _Notices:
    """Writes lines about refused clients to a pipe that may have no reader."""

    def __init__(self, descriptor):
        self._descriptor = descriptor
        os.set_blocking(descriptor, False)
        self._lock = threading.Lock()
        self._last = -_NOTICE_SECONDS
        self._untold = 0

    def refused(self, host: str, reason: str) -> None:
        """Reports a refused client, at most one a second."""
        with self._lock:
            now = time.monotonic()
            if now - self._last < _NOTICE_SECONDS:
                self._untold += 1
                return
            more = f' (and {self._untold} before)' if self._untold else ''
            self._last, self._untold = now, 0
            with contextlib.suppress(OSError):
                os.write(self._descriptor, f'refused {host}: {reason}{more}\n'.encode())


def _require_parent(process: int) -> None:
    if os.getppid() != process:
        raise _WorkerIsGoneError


def _is_listening(port: int) -> bool:
    try:
        _connect(port).close()
    except OSError:
        return False
    return True


def _connect(port: int) -> socket.socket:
    worker = socket.create_connection(('127.0.0.1', port))
    worker.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return worker


if __name__ == '__main__':
    main(
        int(sys.argv[1]),
        socket.socket(fileno=int(sys.argv[2])),
        int(sys.argv[3]),
        sys.argv[4],
        int(sys.argv[5]),
        None if sys.argv[6] == '-' else int(sys.argv[6]),
        sys.argv[7:],
    )
