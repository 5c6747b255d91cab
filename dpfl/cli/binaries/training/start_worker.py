"""Starts a TFF worker on this host, for a run elsewhere with --workers. Ctrl-C or SIGTERM ends it.

Example:
  python -m experiments.start_worker --port=8000 --token_file=worker.token

Only those who have the token can use the worker, and the traffic is encrypted. Copy the token file
to the host of the run in a way that nobody else can read, and there call

  python -m experiments.train ... --workers=this-host:8000 --worker_token_file=worker.token

Without a token the worker executes whatever it is sent by anyone: whoever reaches the port can do
what the user of the worker can do. So by default it then listens for this host only. Other hosts
connect through a tunnel: call there

  ssh -N -L 8001:localhost:8000 this-host     # and then train with --workers=localhost:8001
"""

import getpass
import sys

from absl import flags

from dpfl.cli.command import command_line, listening
from dpfl.runtime import failures, signals
from dpfl.runtime.workers import service

_PORT = flags.DEFINE_integer('port', 8000, 'TCP port.', lower_bound=1, upper_bound=65535)
_ADDRESS = flags.DEFINE_string(
    'address',
    None,
    'Number of the interface on which the worker listens: 127.0.0.1 for this host only, that of a '
    'network, or 0.0.0.0 for all. By default all with --token_file, and this host only without.',
)
_TOKEN_FILE = flags.DEFINE_string(
    'token_file',
    None,
    'File with the secret that a run needs to use this worker. If it does not exist, it is made; '
    'only this user can read it.',
)
_ALLOW_ANYBODY = flags.DEFINE_bool(
    'allow_anybody',
    False,
    'Listen without a token even on interfaces that others reach. Whoever does can run code here.',
)
_MAX_CONCURRENT_CLIENTS = flags.DEFINE_integer(
    'max_concurrent_clients',
    None,
    'Largest number of shards that the worker processes at a time.',
    lower_bound=1,
)
_START_SECONDS = 60.0


def main() -> None:
    """Runs the worker until a signal ends it."""
    listening.check_address(
        _address(),
        has_token=_TOKEN_FILE.value is not None,
        allow_anybody=_ALLOW_ANYBODY.value,
    )
    listener = listening.listener(_address(), _PORT.value)
    token = None if _TOKEN_FILE.value is None else listening.token(_TOKEN_FILE.value)
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


def _announcement(running: service.Worker) -> str:
    lines = [f'TFF worker (process {running.pid}) on {running.target}; Ctrl-C ends it.']
    if _TOKEN_FILE.value is not None:
        lines.append(
            f'Only those with the token in {_TOKEN_FILE.value} reach it, and can run code here as '
            f'{getpass.getuser()}.'
        )
        return '\n'.join(lines)
    lines.append(
        f'It asks for no token: whoever reaches this port can run code here as {getpass.getuser()}.'
    )
    if not running.is_isolated():
        lines.append('It also listens on another port of every interface, chosen at random.')
    return '\n'.join(lines)


def _explain(error: failures.WorkerError) -> str:
    if not isinstance(error, failures.IsolationError):
        return str(error)
    consequence = (
        'others could bypass the token'
        if _TOKEN_FILE.value is not None
        else 'it would listen on every interface; --allow_anybody accepts that'
    )
    return (
        'this system gives the worker no network of its own (user namespaces are not allowed), '
        f'so {consequence}'
    )


if __name__ == '__main__':
    command_line.run(main)
