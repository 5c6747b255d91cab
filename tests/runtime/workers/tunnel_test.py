"""Runs and workers over TLS: what gets through, and what attackers on the network can do."""

import contextlib
import os
import pathlib
import socket
import ssl
import stat
import subprocess
import threading
import time

import pytest

from dpfl.runtime.workers import addresses, credentials, tls, tunnel
from tests.runtime.workers.echo_worker import EchoWorker, Proxy

_TOKEN, _OTHER = bytes(range(32)), bytes(range(1, 33))

pytestmark = pytest.mark.skipif(
    subprocess.run(['unshare', '-rn', 'true'], capture_output=True, check=False).returncode != 0,
    reason='no network namespaces here',
)


@pytest.fixture(name='echo')
def _echo(tmp_path, monkeypatch):
    with EchoWorker(tmp_path, monkeypatch, _TOKEN) as running:
        yield running
        # Whatever a test did to it, it still serves, and has written no traceback.
        with _through(running.address) as connection:
            assert _echoed(connection, b'still there') == b'still there'
        assert running.worker._describe_log() == 'its log is empty'


@contextlib.contextmanager
def _through(address):
    """A connection to the worker as gRPC makes it."""
    with tunnel.Tunnel(address) as made, socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(20)
        connection.connect(made.target.removeprefix('unix:'))
        yield connection


def _echoed(connection, data):
    """What comes back, behind the greeting of the worker; fewer bytes if the connection ends."""
    sender = threading.Thread(target=_send, args=(connection, data), daemon=True)
    sender.start()
    found = b''
    with contextlib.suppress(ConnectionError):
        while len(found) < len(data) + 1 and (more := connection.recv(1 << 16)):
            found += more
    sender.join(20)
    assert found[:1] in (b'S', b'')
    return found[1:]


def _send(connection, data):
    with contextlib.suppress(OSError):
        connection.sendall(data)


