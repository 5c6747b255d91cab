"""TLS between a run and a worker, and copying of bytes between two connections.

Used on both ends: by `tunnel.py` in the run and by `launcher.py` next to the worker. Uses only the
standard library, because the launcher runs in an interpreter without packages.
"""

import contextlib
import os
import select
import socket
import ssl

HANDSHAKE_SECONDS = 10.0
_BUFFER_BYTES = 1 << 18
# Steps in one direction before the other one's turn.
_STEPS = 32
# A host that vanishes silently is given up after about two minutes.
_KEEPALIVE = (
    ('SO_KEEPALIVE', socket.SOL_SOCKET, 1),
    ('TCP_KEEPIDLE', socket.IPPROTO_TCP, 60),
    ('TCP_KEEPINTVL', socket.IPPROTO_TCP, 15),
    ('TCP_KEEPCNT', socket.IPPROTO_TCP, 4),
)

CLOSED = 'it closed the connection in the handshake'
NO_TLS = 'it does not speak TLS'
_OTHER_TOKEN = 'it has another token'
_NO_TOKEN = 'it has no token'
_REASONS = {
    'CERTIFICATE_VERIFY_FAILED': _OTHER_TOKEN,
    'TLSV1_ALERT_UNKNOWN_CA': _OTHER_TOKEN,
    'PEER_DID_NOT_RETURN_A_CERTIFICATE': _NO_TOKEN,
    'TLSV13_ALERT_CERTIFICATE_REQUIRED': _NO_TOKEN,
    'UNSUPPORTED_PROTOCOL': 'it does not speak TLS 1.3',
    'TLSV1_ALERT_PROTOCOL_VERSION': 'it does not speak TLS 1.3',
}


class HandshakeError(OSError):
    """A handshake failed. The message says why, in no words of the other side."""


def context(own: str, peer: str, *, is_server: bool) -> ssl.SSLContext:
    """A TLS 1.3 context in which both sides present certificates, and only the peer's is accepted.

    Args:
      own: private key and certificate, PEM.
      peer: the certificate that the other side must have, PEM.
      is_server: whether this side accepts connections.
    """
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if is_server else ssl.PROTOCOL_TLS_CLIENT)
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.check_hostname = False  # The only accepted certificate identifies the peer.
    made.verify_mode = ssl.CERT_REQUIRED
    made.load_verify_locations(cadata=peer)
    if is_server:
        # No session resumption: each connection has a full handshake.
        made.num_tickets = 0  # type: ignore[attr-defined]  # Not in the stubs of the checker.
    # `ssl` reads keys only from files. This file is in memory, and gone when it is closed.
    descriptor = os.memfd_create('dpfl-key')
    with open(descriptor, 'w') as file:
        file.write(own)
        file.flush()
        made.load_cert_chain(f'/proc/self/fd/{descriptor}')
    return made


def handshake(plain: socket.socket, made: ssl.SSLContext, *, is_server: bool) -> ssl.SSLSocket:
    """A connection over which both sides have proved that they have the token.

    A client knows that the server accepted it only with the first byte from the server. `plain` is
    closed if the handshake fails.

    Raises:
      HandshakeError: if it fails, after `HANDSHAKE_SECONDS` at the latest.
    """
    secured = made.wrap_socket(
        plain, server_side=is_server, do_handshake_on_connect=False, suppress_ragged_eofs=False
    )
    try:
        secured.settimeout(HANDSHAKE_SECONDS)
        # Explicitly: `wrap_socket` skips it for a connection that has just ended.
        secured.do_handshake()
    except OSError as error:
        secured.close()
        raise HandshakeError(_reason(error)) from error
    return secured


def await_acceptance(secured: ssl.SSLSocket) -> None:
    """Waits for a byte from the server, which sends none before a client has proved its token.

    Raises:
      HandshakeError: if none comes within `HANDSHAKE_SECONDS`.
    """
    try:
        is_over = not secured.recv(1)
    except OSError as error:
        raise HandshakeError(_reason(error)) from error
    if is_over:
        raise HandshakeError(CLOSED)


