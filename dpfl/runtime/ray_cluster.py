"""Connects this process to Ray: one that it starts on this machine, or a cluster that runs already.

Ray is imported here and in `ray_rounds` only, when one of them is used.
"""

import contextlib
import logging
import os
import pathlib
import secrets
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from dpfl import errors
from dpfl.runtime.failures import RayError

LOCAL, AUTO = 'local', 'auto'

# Memory for model, shards and updates on their way between processes; Ray takes it as it is needed,
# and writes to disk what does not fit.
_OBJECT_STORE_BYTES = 2 << 30
# Ray gives up after half a minute. On a busy machine another attempt may succeed.
_STARTS = 3
# A Unix socket's path has at most 107 bytes, of which Ray adds about 70.
_MOST_FOLDER_CHARACTERS = 30

_NICENESS, _TOKEN_PATH = 'RAY_worker_niceness', 'RAY_AUTH_TOKEN_PATH'
# How long the processes of a Ray that was started here may take to end by themselves.
_LEAVING_SECONDS, _POLL_SECONDS = 10.0, 0.1

_log = logging.getLogger(__name__)
# Ray's native code keeps the first token that a process has used.
_token = secrets.token_hex(32)


def check_address(address: str) -> str:
    """The address, if Ray can be asked for it.

    Raises:
      ArgumentError: if it is none of 'local', 'auto' and host:port.
    """
    host, _, port = address.rpartition(':')
    is_place = bool(host) and '/' not in host and port.isdigit() and 0 < int(port) < 1 << 16
    if address not in (LOCAL, AUTO) and not is_place:
        raise errors.ArgumentError('ray', address, 'must be local, auto or host:port')
    return address


def imported() -> Any:
    """The package `ray`.

    Raises:
      RayError: if it is not installed.
    """
    try:
        import ray
    except ImportError:
        raise RayError("Ray is not installed: pip install 'dpfl[ray]'") from None
    return ray


@contextlib.contextmanager
def connected(address: str | None) -> Iterator[None]:
    """Context manager within which this process is connected to Ray.

    Enter it outside of the main thread: there Ray would replace the handler of SIGTERM.

    Args:
      address: 'local' starts Ray on the cores of this machine, and ends it with the block; 'auto'
        joins the cluster that runs on this machine, or that RAY_ADDRESS names, and host:port the
        cluster there, which stay as they were. None takes the connection that the process has, and
        is 'local' if there is none.

    Raises:
      ArgumentError: if it is no address, or if the process is connected to a cluster already.
      RayError: if Ray is not installed, does not start, or does not answer there.
    """
    if address is not None:
        check_address(address)
    ray = imported()
    if ray.is_initialized():
        if address not in (None, AUTO):
            raise errors.ArgumentError(
                'ray', address, 'must be auto: this process is connected to a cluster already'
            )
        yield
        return
    is_own = address in (None, LOCAL)
    for attempt in range(_STARTS, 0, -1):
        with contextlib.ExitStack() as stack:
            settings = stack.enter_context(_own_ray()) if is_own else {'address': address}
            stack.enter_context(_quiet(ray))
            stack.callback(ray.shutdown)  # Also if it fails: processes may have started.
            try:
                ray.init(log_to_driver=False, logging_level=logging.ERROR, **settings)
            except Exception as error:  # It raises several kinds, and `Exception` itself.
                if is_own and attempt > 1:
                    continue
                place = 'on this machine' if is_own else f'at {address}'
                reason = str(error).strip().partition('\n')[0]
                raise RayError(f'Ray {place}: {errors.shown(reason)}') from None
            yield
            return


@contextlib.contextmanager
def _own_ray() -> Iterator[dict[str, Any]]:
    """Settings of a Ray of this process alone, whose files go with the block."""
    from dpfl.runtime import shards  # Loads TensorFlow.

    parent = tempfile.gettempdir()
    if len(parent) > _MOST_FOLDER_CHARACTERS:
        parent = '/tmp'
    folder = pathlib.Path(tempfile.mkdtemp(prefix='dpfl-ray-', dir=parent))
    token = folder / 'token'
    try:
        token.touch(0o600)
        token.write_text(_token)
        # Its processes inherit these. Ray asks for a token by default, and then sets RAY_AUTH_MODE.
        ours = {
            'RAY_USAGE_STATS_ENABLED': '0',
            _TOKEN_PATH: str(token),
            # Ray's default, 15, leaves its processes nothing of a core that others use as well.
            _NICENESS: os.environ.get(_NICENESS, '0'),
        }
        with _environment(ours):
            yield {
                'address': LOCAL,
                'num_cpus': shards.default_num_shards(),
                'include_dashboard': False,
                'object_store_memory': _OBJECT_STORE_BYTES,
                '_node_ip_address': '127.0.0.1',
                '_temp_dir': str(folder),
            }
    finally:
        _end_processes(folder, token)
        shutil.rmtree(folder, ignore_errors=True)


def _end_processes(folder: pathlib.Path, token: pathlib.Path) -> None:
    """Ends the processes of the Ray with these files, after some time of their own.

    Some try for minutes to tell their head something, even if it is gone.
    """
    deadline = time.monotonic() + _LEAVING_SECONDS
    setting = os.fsencode(f'{_TOKEN_PATH}={token}')
    while True:
        ids = []
        for path in pathlib.Path('/proc').glob('[0-9]*'):
            with contextlib.suppress(OSError):  # It has ended, or is that of another user.
                title = path.joinpath('cmdline').read_bytes()
                # Processes of other programs may inherit the token.
                if os.fsencode(folder) in title or (
                    title.startswith(b'ray::') and setting in path.joinpath('environ').read_bytes()
                ):
                    ids.append(int(path.name))
        if not ids or time.monotonic() >= deadline:
            break
        time.sleep(_POLL_SECONDS)
    for process in ids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


@contextlib.contextmanager
def _environment(ours: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in (*ours, 'RAY_AUTH_MODE')}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _quiet(ray: Any) -> Iterator[None]:
    """Ray prints what happens to a cluster on standard output, where commands print results."""
    logging.getLogger('ray').setLevel(logging.ERROR)
    module, name = ray._private.worker, 'print_to_stdstream'
    before = getattr(module, name, None)
    # Of a task with several results Ray would show an error for each that nobody reads.
    with _environment({'RAY_IGNORE_UNHANDLED_ERRORS': '1'}):
        if before is None:
            yield
            return
        setattr(module, name, lambda data, *others, **named: _log.debug('%s', data))
        try:
            yield
        finally:
            setattr(module, name, before)
