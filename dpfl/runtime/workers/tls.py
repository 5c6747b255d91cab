"""TLS between a run and a worker, and the copying of bytes between two connections.

Both ends use it: `tunnel.py` in the run, `launcher.py` beside the worker. Standard library only,
because the launcher is a script for an interpreter without packages.
"""

import contextlib
import os
import select
import socket
import ssl

HANDSHAKE_SECONDS = 10.0
_BUFFER_BYTES = 1 << 18
# Of one direction before it is the turn of the other.
_STEPS = 32
# A host that vanishes without a word is given up after about two minutes.
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
    """A handshake failed; the message says why in a few words, none of them from the other side."""


def context(own: str, peer: str, *, is_server: bool) -> ssl.SSLContext:
    """TLS 1.3 in which each side shows a certificate, and only that of the peer is accepted.

    Args:
      own: private key and certificate, PEM.
      peer: the certificate that the other side must have, PEM.
      is_server: whether it accepts connections.
    """
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if is_server else ssl.PROTOCOL_TLS_CLIENT)
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.check_hostname = False  # The one certificate that is accepted says who it is.
    made.verify_mode = ssl.CERT_REQUIRED
    made.load_verify_locations(cadata=peer)
    if is_server:
        made.num_tickets = 0  # Sessions are not resumed: each connection has a whole handshake.
    # The module reads keys from files alone. This one is in memory, and gone when it is closed.
    descriptor = os.memfd_create('dpfl-key')
    with open(descriptor, 'w') as file:
        file.write(own)
        file.flush()
        made.load_cert_chain(f'/proc/self/fd/{descriptor}')
    return made


def handshake(plain: socket.socket, made: ssl.SSLContext, *, is_server: bool) -> ssl.SSLSocket:
    """A connection over which both sides have proved that they have the token.

    On the side that is not the server, the proof that the server accepted it comes with the first
    byte that it sends. `plain` is closed if that fails.

    Raises:
      HandshakeError: if it fails, after `HANDSHAKE_SECONDS` at the latest.
    """
    secured = made.wrap_socket(
        plain, server_side=is_server, do_handshake_on_connect=False, suppress_ragged_eofs=False
    )
    try:
        secured.settimeout(HANDSHAKE_SECONDS)
        # Called here: the module itself leaves it out for a connection that has just ended.
        secured.do_handshake()
    except OSError as error:
        secured.close()
        raise HandshakeError(_reason(error)) from error
    return secured


def await_acceptance(secured: ssl.SSLSocket) -> None:
    """Waits for a byte of the server, which sends none to whoever has not proved to have the token.

    Raises:
      HandshakeError: if it does not within `HANDSHAKE_SECONDS`.
    """
    try:
        is_over = not secured.recv(1)
    except OSError as error:
        raise HandshakeError(_reason(error)) from error
    if is_over:
        raise HandshakeError(CLOSED)


def is_spoken(host: str, port: int) -> bool:
    """Whether a server that speaks TLS, whoever it is, listens there."""
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
    """Sets how a TCP connection behaves: no delays, and an end if the other host is gone."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for name, level, value in _KEEPALIVE:
        if hasattr(socket, name):
            connection.setsockopt(level, getattr(socket, name), value)


def connect(one: socket.socket, other: socket.socket) -> None:
    """Copies bytes between two connections until one of them ends, and closes both.

    In one thread for both directions: an object of OpenSSL must not be read and written at once. It
    sleeps while there is nothing to do, and holds at most a buffer for each direction.
    """
    with contextlib.closing(one), contextlib.closing(other):
        one.setblocking(False)
        other.setblocking(False)
        ends = (_End(one, other), _End(other, one))
        with contextlib.suppress(OSError):  # Also what TLS finds wrong.
            while not any(end.is_over for end in ends):
                # Both get a turn, not the first alone.
                if not sum([end.advance() for end in ends]):
                    _sleep(ends)
        for end in (one, other):
            shut(end)


def shut(connection: socket.socket) -> None:
    """Ends a connection, from any thread: whoever reads or writes it notices.

    The method of an `SSLSocket` of that name first takes TLS away, so that another thread could
    then write to the network what was to be encrypted.
    """
    with contextlib.suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


class _End:
    """A direction: what was read from a source, and its sink has not taken yet.

    Attributes:
      is_over: the source has ended, and the sink has all of it.
      awaits: what has to happen before `advance` can: a socket and events of `poll`.
    """

    def __init__(self, source, sink):
        self._source = source
        self._sink = sink
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._rest = self._buffer[:0]
        self.is_over = False
        self.awaits = None

    def advance(self) -> bool:
        """Reads and writes what is there, up to some buffers; whether there was anything."""
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
        # TLS may have to write before it can read, and the other way round.
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
        """Reads; of TLS, which gives one record of 16 KB at a time, as many as there are."""
        count = self._source.recv_into(self._buffer)
        self.is_over = not count
        if isinstance(self._source, ssl.SSLSocket):
            # What goes wrong here goes wrong in the next call again.
            with contextlib.suppress(OSError):
                while 0 < count < _BUFFER_BYTES:
                    more = self._source.recv_into(self._buffer[count:])
                    if not more:
                        break
                    count += more
        self._rest = self._buffer[:count]


def _sleep(ends) -> None:
    events = {}
    for end in ends:
        connection, event = end.awaits
        events[connection.fileno()] = events.get(connection.fileno(), 0) | event
    poll = select.poll()
    for descriptor, event in events.items():
        poll.register(descriptor, event)
    poll.poll()