def _await(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _client(own_token, peer_token):
    return tls.context(
        credentials.for_run(own_token).own, credentials.for_run(peer_token).peer, is_server=False
    )


def test_bytes_come_through_as_they_are_and_nobody_on_the_way_reads_them(echo):
    data = os.urandom(1 << 22) + b'what only the two of them know' * 1000
    with Proxy(echo.address) as proxy, _through(proxy.address) as connection:
        assert _echoed(connection, data) == data
    for sent in proxy.sent.values():
        assert len(sent) > len(data)
        assert b'only the two' not in sent
        assert data[:16] not in sent


def test_another_token_is_refused_on_both_sides(echo):
    (address,) = addresses.parse([str(echo.address)], [_OTHER])
    with tunnel.Tunnel(address) as made:
        with pytest.raises(tls.HandshakeError, match='^it has another token$'):
            made.check()
    _await(lambda: echo.refused)
    assert echo.refused == ['refused 127.0.0.1: it has another token']
    assert echo.reached() == 0


@pytest.mark.parametrize('own, peer', [(_OTHER, _TOKEN), (_TOKEN, _OTHER)], ids=['worker', 'run'])
def test_each_side_refuses_by_itself(echo, own, peer):
    """Even if the other side accepts any certificate."""
    with pytest.raises(tls.HandshakeError, match='another token'):
        with tls.handshake(echo.connect(), _client(own, peer), is_server=False) as connection:
            tls.await_acceptance(connection)
    assert echo.reached() == 0


def test_nobody_is_shown_its_own_certificate(echo):
    worker = credentials.for_worker(_TOKEN)
    mirror = tls.context(worker.own, credentials.for_run(_TOKEN).peer, is_server=False)
    with pytest.raises(tls.HandshakeError, match='another token'):
        with tls.handshake(echo.connect(), mirror, is_server=False) as connection:
            tls.await_acceptance(connection)
    assert echo.reached() == 0


def test_a_client_without_certificate_is_refused(echo):
    assert tls.is_spoken(echo.address.host, echo.address.port)
    _await(lambda: echo.refused)
    assert echo.refused == ['refused 127.0.0.1: it has no token']
    assert echo.reached() == 0


def test_older_versions_of_tls_are_refused(echo):
    older = _client(_TOKEN, _TOKEN)
    older.minimum_version = older.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(tls.HandshakeError, match='it does not speak TLS 1.3'):
        tls.handshake(echo.connect(), older, is_server=False)
    assert echo.reached() == 0


def test_an_impostor_without_the_token_learns_and_gets_nothing():
    fake = credentials.for_worker(_OTHER)
    context = tls.context(fake.own, fake.peer, is_server=True)
    with socket.create_server(('127.0.0.1', 0)) as server:
        (address,) = addresses.parse([f'127.0.0.1:{server.getsockname()[1]}'], [_TOKEN])
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


_GARBAGE = {
    'nothing': b'',
    'grpc': b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n',
    'http': b'GET / HTTP/1.1\r\n\r\n',
    'zeros': b'\0' * 1000,
    'long record': b'\x16\x03\x01\xff\xff' + b'\xff' * 70_000,
    'alert': b'\x15\x03\x03\x00\x02\x02\x28',
    'data first': b'\x17\x03\x03\x40\x00' + bytes(1 << 14),
    'any bytes': bytes(range(256)) * 50,
}


@pytest.mark.parametrize('data', _GARBAGE.values(), ids=_GARBAGE)
def test_garbage_reaches_nobody_and_gets_little(echo, data):
    with echo.connect() as connection:
        with contextlib.suppress(OSError):
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
        answer = b''
        with contextlib.suppress(OSError):
            while more := connection.recv(1 << 16):
                answer += more
    assert len(answer) <= 100  # An alert at most.
    assert echo.reached() == 0


def test_a_handshake_cut_at_any_byte_is_an_end_in_a_few_words(echo):
    with Proxy(echo.address) as proxy, tunnel.Tunnel(proxy.address) as made:
        made.check()
    lengths = {sender: len(sent) for sender, sent in proxy.sent.items()}
    _await(lambda: echo.reached() == 1)
    for cut_sender, length in lengths.items():
        for length_passed in range(0, length, length // 12):

            def change(sender, before, data, cut=cut_sender, passed=length_passed):
                if sender != cut:
                    return data
                return data[: passed - before]

            with Proxy(echo.address, change) as proxy, tunnel.Tunnel(proxy.address) as made:
                started = time.monotonic()
                with contextlib.suppress(tls.HandshakeError):
                    made.check()
                assert time.monotonic() - started < 5


@pytest.mark.parametrize('sender', ['run', 'worker'])
def test_changed_bytes_end_the_connection_and_reach_nobody(echo, sender):
    data = b'a' * (1 << 20)

    def change(who, before, data):
        # Behind the handshake.
        is_there = who == sender and before < 200_000 <= before + len(data)
        return data[:-1] + bytes([data[-1] ^ 1]) if is_there else data

    with Proxy(echo.address, change) as proxy, _through(proxy.address) as connection:
        found = _echoed(connection, data)
    assert len(found) < len(data)
    assert set(found) <= {ord('a')}


def test_a_connection_that_was_heard_cannot_be_repeated(echo):
    with Proxy(echo.address) as proxy, _through(proxy.address) as connection:
        assert _echoed(connection, b'run this') == b'run this'
    assert echo.reached() == 1
    with echo.connect() as connection:
        connection.sendall(proxy.sent['run'])
        with contextlib.suppress(ConnectionError):
            while connection.recv(1 << 16):
                pass
    # Nor to the run, as a worker.
    with socket.create_server(('127.0.0.1', 0)) as server:
        (address,) = addresses.parse([f'127.0.0.1:{server.getsockname()[1]}'], [_TOKEN])

        def repeat():
            with server.accept()[0] as connection:
                connection.sendall(proxy.sent['worker'])
                connection.recv(1 << 16)
                connection.recv(1 << 16)

        threading.Thread(target=repeat, daemon=True).start()
        with tunnel.Tunnel(address) as made, pytest.raises(tls.HandshakeError):
            made.check()
    assert echo.reached() == 1


def test_sessions_are_not_resumed(echo):
    with tls.handshake(echo.connect(), _client(_TOKEN, _TOKEN), is_server=False) as connection:
        tls.await_acceptance(connection)
        assert not connection.session.has_ticket


@pytest.mark.exhaustive
def test_those_who_never_end_the_handshake_keep_nobody_out_and_are_dropped(echo):
    idle = [echo.connect() for _ in range(60)]
    try:
        with _through(echo.address) as connection:
            assert _echoed(connection, b'let in') == b'let in'
        threads = len(os.listdir(f'/proc/{echo.relay()}/task'))
        assert threads <= 32 + 3
        # A client that sends a byte now and then gets no more time than others.
        started = time.monotonic()
        with pytest.raises(OSError):
            while True:
                idle[-1].sendall(b'\x16')
                assert time.monotonic() - started < tls.HANDSHAKE_SECONDS + 4
                time.sleep(0.5)
        _await(lambda: len(os.listdir(f'/proc/{echo.relay()}/task')) <= 3)
    finally:
        for connection in idle:
            connection.close()
    assert echo.reached() == 1


def test_a_flood_of_refusals_is_few_lines(echo):
    for _ in range(100):
        with echo.connect() as connection:
            connection.sendall(b'\0' * 100)
            with contextlib.suppress(ConnectionError):
                connection.recv(100)
    assert 1 <= len(echo.refused) <= 10
    assert set(echo.refused[0]) <= set(map(chr, range(32, 127)))


def test_the_worker_has_no_part_of_the_secret(echo):
    process = pathlib.Path(f'/proc/{echo.worker.pid}')
    relay = pathlib.Path(f'/proc/{echo.relay()}')
    for place in (process, relay):
        shown = (place / 'cmdline').read_bytes() + (place / 'environ').read_bytes()
        assert b'PRIVATE' not in shown and _TOKEN.hex().encode() not in shown
    links = [os.readlink(path) for path in (process / 'fd').iterdir()]
    assert not [link for link in links if 'memfd' in link or link.startswith('pipe:')]
    assert not [link for path in (relay / 'fd').iterdir() if 'memfd' in (link := os.readlink(path))]


def test_nobody_is_busy_while_nothing_comes(echo):
    def ticks(pid):
        fields = pathlib.Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()
        return int(fields[11]) + int(fields[12])

    with _through(echo.address) as connection:
        assert _echoed(connection, b'x') == b'x'
        before = ticks(echo.relay()), time.process_time()
        time.sleep(1)
        assert ticks(echo.relay()) - before[0] <= 10  # Hundredths of a second.
        assert time.process_time() - before[1] < 0.1


def test_a_reader_that_is_slow_is_waited_for(echo):
    data = os.urandom(1 << 26)
    with _through(echo.address) as connection:
        sender = threading.Thread(target=connection.sendall, args=(data,))
        sender.start()
        time.sleep(0.5)
        assert sender.is_alive()  # Nothing on the way takes it all.
        found = bytearray()
        while len(found) <= len(data):
            found += connection.recv(1 << 16)
        sender.join()
    assert found[1:] == data


def test_only_this_user_reaches_the_socket_and_nothing_stays(echo):
    with tunnel.Tunnel(echo.address) as made:
        folder = pathlib.Path(os.path.realpath(os.path.dirname(made.target.removeprefix('unix:'))))
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert folder.stat().st_uid == os.geteuid()
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(f'{folder}/worker')
        assert connection.recv(1) == b'S'
    assert connection.recv(1) == b''
    connection.close()
    assert not folder.exists()
    assert not [thread for thread in threading.enumerate() if thread.name == 'dpfl-tunnel']


def test_a_directory_that_takes_no_socket_is_one_line(monkeypatch, tmp_path):
    (address,) = addresses.parse(['127.0.0.1:1'], [_TOKEN])
    monkeypatch.setattr(tunnel.tempfile, 'tempdir', str(tmp_path / 'missing'))
    with pytest.raises(tunnel.failures.WorkerError, match='no socket can be made in .*missing'):
        with tunnel.Tunnel(address):
            pass


def test_a_path_of_any_length_will_do(echo, monkeypatch, tmp_path):
    folder = tmp_path / ('long' * 40)
    folder.mkdir()
    monkeypatch.setattr(tunnel.tempfile, 'tempdir', str(folder))
    with _through(echo.address) as connection:
        assert _echoed(connection, b'x') == b'x'


def test_a_silent_server_is_given_up(monkeypatch):
    monkeypatch.setattr(tls, 'HANDSHAKE_SECONDS', 0.3)
    with socket.create_server(('127.0.0.1', 0)) as server:
        (address,) = addresses.parse([f'127.0.0.1:{server.getsockname()[1]}'], [_TOKEN])
        with tunnel.Tunnel(address) as made:
            with pytest.raises(tls.HandshakeError, match='did not end the handshake within 0.3 s'):
                made.check()


def test_ending_a_connection_leaves_its_encryption():
    """Otherwise another thread could write in plain text what it was about to encrypt."""
    one, other = socket.socketpair()
    worker = credentials.for_worker(_TOKEN)
    accepting = tls.context(worker.own, worker.peer, is_server=True)
    made = []
    thread = threading.Thread(
        target=lambda: made.append(tls.handshake(other, accepting, is_server=True))
    )
    thread.start()
    with tls.handshake(one, _client(_TOKEN, _TOKEN), is_server=False) as connection:
        thread.join()
        tls.shut(connection)
        assert connection.version() == 'TLSv1.3'
        with pytest.raises(OSError):
            connection.send(b'x')
    made[0].close()


def test_what_has_ended_before_the_handshake_is_not_taken_for_encrypted():
    one, other = socket.socketpair()
    other.close()
    with pytest.raises(tls.HandshakeError, match=tls.CLOSED):
        tls.handshake(one, _client(_TOKEN, _TOKEN), is_server=False)
