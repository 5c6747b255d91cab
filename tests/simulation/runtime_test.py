"""Tests of the ownership of the worker: results, errors, and its death in every kind of ending."""

import collections
import gc
import importlib.machinery
import importlib.util
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from dpfl.simulation import runtime
from dpfl.simulation import worker as worker_lib

pytestmark = pytest.mark.tff

ROOT = pathlib.Path(__file__).parents[2]
CHILD = pathlib.Path(__file__).with_name('runtime_child.py')

# Seconds. Starting is given time for a loaded machine; dying is not.
START = 240
END = 60
DEATH = 2

CLIENTS_FLOAT = tff.FederatedType(np.float32, tff.CLIENTS)


@tff.tensorflow.computation(np.float32)
def reciprocal(x):
    with tf.control_dependencies([tf.debugging.assert_positive(x, message='not positive')]):
        return 1 / x


@tff.federated_computation(CLIENTS_FLOAT)
def sum_of_reciprocals(values):
    return tff.federated_sum(tff.federated_map(reciprocal, values))


@tff.tensorflow.computation
def one():
    return 1


def is_alive(pid):
    """Whether the process runs; one that waits to be collected by its parent does not."""
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


def workers_of_this_process():
    found = []
    for path in pathlib.Path('/proc').glob('[0-9]*/stat'):
        try:
            name, _, fields = path.read_text().partition('(')[2].rpartition(')')
        except (FileNotFoundError, ProcessLookupError):
            continue
        if name == 'worker_binary' and int(fields.split()[1]) == os.getpid():
            found.append(int(path.parent.name))
    return found


# --- Within one process.


def test_results_equal_those_of_the_default_context():
    values = np.random.default_rng(0).uniform(1, 2, size=50).astype(np.float32).tolist()
    sizes = [50, 1, 2, 3, 4, 5, 50, 50, 3]  # More cohort sizes than executors are kept for.
    with runtime.local_runtime(max_concurrent_clients=4, max_cohort_sizes=3) as worker:
        assert workers_of_this_process() == [worker.pid]
        ours = [sum_of_reciprocals(values[:size]) for size in sizes]
        without_clients = one()
    assert workers_of_this_process() == []

    default = tff.backends.native.create_sync_local_cpp_execution_context()
    with tff.framework.get_context_stack().install(default):
        theirs = [sum_of_reciprocals(values[:size]) for size in sizes]
    del default
    gc.collect()  # Ends the worker that TFF started.

    np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_allclose(ours[0], sum(1 / x for x in values), rtol=1e-5)
    assert without_clients == 1


def test_error_in_a_client_is_an_exception_in_one_line_and_the_worker_goes_on():
    with runtime.local_runtime():
        with pytest.raises(runtime.ComputationError, match='not positive') as caught:
            sum_of_reciprocals([1.0, -1.0])
        assert '\n' not in str(caught.value)
        assert sum_of_reciprocals([1.0, 2.0]) == 1.5


def test_death_of_the_worker_is_an_exception_and_no_restart():
    with runtime.local_runtime() as worker:
        threading.Timer(0.5, os.kill, [worker.pid, signal.SIGKILL]).start()
        with pytest.raises(runtime.WorkerError, match=f'{worker.pid}. was killed by signal 9'):
            while True:
                sum_of_reciprocals([1.0, 2.0])
        with pytest.raises(runtime.WorkerError):
            sum_of_reciprocals([1.0, 2.0])
        assert workers_of_this_process() in ([], [worker.pid])
    assert not is_alive(worker.pid)


def test_context_and_signal_handlers_are_restored():
    stack = tff.framework.get_context_stack()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    context, handlers = stack.current, [signal.getsignal(number) for number in numbers]
    with pytest.raises(KeyError):
        with runtime.local_runtime() as outer:
            ours = stack.current
            with runtime.local_runtime() as inner:
                assert inner.pid != outer.pid and inner.address != outer.address
                assert one() == 1
            assert stack.current is ours
            assert one() == 1
            raise KeyError
    assert stack.current is context
    assert [signal.getsignal(number) for number in numbers] == handlers


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_whose_exception_got_lost_ends_the_next_computation(number):
    expected = KeyboardInterrupt if number == signal.SIGINT else SystemExit
    with runtime.local_runtime():
        try:
            signal.raise_signal(number)
        except expected:
            assert one() == 1  # Cleaning up is allowed.
        with pytest.raises(expected) as caught:
            one()
        assert one() == 1
    assert number == signal.SIGINT or caught.value.code == 128 + number


