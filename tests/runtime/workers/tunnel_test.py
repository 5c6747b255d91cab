"""Runs and workers over TLS: what attackers on the network can do, and what is kept from them."""

import os
import pathlib
import socket
import stat
import threading
import time

import pytest

from dpfl.runtime.workers import addresses, credentials, service, tls, tunnel
from tests.runtime.workers import processes

_OTHER = bytes(range(1, 33))
_NO_TOKEN = 'refused 127.0.0.1: it has no token'

pytestmark = [processes.needs_namespaces, pytest.mark.standard]


@pytest.fixture(name='worker', scope='module')
def _worker():
    with service.Worker(
        processes.listener(), require_isolation=True, token=processes.TOKEN
    ) as running:
        running.await_ready(processes.START)
        running.refused = []
        threading.Thread(target=_listen, args=(running,), daemon=True).start()
        yield running


def _listen(worker):
    try:
        worker.wait(worker.refused.append)
    except ValueError:  # The worker has ended.
        pass


def _address(worker):
    (address,) = addresses.parse([worker.target], [processes.TOKEN])
    return address


def _connect(worker):
    address = _address(worker)
    return socket.create_connection((address.host, address.port), timeout=20)


def _client(own, peer):
    return tls.context(own, peer, is_server=False)


def _run(token):
    return credentials.for_run(token)


# Each side refuses by itself, even if the other side accepts any certificate.
@pytest.mark.parametrize(
    'own, peer',
    [
        (_run(_OTHER).own, _run(processes.TOKEN).peer),
        (_run(processes.TOKEN).own, _run(_OTHER).peer),
        (credentials.for_worker(processes.TOKEN).own, _run(processes.TOKEN).peer),
    ],
    ids=['worker', 'run', 'a certificate of the worker itself'],
)
def test_another_token_is_refused(worker, own, peer):
    with pytest.raises(tls.HandshakeError, match='another token'):
        with tls.handshake(_connect(worker), _client(own, peer), is_server=False) as connection:
            tls.await_acceptance(connection)


def test_a_client_without_certificate_is_refused(worker):
    deadline = time.monotonic() + 60
    while not any(line.startswith(_NO_TOKEN) for line in worker.refused):
        assert time.monotonic() < deadline
        assert tls.is_spoken(_address(worker).host, _address(worker).port)
        time.sleep(0.5)  # One refusal in a second is reported.


def test_an_impostor_without_the_token_learns_and_gets_nothing():
    fake = credentials.for_worker(_OTHER)
    context = tls.context(fake.own, fake.peer, is_server=True)
    with socket.create_server(('127.0.0.1', 0)) as server:
        name = f'127.0.0.1:{server.getsockname()[1]}'
        (address,) = addresses.parse([name], [processes.TOKEN])
        errors = []

        def pose():
            try:
                tls.handshake(server.accept()[0], context, is_server=True)
            except tls.HandshakeError as error:
                errors.append(str(error))

        posing = threading.Thread(target=pose)
        posing.start()
        with tunnel.Tunnel(address) as made:
            with pytest.raises(tls.HandshakeError, match='it has another token'):
                made.check()
        posing.join()
    assert errors == ['it has another token']


def test_the_worker_has_no_part_of_the_secret(worker):
    process = pathlib.Path(f'/proc/{worker.pid}')
    children = pathlib.Path(process, 'task', str(worker.pid), 'children')
    relay = pathlib.Path(f'/proc/{int(children.read_text())}')
    for place in (process, relay):
        shown = (place / 'cmdline').read_bytes() + (place / 'environ').read_bytes()
        assert b'PRIVATE' not in shown and processes.TOKEN.hex().encode() not in shown
    links = [os.readlink(path) for path in (process / 'fd').iterdir()]
    assert not [link for link in links if 'memfd' in link or link.startswith('pipe:')]
    assert not [path for path in (relay / 'fd').iterdir() if 'memfd' in os.readlink(path)]


def test_only_this_user_reaches_the_socket_and_nothing_stays(worker):
    with tunnel.Tunnel(_address(worker)) as made:
        folder = pathlib.Path(os.path.realpath(os.path.dirname(made.target.removeprefix('unix:'))))
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert folder.stat().st_uid == os.geteuid()
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(f'{folder}/worker')
            assert connection.recv(1)  # A server of gRPC sends its settings.
    assert not folder.exists()
    assert not [thread for thread in threading.enumerate() if thread.name == 'dpfl-tunnel']


def test_a_silent_server_is_given_up(monkeypatch):
    monkeypatch.setattr(tls, 'HANDSHAKE_SECONDS', 0.3)
    with socket.create_server(('127.0.0.1', 0)) as server:
        name = f'127.0.0.1:{server.getsockname()[1]}'
        (address,) = addresses.parse([name], [processes.TOKEN])
        with tunnel.Tunnel(address) as made:
            with pytest.raises(tls.HandshakeError, match='did not end the handshake within 0.3 s'):
                made.check()


def test_ending_a_connection_leaves_its_encryption():
    """Otherwise another thread could write in plain text what it was about to encrypt."""
    one, other = socket.socketpair()
    worker, run = credentials.for_worker(processes.TOKEN), _run(processes.TOKEN)
    accepting = tls.context(worker.own, worker.peer, is_server=True)
    made = []
    thread = threading.Thread(
        target=lambda: made.append(tls.handshake(other, accepting, is_server=True))
    )
    thread.start()
    with tls.handshake(one, _client(run.own, run.peer), is_server=False) as connection:
        thread.join()
        tls.shut(connection)
        assert connection.version() == 'TLSv1.3'
        with pytest.raises(OSError):
            connection.send(b'x')
    made[0].close()
