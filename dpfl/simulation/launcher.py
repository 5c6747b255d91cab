"""Becomes TFF's worker, cut off from the network, with a relay as the only way to it.

    python -IS launcher.py PARENT LISTENER PORT ISOLATION BINARY [FLAG ...]

TFF's `worker_binary` listens on every network interface of the host (its address is
`[::]:` and the port of its flag), asks nobody who they are, and executes whatever it is sent. So it
gets a network namespace of its own, which has nothing but a loopback interface: the superuser may
make one, others as the owner of a user namespace. A relay, forked here, accepts connections on a
socket that was made outside (a socket stays in the namespace that it was made in) and passes their
bytes on.

Where the kernel or a container allows no namespace, and on other systems than Linux, the worker
runs as it is, or not at all if ISOLATION is `required`. On those systems nothing kills it with its
parent either.

Arguments: process id of the parent, with which the worker dies; descriptor of a socket that is
bound and does not listen yet: it does when the worker is ready; port of the worker; `required` or
`tried`; its binary and further flags. A small script for an interpreter without packages: Python
code between fork and exec in a large process with threads can deadlock.
"""

import contextlib
import ctypes
import fcntl
import os
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
_BUFFER_BYTES = 1 << 18


class _WorkerIsGoneError(Exception):
    pass


def main(
    parent: int, listener: socket.socket, port: int, isolation: str, command: list[str]
) -> None:
    """Forks the relay and becomes the worker; ends at once if the parent is gone."""
    is_isolated = sys.platform == 'linux' and _leave_network()
    if not is_isolated and isolation == 'required':
        sys.exit('this system gives a process no network of its own')
    if sys.platform == 'linux':
        _die_with_parent()  # After the namespaces: a change of credentials would undo it.
    if os.getppid() != parent:
        return
    worker = os.getpid()
    if os.fork() == 0:
        if sys.platform == 'linux':
            _die_with_parent()
        with contextlib.suppress(_WorkerIsGoneError):
            _relay(listener, worker, port)
    else:
        listener.close()
        os.execv(command[0], [*command, f'--port={port}'])


def _leave_network() -> bool:
    """Moves this process to a network namespace of its own; False if it may not."""
    user, group = os.getuid(), os.getgid()
    unshare = ctypes.CDLL(None).unshare
    if unshare(_CLONE_NEWNET) != 0:
        if unshare(_CLONE_NEWUSER | _CLONE_NEWNET) != 0:
            return False
        # It stays who it is.
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


def _relay(listener: socket.socket, worker: int, port: int) -> None:
    """Waits for the worker, and then connects with it who connects to the listener."""
    while not _is_listening(port):
        _require_parent(worker)
        time.sleep(0.02)
    listener.listen()
    listener.settimeout(1.0)
    while True:
        try:
            client, _ = listener.accept()
        except TimeoutError:
            _require_parent(worker)
            continue
        try:
            _serve(client, port)
        except OSError:
            client.close()


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


def _serve(client: socket.socket, port: int) -> None:
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    worker = _connect(port)
    for source, sink in ((client, worker), (worker, client)):
        threading.Thread(target=_pump, args=(source, sink), daemon=True).start()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    """Copies bytes until one side closes, and then closes the other."""
    buffer = memoryview(bytearray(_BUFFER_BYTES))
    with contextlib.suppress(OSError):
        while count := source.recv_into(buffer):
            sink.sendall(buffer[:count])
    for end in (source, sink):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


if __name__ == '__main__':
    main(
        int(sys.argv[1]), socket.socket(fileno=int(sys.argv[2])), int(sys.argv[3]), sys.argv[4],
        sys.argv[5:],
    )  # fmt: skip
