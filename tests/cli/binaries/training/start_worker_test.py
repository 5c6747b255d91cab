"""A worker for runs elsewhere: who reaches it, and that it ends as a whole."""

import functools
import os
import pathlib
import signal
import socket
import subprocess
import time

import pytest

from dpfl.runtime.workers import addresses, tokens, tunnel
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
    return (
        subprocess.run(['unshare', '-rn', 'true'], capture_output=True, check=False).returncode == 0
    )


@pytest.mark.exhaustive
@pytest.mark.tff
@pytest.mark.skipif(not _can_isolate(), reason='no network namespaces here')
@pytest.mark.parametrize(
    'number, has_token',
    [(signal.SIGTERM, False), (signal.SIGINT, False), (signal.SIGKILL, True)],
)
def test_it_says_where_it_is_and_ends_with_its_child(number, has_token, tmp_path):
    port = _free_port()
    flags = [f'--token_file={tmp_path}/token', '--address=127.0.0.1'] if has_token else []
    with subprocess.Popen(
        _command(f'--port={port}', *flags),
        cwd=binaries.ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            first, second = process.stdout.readline(), process.stdout.readline()
            assert first.startswith('TFF worker (process '), process.stderr.read()
            assert f' on 127.0.0.1:{port}; ' in first
            whom = 'Only those with the token' if has_token else 'It asks for no token: '
            assert second.startswith(whom)
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


@pytest.mark.standard
def test_a_port_in_use_is_refused():
    with socket.create_server(('127.0.0.1', 0)) as server:
        port = server.getsockname()[1]
        done = _run(f'--port={port}')
    assert done.returncode == 2
    assert done.stderr == (
        f'error: --port={port}: must be free on 127.0.0.1 (Address already in use)\n'
    )


@pytest.mark.exhaustive
@pytest.mark.tff
@pytest.mark.skipif(not _can_isolate(), reason='no namespaces here')
def test_without_namespaces_it_listens_everywhere_only_if_told_to(tmp_path):
    token_file = tmp_path / 'worker.token'
    forbid = 'echo 0 > /proc/sys/user/max_net_namespaces; exec "$@"'
    for flags, consequence in [
        ([], 'so it would listen on every interface; --allow_anybody accepts that'),
        ([f'--token_file={token_file}'], 'so others could bypass the token'),
    ]:
        command = _command(f'--port={_free_port()}', *flags)
        done = subprocess.run(
            ['unshare', '-r', 'sh', '-c', forbid, 'sh', *command],
            cwd=binaries.ROOT,
            capture_output=True,
            text=True,
            check=False,
            env=dict(os.environ),
            timeout=_START,
        )
        assert done.returncode == 1
        last = done.stderr.splitlines()[-1]
        assert last.startswith('error: this system gives the worker no network of its own')
        assert last.endswith(consequence)


@pytest.mark.exhaustive
@pytest.mark.tff
@pytest.mark.skipif(not _can_isolate(), reason='no network namespaces here')
def test_with_a_token_it_listens_everywhere_and_names_whom_it_refuses(tmp_path):
    port, path = _free_port(), tmp_path / 'worker.token'
    with subprocess.Popen(
        _command(f'--port={port}', f'--token_file={path}'),
        cwd=binaries.ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            said = [process.stdout.readline() for _ in range(2)]
            assert f' on 0.0.0.0:{port}; ' in said[0]
            assert said[1].startswith(f'Only those with the token in {path} reach it')
            assert process.stderr.readline() == f'{path}: made, with a new token\n'
            token = tokens.read(path)
            # On another address of this host, as other hosts see it.
            for secret, refused in ((token, None), (bytes(32), 'it has another token')):
                (address,) = addresses.parse([f'127.0.0.2:{port}'], [secret])
                with tunnel.Tunnel(address) as made:
                    if refused is None:
                        made.check()
                        continue
                    with pytest.raises(OSError, match=refused):
                        made.check()
            assert process.stderr.readline() == 'refused 127.0.0.1: it has another token\n'
        finally:
            process.terminate()
            rest = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    # The secret is nowhere in what it wrote.
    assert token.hex() not in ''.join([*said, *rest])
