"""Starts a TFF worker on this host, for a run elsewhere with --workers. Ctrl-C or SIGTERM ends it.

Example:
  python -m experiments.start_worker --port=8000

It asks nobody who they are, and executes what it is sent: whoever reaches the port can do what the
user can that it runs as. By default that is this host only; others come through a tunnel:

  ssh -N -L 8001:localhost:8000 this-host     # there, and then: --workers=localhost:8001
"""

import getpass
import ipaddress
import socket
import sys

from absl import flags

from dpfl.simulation import failures, signals, worker
from experiments import command_line

_PORT = flags.DEFINE_integer('port', 8000, 'TCP port.', lower_bound=1, upper_bound=65535)
_ADDRESS = flags.DEFINE_string(
    'address', '127.0.0.1',
    'Number of the interface where it listens: 127.0.0.1 for this host alone, one of a private '
    'network, or 0.0.0.0 for all.',
)
_MAX_CONCURRENT_CLIENTS = flags.DEFINE_integer(
    'max_concurrent_clients', None, 'Most shards that it works on at a time.', lower_bound=1
)
_START_SECONDS = 60.0


def main() -> None:
    """Runs the worker until it is told to end."""
    listener = _listener()
    is_for_all = ipaddress.ip_address(_ADDRESS.value).is_unspecified
    try:
        with signals.Signals(), worker.Worker(
            listener, require_isolation=not is_for_all,
            max_concurrent_clients=_MAX_CONCURRENT_CLIENTS.value,
        ) as running:  # fmt: skip
            running.await_ready(_START_SECONDS)
            print(_announcement(running), flush=True)
            running.wait()
            raise failures.WorkerError(running.describe_end())
    except failures.WorkerError as error:
        sys.exit(f'error: {_explain(str(error))}')


def _listener() -> socket.socket:
    try:
        version = ipaddress.ip_address(_ADDRESS.value).version
    except ValueError:
        raise command_line.UsageError(
            f'--address={_ADDRESS.value}: must be the number of an interface, such as 127.0.0.1'
        ) from None
    listener = socket.socket(socket.AF_INET if version == 4 else socket.AF_INET6)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((_ADDRESS.value, _PORT.value))
    except OSError as error:
        raise command_line.UsageError(
            f'--port={_PORT.value}: must be free on {_ADDRESS.value} ({error.strerror})'
        ) from None
    return listener


def _announcement(running: worker.Worker) -> str:
    lines = [
        f'TFF worker (process {running.pid}) on {running.target}; Ctrl-C ends it.',
        'It asks nobody who they are: whoever reaches this port can run code here as '
        f'{getpass.getuser()}.',
    ]
    if not running.is_isolated():
        lines.append('It also listens on another port of every interface, chosen at random.')
    return '\n'.join(lines)


def _explain(message: str) -> str:
    if 'no network of its own' in message:
        return (
            'this system gives the worker no network of its own (user namespaces are not allowed), '
            'so it would listen on every interface; --address=0.0.0.0 accepts that'
        )
    return message


if __name__ == '__main__':
    command_line.run(main)
