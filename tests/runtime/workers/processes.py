"""What tests of workers share: their sockets, and whether this system can isolate them."""

import socket
import subprocess
import time

import pytest

START = 240  # Seconds: a start may be slow on a loaded machine.
TOKEN = bytes(range(32))


def can(*command: str) -> bool:
    """Whether this system makes such namespaces."""
    tried = ['unshare', *command, 'true']
    return subprocess.run(tried, capture_output=True, check=False).returncode == 0


needs_namespaces = pytest.mark.skipif(not can('-rn'), reason='no network namespaces here')


def listener(port: int = 0) -> socket.socket:
    """A socket for a worker, at this port of this host, or at any."""
    bound = socket.socket(socket.AF_INET)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    end = time.monotonic() + 30
    while True:
        try:
            bound.bind(('127.0.0.1', port))
            return bound
        except OSError:  # Connections of the worker before are still being closed.
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
