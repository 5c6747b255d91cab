"""A worker for runs elsewhere: who reaches it, and that it ends as a whole."""

import functools
import os
import pathlib
import signal
import socket
import subprocess
import time

import pytest

from tests import binaries

_START = 240
_command = functools.partial(binaries.command, 'start_worker')
_run = functools.partial(binaries.run, 'start_worker', timeout=_START)


def _free_port():
    with socket.create_server(('127.0.0.1', 0)) as server:
        return server.getsockname()[1]


def _is_alive(pid):
    try:
        status = pathlib.Path(f'/proc/{pid}/stat').read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(')')[2].split()[0] not in 'ZX'


def _can_isolate():
    return subprocess.run(
        ['unshare', '-rn', 'true'], capture_output=True, check=False
    ).returncode == 0


@pytest.mark.tff
@pytest.mark.skipif(not _can_isolate(), reason='no network namespaces here')
@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_it_says_where_it_is_and_ends_with_its_child(number):
    port = _free_port()
    with subprocess.Popen(
        _command(f'--port={port}'), cwd=binaries.ROOT, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    ) as process:
        try:
            first, second = process.stdout.readline(), process.stdout.readline()
            assert first.startswith('TFF worker (process '), process.stderr.read()
            assert f' on 127.0.0.1:{port}; ' in first
            assert second.startswith('It asks nobody who they are: ')
            child = int(first.split()[3].rstrip(')'))
            socket.create_connection(('127.0.0.1', port)).close()
            # On another address of this host, as other hosts would see it.
            with pytest.raises(OSError):
                socket.create_connection(('127.0.0.2', port), timeout=2)
            process.send_signal(number)
            process.wait(60)
        finally:
            process.kill()
    deadline = time.monotonic() + 5
    while _is_alive(child):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    while True:  # The relay dies with the worker.
        try:
            socket.create_connection(('127.0.0.1', port)).close()
        except ConnectionRefusedError:
            break
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_port_in_use_is_refused():
    with socket.create_server(('127.0.0.1', 0)) as server:
        port = server.getsockname()[1]
        done = _run(f'--port={port}')
    assert done.returncode == 2
    assert done.stderr == (
        f'error: --port={port}: must be free on 127.0.0.1 (Address already in use)\n'
    )


@pytest.mark.parametrize('flag, message', [
    ('--address=localhost', '--address=localhost: must be the number of an interface'),
    ('--port=0', '--port=0'),
])
def test_bad_flags_are_one_line(flag, message):
    done = _run(flag)
    assert done.returncode == 2
    assert done.stderr.startswith(f'error: {message}') and done.stderr.count('\n') == 1


@pytest.mark.tff
@pytest.mark.skipif(not _can_isolate(), reason='no namespaces here')
def test_without_namespaces_it_listens_everywhere_only_if_told_to():
    forbid = 'echo 0 > /proc/sys/user/max_net_namespaces; exec "$@"'
    done = subprocess.run(
        ['unshare', '-r', 'sh', '-c', forbid, 'sh', *_command(f'--port={_free_port()}')],
        cwd=binaries.ROOT, capture_output=True, text=True, check=False, env=dict(os.environ),
        timeout=_START,
    )
    assert done.returncode == 1
    assert done.stderr.startswith('error: this system gives the worker no network of its own')
    assert done.stderr.count('\n') == 1
