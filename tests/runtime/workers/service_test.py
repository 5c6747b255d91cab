"""Tests of a worker process: its start, its end, and who can reach it."""

import importlib.machinery
import importlib.util
import os
import pathlib
import socket
import subprocess
import sys
import time

import pytest

from dpfl.runtime import failures
from dpfl.runtime.workers import service
from tests import paths
from tests.runtime.workers import processes

pytestmark = pytest.mark.standard

DEATH = 60  # Seconds until a process that does not end is given up.


def is_alive(pid):
    """Whether the process runs; a zombie does not."""
    try:
        status = pathlib.Path(f'/proc/{pid}/stat').read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(')')[2].split()[0] not in 'ZX'


def await_death(pid, seconds=DEATH):
    deadline = time.monotonic() + seconds
    while is_alive(pid):
        assert time.monotonic() < deadline, f'process {pid} is alive after {seconds} seconds'
        time.sleep(0.02)


def test_it_is_dead_when_the_block_is_left():
    with service.Worker(processes.listener()) as running:
        running.await_ready(processes.START)
        assert is_alive(running.pid)
    assert not is_alive(running.pid)


def test_the_kernel_kills_it_with_its_parent():
    code = (
        'import os, signal, sys\n'
        'from tests.runtime.workers import service_test\n'
        'running = service_test.service.Worker(service_test.processes.listener())\n'
        'running.await_ready(240)\n'
        'print(running.pid, flush=True)\n'
        'os.kill(os.getpid(), signal.SIGKILL)\n'
    )
    done = subprocess.run(
        [sys.executable, '-c', code],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        cwd=paths.ROOT,
        timeout=processes.START,
    )
    await_death(int(done.stdout))


@pytest.mark.parametrize(
    'command, message',
    [
        ("echo 'no such flag' >&2; exit 3", 'exited with status 3; .* ends with: no such flag'),
        ('exec sleep 600', 'did not answer within 0.5 seconds'),
    ],
)
def test_worker_that_does_not_start_is_an_error_in_one_line(
    command, message, tmp_path, monkeypatch
):
    binary = tmp_path / 'data' / 'worker_binary'
    binary.parent.mkdir()
    binary.write_text(f'#!/bin/sh\necho $$ > {tmp_path}/pid\n{command}\n')
    binary.chmod(0o755)
    _install(tmp_path, monkeypatch)
    with pytest.raises(failures.WorkerError, match=message) as caught:
        with service.Worker(processes.listener()) as running:
            running.await_ready(processes.START if 'exit' in command else 0.5)
    assert '\n' not in str(caught.value)
    for pid in (tmp_path / 'pid').read_text().split() if (tmp_path / 'pid').exists() else ():
        assert not is_alive(int(pid))


def _install(path, monkeypatch):
    """Makes a directory look like the installation of TFF that has the worker."""
    origin = f'{path}/__init__.py'
    spec = importlib.machinery.ModuleSpec('tensorflow_federated', None, origin=origin)
    monkeypatch.setattr(importlib.util, 'find_spec', lambda name: spec)


_ISOLATION = """
from tests.runtime.workers import service_test
listener = service_test.processes.listener
with service_test.service.Worker(listener()) as tried:
    tried.await_ready(60)
    print(tried.is_isolated())
try:
    with service_test.service.Worker(listener(), require_isolation=True) as required:
        required.await_ready(60)
except service_test.failures.IsolationError as error:
    print(error)
"""


def listening_ports(pid):
    """TCP ports on which a process listens, among those that this process can reach."""
    links = [path.readlink() for path in pathlib.Path(f'/proc/{pid}/fd').iterdir()]
    inodes = {str(link).removeprefix('socket:[').rstrip(']') for link in links}
    ports = []
    for name in ('tcp', 'tcp6'):
        for line in pathlib.Path(f'/proc/self/net/{name}').read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == '0A' and fields[9] in inodes:
                ports.append(int(fields[1].rpartition(':')[2], 16))
    return ports


@processes.needs_namespaces
def test_nothing_but_its_listener_leads_to_it():
    bound = processes.listener()
    port = bound.getsockname()[1]
    with service.Worker(bound, require_isolation=True) as running:
        running.await_ready(processes.START)
        assert running.is_isolated()
        assert listening_ports(running.pid) == []
        assert running.target == f'127.0.0.1:{port}'
        with socket.create_connection(('127.0.0.1', port), timeout=10) as client:
            assert client.recv(100)  # A server of gRPC sends its settings.


@pytest.mark.skipif(not processes.can('-r'), reason='no user namespaces here')
def test_without_network_namespaces_it_works_and_says_so():
    forbid = 'echo 0 > /proc/sys/user/max_net_namespaces; exec "$@"'
    done = subprocess.run(
        ['unshare', '-r', 'sh', '-c', forbid, 'sh', sys.executable, '-c', _ISOLATION],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, 'PYTHONPATH': str(paths.ROOT)},
        timeout=processes.START,
    )
    isolated, refusal = done.stdout.splitlines()
    assert isolated == 'False', done.stderr
    assert refusal.endswith('its log ends with: this system gives a process no network of its own')


def test_a_token_without_isolation_is_refused():
    with processes.listener() as bound:
        with pytest.raises(ValueError, match='must be True with a token'):
            service.Worker(bound, token=bytes(32))