def is_spoken(host: str, port: int) -> bool:
    """Whether some server at this address speaks TLS."""
    anybody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anybody.check_hostname = False
    anybody.verify_mode = ssl.CERT_NONE
    try:
        plain = socket.create_connection((host, port), HANDSHAKE_SECONDS)
        handshake(plain, anybody, is_server=False).close()
    except OSError:
        return False
    return True


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return f'it did not end the handshake within {HANDSHAKE_SECONDS:g} seconds'
    if isinstance(error, ssl.SSLEOFError) or not isinstance(error, ssl.SSLError):
        return CLOSED
    return _REASONS.get(error.reason, NO_TLS)


def prepare(connection: socket.socket) -> None:
    """Sets options of a TCP connection: no delays, and keepalive to notice that a host is gone."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for name, level, value in _KEEPALIVE:
        if hasattr(socket, name):
            connection.setsockopt(level, getattr(socket, name), value)


def connect(one: socket.socket, other: socket.socket) -> None:
    """Copies bytes between two connections until one of them ends, and closes both.

    One thread serves both directions, since an OpenSSL object must not be read and written at the
    same time. It sleeps while there is nothing to do, and has one buffer per direction.
    """
    with contextlib.closing(one), contextlib.closing(other):
        one.setblocking(False)
        other.setblocking(False)
        ends = (_End(one, other), _End(other, one))
        with contextlib.suppress(OSError):  # TLS errors included.
            while not any(end.is_over for end in ends):
                # A list, so that both get a turn.
                if not sum([end.advance() for end in ends]):
                    _sleep(ends)
        for end in (one, other):
            shut(end)


def shut(connection: socket.socket) -> None:
    """Shuts a connection down from any thread; reads and writes of it then end.

    Not `SSLSocket.shutdown`, which first removes TLS: another thread could then write plain text to
    the network.
    """
    with contextlib.suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


class _End:
    """One direction: a source, a sink, and the bytes that were read but not yet written.

    Attributes:
      is_over: whether the source has ended, and the sink has everything.
      awaits: what `advance` waits for: a socket and events of `poll`.
    """

    def __init__(self, source, sink):
        self._source = source
        self._sink = sink
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._rest = self._buffer[:0]
        self.is_over = False
        self.awaits = None

    def advance(self) -> bool:
        """Copies what is available, up to some buffers; whether there was anything."""
        for step in range(_STEPS):
            if self.is_over or not self._step():
                return step > 0
        return True

    def _step(self) -> bool:
        end = self._sink if self._rest else self._source
        try:
            if self._rest:
                self._rest = self._rest[end.send(self._rest) :]
            else:
                self._fill()
        # TLS may have to write before it can read, and vice versa.
        except ssl.SSLWantWriteError:
            self.awaits = (end, select.POLLOUT)
        except ssl.SSLWantReadError:
            self.awaits = (end, select.POLLIN)
        except BlockingIOError:
            self.awaits = (end, select.POLLOUT if self._rest else select.POLLIN)
        else:
            return True
        return False

    def _fill(self):
        """Fills the buffer. TLS gives a record of at most 16 KB at a time: reads all there are."""
        count = self._source.recv_into(self._buffer)
        self.is_over = not count
        if isinstance(self._source, ssl.SSLSocket):
            # An error here occurs again in the next call.
            with contextlib.suppress(OSError):
                while 0 < count < _BUFFER_BYTES:
                    more = self._source.recv_into(self._buffer[count:])
                    if not more:
                        break
                    count += more
        self._rest = self._buffer[:count]


def _sleep(ends) -> None:
    events: dict[int, int] = {}
    for end in ends:
        connection, event = end.awaits
        events[connection.fileno()] = events.get(connection.fileno(), 0) | event
    poll = select.poll()
    for descriptor, event in events.items():
        poll.register(descriptor, event)
    poll.poll()