def test_handlers_of_the_caller_are_left_alone():
    def handler(number, frame):
        del number, frame

    before = signal.signal(signal.SIGTERM, handler)
    try:
        with runtime.local_runtime():
            assert signal.getsignal(signal.SIGTERM) is handler
            assert signal.getsignal(signal.SIGHUP) is not signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)


def test_works_in_another_thread():
    results = []

    def target():
        with runtime.local_runtime() as worker:
            results.append(sum_of_reciprocals([1.0, 2.0]))
        results.append(is_alive(worker.pid))

    thread = threading.Thread(target=target)
    thread.start()
    thread.join(END)
    assert results == [1.5, False]


def test_log_file_has_what_clients_print(tmp_path):
    @tff.tensorflow.computation(np.float32)
    def printing(x):
        with tf.control_dependencies([tf.print('seen in the log')]):
            return tf.identity(x)

    path = tmp_path / 'worker.log'
    path.write_text('before\n')
    with runtime.local_runtime(log_file=path):
        assert printing(1.0) == 1.0
    assert path.read_text().startswith('before\n')
    assert 'seen in the log' in path.read_text()


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
    with pytest.raises(runtime.WorkerError, match=message) as caught:
        with runtime.local_runtime(start_timeout=START if 'exit' in command else 0.5):
            pass
    assert '\n' not in str(caught.value)
    for pid in (tmp_path / 'pid').read_text().split() if (tmp_path / 'pid').exists() else ():
        assert not is_alive(int(pid))


def _install(path, monkeypatch):
    """Makes a directory the installation of TFF in which the worker is looked for."""
    origin = f'{path}/__init__.py'
    spec = importlib.machinery.ModuleSpec('tensorflow_federated', None, origin=origin)
    monkeypatch.setattr(importlib.util, 'find_spec', lambda name: spec)


def test_missing_worker_is_named(tmp_path, monkeypatch):
    _install(tmp_path, monkeypatch)
    with pytest.raises(runtime.WorkerError, match=f'{tmp_path}/data/worker_binary: not found'):
        with runtime.local_runtime():
            pass


