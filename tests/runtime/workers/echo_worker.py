"""A worker that echoes bytes, used instead of TFF's, and a proxy in front of it."""

import contextlib
import importlib.machinery
import importlib.util
import pathlib
import socket
import sys
import threading
import time

from dpfl.runtime.workers import addresses, service

START = 60

_BINARY = f"""#!{sys.executable} -IS
import os, socket, sys, threading

def echo(connection):
    os.write(log, b'x')
    try:
        connection.sendall(b'S')
        while data := connection.recv(1 << 16):
            connection.sendall(data)
    except OSError:
        pass

path = os.path.join(os.path.dirname(__file__), 'log')
log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
server = socket.create_server(('127.0.0.1', int(sys.argv[-1].partition('=')[2])), backlog=100)
while True:
    threading.Thread(target=echo, args=server.accept()[:1], daemon=True).start()
"""


class EchoWorker:
    """An isolated worker behind the relay; a context manager.

    Attributes:
      address: where the relay listens, with the token.
      refused: what the relay says of those whom it refuses.
    """

    def __init__(self, folder: pathlib.Path, monkeypatch, token: bytes):
        self._log = folder / 'data' / 'log'
        binary = folder / 'data' / 'worker_binary'
        binary.parent.mkdir()
        binary.write_text(_BINARY)
        binary.chmod(0o755)
        spec = importlib.machinery.ModuleSpec(
            'tensorflow_federated', None, origin=f'{folder}/__init__.py'
        )
        listener = socket.socket(socket.AF_INET)
        listener.bind(('127.0.0.1', 0))
        with monkeypatch.context() as patch:
            patch.setattr(importlib.util, 'find_spec', lambda name: spec)
            self.worker = service.Worker(listener, require_isolation=True, token=token)
        (self.address,) = addresses.parse([self.worker.target], [token])
        self.refused = []

    def __enter__(self):
        self.worker.__enter__().await_ready(START)
        while self.reached() < 0:
            time.sleep(0.01)
        threading.Thread(target=self._listen, daemon=True).start()
        return self

    def __exit__(self, *error):
        self.worker.__exit__(*error)

    def _listen(self):
        with contextlib.suppress(ValueError):  # The worker has ended.
            self.worker.wait(self.refused.append)

    def connect(self) -> socket.socket:
        """A connection to the relay, without TLS."""
        return socket.create_connection((self.address.host, self.address.port), timeout=20)

    def reached(self) -> int:
        """Number of connections to the worker, except the one by which the relay waits for it."""
        return self._log.stat().st_size - 1

    def relay(self) -> int:
        """The process id of the relay."""
        path = f'/proc/{self.worker.pid}/task/{self.worker.pid}/children'
        return int(pathlib.Path(path).read_text())


class Proxy:
    """Forwards connections to a worker and tampers with their bytes; a context manager.

    Args:
      address: of the worker.
      change: takes 'run' or 'worker', who sends, how many bytes it has sent before, and more bytes;
        returns what to pass on; the connection ends if that is less.

    Attributes:
      address: what stands in for that of the worker.
      sent: all bytes by sender, of the last connection.
    """

    def __init__(self, address: addresses.Address, change=lambda sender, before, data: data):
        self._to = address
        self._change = change
        self._server = socket.create_server(('127.0.0.1', 0))
        name = f'127.0.0.1:{self._server.getsockname()[1]}'
        (self.address,) = addresses.parse([name], [address.token])
        self.sent = {}

    def __enter__(self):
        threading.Thread(target=self._run, daemon=True).start()
        return self

    def __exit__(self, *error):
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _run(self):
        with contextlib.suppress(OSError):
            while True:
                run, _ = self._server.accept()
                there = socket.create_connection((self._to.host, self._to.port))
                self.sent = {'run': b'', 'worker': b''}
                for sender, source, sink in (('run', run, there), ('worker', there, run)):
                    threading.Thread(
                        target=self._pass, args=(sender, source, sink), daemon=True
                    ).start()

    def _pass(self, sender, source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                changed = self._change(sender, len(self.sent[sender]), data)
                self.sent[sender] += data
                sink.sendall(changed)
                if len(changed) < len(data):
                    break
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
