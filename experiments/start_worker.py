"""Starts a TFF worker on this host, for a run elsewhere with --workers. Ctrl-C or SIGTERM ends it.

Example:
  python -m experiments.start_worker --port=8000 --token_file=worker.token

Only who has the token gets through to it, and what it is sent is encrypted. Take a copy of the file
to the host of the run, by a way that nobody else sees, and there:

  python -m experiments.train ... --workers=this-host:8000 --worker_token_file=worker.token

Without a token it asks nobody who they are, and executes what it is sent: whoever reaches the port
can do what the user can that it runs as. It then listens for this host alone; others come through a
tunnel:

  ssh -N -L 8001:localhost:8000 this-host     # there, and then: --workers=localhost:8001
"""

import getpass
import ipaddress
import os
import socket
import sys

from absl import flags

from dpfl.runtime import failures, signals
from dpfl.runtime.workers import service, tokens
from experiments.command import command_line

_PORT = flags.DEFINE_integer('port', 8000, 'TCP port.', lower_bound=1, upper_bound=65535)
_ADDRESS = flags.DEFINE_string(
    'address',
    None,
    'Number of the interface where it listens: 127.0.0.1 for this host alone, one of a network, or '
    '0.0.0.0 for all. The default is all with --token_file, and this host alone without.',
)
_TOKEN_FILE = flags.DEFINE_string(
    'token_file',
    None,
    'File with the secret that a run must have to use this worker. If there is none, it is made, '
    'for this user alone.',
)
_ALLOW_ANYBODY = flags.DEFINE_bool(
    'allow_anybody',
    False,
    'Listen without a token where others reach it, too. Whoever does can run code here.',
)
_MAX_CONCURRENT_CLIENTS = flags.DEFINE_integer(
    'max_concurrent_clients', None, 'Most shards that it works on at a time.', lower_bound=1
)
_START_SECONDS = 60.0


def main() -> None:
    """Runs the worker until it is told to end."""
    _check_flags()
    listener = _listener()
    token = _token()
    try:
        with (
            signals.Signals(),
            service.Worker(
                listener,
                require_isolation=not _ALLOW_ANYBODY.value,
                token=token,
                max_concurrent_clients=_MAX_CONCURRENT_CLIENTS.value,
            ) as running,
        ):
            running.await_ready(_START_SECONDS)
            print(_announcement(running), flush=True)
            running.wait(lambda line: print(line, file=sys.stderr, flush=True))
            raise failures.WorkerError(running.describe_end())
    except failures.WorkerError as error:
        sys.exit(f'error: {_explain(error)}')


def _address() -> str:
    if _ADDRESS.value is not None:
        return _ADDRESS.value
    return '127.0.0.1' if _TOKEN_FILE.value is None else '0.0.0.0'


def _check_flags() -> None:
    try:
        address = ipaddress.ip_address(_address())
    except ValueError:
        raise command_line.UsageError(
            f'--address={_address()}: must be the number of an interface, such as 127.0.0.1'
        ) from None
    if _TOKEN_FILE.value is not None:
        if _ALLOW_ANYBODY.value:
            raise command_line.UsageError('--allow_anybody: goes without --token_file')
    elif not address.is_loopback and not _ALLOW_ANYBODY.value:
        raise command_line.UsageError(
            f'--address={address}: must be of this host alone, such as 127.0.0.1, unless there is '
            'a --token_file, or --allow_anybody'
        )


def _listener() -> socket.socket:
    version = ipaddress.ip_address(_address()).version
    listener = socket.socket(socket.AF_INET if version == 4 else socket.AF_INET6)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((_address(), _PORT.value))
    except OSError as error:
        raise command_line.UsageError(
            f'--port={_PORT.value}: must be free on {_address()} ({error.strerror})'
        ) from None
    return listener


def _token() -> bytes | None:
    """The token of --token_file, made if need be; None without the flag."""
    path = _TOKEN_FILE.value
    if path is None:
        return None
    try:
        if tokens.make(path):
            print(f'{os.path.abspath(path)}: made, with a new token', file=sys.stderr)
    except OSError as error:
        raise command_line.UsageError(
            f'--token_file={path}: must be where a file can be made ({error.strerror})'
        ) from None
    with command_line.refusing_bad_values():
        return tokens.read(path)


def _announcement(running: service.Worker) -> str:
    lines = [f'TFF worker (process {running.pid}) on {running.target}; Ctrl-C ends it.']
    if _TOKEN_FILE.value is not None:
        lines.append(
            f'Only who has the token in {_TOKEN_FILE.value} reaches it, and can run code here as '
            f'{getpass.getuser()}.'
        )
        return '\n'.join(lines)
    lines.append(
        'It asks nobody who they are: whoever reaches this port can run code here as '
        f'{getpass.getuser()}.'
    )
    if not running.is_isolated():
        lines.append('It also listens on another port of every interface, chosen at random.')
    return '\n'.join(lines)


def _explain(error: failures.WorkerError) -> str:
    if not isinstance(error, failures.IsolationError):
        return str(error)
    consequence = (
        'others could go round the token'
        if _TOKEN_FILE.value is not None
        else 'it would listen on every interface; --allow_anybody accepts that'
    )
    return (
        'this system gives the worker no network of its own (user namespaces are not allowed), '
        f'so {consequence}'
    )


if __name__ == '__main__':
    command_line.run(main)