@pytest.mark.parametrize(
    'arguments, message',
    [
        ({'max_concurrent_clients': 0}, 'max_concurrent_clients=0: must be'),
        ({'max_cohort_sizes': 0}, 'max_cohort_sizes=0: must be'),
        ({'start_timeout': float('nan')}, 'start_timeout=nan: must be'),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        with runtime.local_runtime(**arguments):
            pass


# --- Who can reach the worker.

_ISOLATION = """
from dpfl.simulation import runtime, worker
with runtime.local_runtime() as running:
    print(running.is_isolated)
try:
    with worker.Worker(require_isolation=True) as required:
        required.await_ready(60)
except runtime.WorkerError as error:
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


def can(*command):
    return subprocess.run(
        ['unshare', *command, 'true'], capture_output=True, check=False
    ).returncode == 0


needs_namespaces = pytest.mark.skipif(not can('-rn'), reason='no network namespaces here')


@needs_namespaces
def test_other_hosts_cannot_reach_the_worker():
    with runtime.local_runtime() as running:
        assert running.is_isolated
        assert listening_ports(running.pid) == []
        assert one() == 1


@needs_namespaces
def test_other_processes_cannot_reach_the_worker():
    connect = (
        'import socket, sys; client = socket.socket(socket.AF_UNIX); '
        'client.connect("\\0" + sys.argv[1]); print(client.recv(100))'
    )
    with runtime.local_runtime() as running:
        name = running.address.removeprefix('unix-abstract:')
        done = subprocess.run(
            [sys.executable, '-c', connect, name], capture_output=True, text=True, check=True
        )
        assert done.stdout == "b''\n"  # A server of gRPC would have sent its settings.
        with socket.socket(socket.AF_UNIX) as client:
            client.connect('\0' + name)
            assert client.recv(100)


@pytest.mark.skipif(not can('-r'), reason='no user namespaces here')
def test_without_network_namespaces_it_works_and_says_so():
    forbid = 'echo 0 > /proc/sys/user/max_net_namespaces; exec "$@"'
    done = subprocess.run(
        ['unshare', '-r', 'sh', '-c', forbid, 'sh', sys.executable, '-c', _ISOLATION],
        capture_output=True, text=True, check=False, env={**os.environ, 'PYTHONPATH': str(ROOT)},
        timeout=START,
    )
    isolated, refusal = done.stdout.splitlines()
    assert isolated == 'False', done.stderr
    assert refusal.endswith('its log ends with: this system gives a process no network of its own')
    assert 'the TFF worker listens on every network interface' in done.stderr


def test_port_stays_reserved():
    with worker_lib._reserve_port() as port:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as other:
            with pytest.raises(OSError):
                other.bind(('', port))
    with socket.create_server(('', port)):
        pass


# --- Ends of a process. Its standard output is a pipe in each case.

Ending = collections.namedtuple('Ending', 'status seconds_to_end_of_output error')


class Process:
    """A process that runs `runtime_child.py`, with the lines that it writes."""

    def __init__(self, how, **environment):
        self._process = subprocess.Popen(
            [sys.executable, str(CHILD), how],
            env={**os.environ, 'PYTHONPATH': str(ROOT), **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._watchdog = threading.Timer(START, self._process.kill)
        self._watchdog.start()
        self.worker = self.read('worker')

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._watchdog.cancel()
        self._process.kill()
        self._process.wait()

    def read(self, word):
        line = self._process.stdout.readline().split()
        assert line[:1] == [word], self._process.stderr.read()
        return int(line[1])

    def send(self, number):
        """Signals the process group, as a terminal does."""
        os.killpg(self._process.pid, number)

    def finish(self):
        status = self._process.wait(END)
        start = time.monotonic()
        # Reading ends only when no process has the other end of the pipe.
        _, error = self._process.communicate(timeout=END)
        return Ending(status, time.monotonic() - start, error)


def assert_ended(process, status):
    ending = process.finish()
    assert ending.status == status, ending.error
    assert ending.seconds_to_end_of_output < DEATH
    await_death(process.worker)
    return ending


def test_normal_end():
    with Process('normal') as process:
        process.read('leaving')
        await_death(process.worker)
        assert_ended(process, 0)


def test_exception():
    with Process('exception') as process:
        process.read('leaving')
        await_death(process.worker)
        ending = assert_ended(process, 1)
    assert ending.error.rstrip().endswith('ValueError: an error of the training loop')


# Python ends by SIGINT itself after a KeyboardInterrupt that nothing caught: 130 in a shell.
@pytest.mark.parametrize(
    'number, status', [(signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, 128 + signal.SIGTERM)]
)
def test_signal_in_a_round(number, status):
    with Process('interrupted') as process:
        process.read('running')
        assert is_alive(process.worker)
        process.send(number)
        process.read('leaving')
        await_death(process.worker)
        ending = assert_ended(process, status)
    assert 'Exception ignored' not in ending.error
    assert 'never retrieved' not in ending.error


def test_second_ctrl_c_during_cleanup():
    with Process('interrupted', SLOW_CLEANUP='1') as process:
        process.read('running')
        process.send(signal.SIGINT)
        process.read('leaving')
        process.send(signal.SIGINT)
        assert_ended(process, -signal.SIGINT)
        await_death(process.worker)


def test_kill_of_the_parent():
    with Process('interrupted') as process:
        process.read('running')
        process.send(signal.SIGKILL)
        await_death(process.worker)
        assert_ended(process, -signal.SIGKILL)
