"""Environments of other packages, created on first use.

They are in ~/.cache/dpfl/peers, or in XDG_CACHE_HOME if it is set. pip installs the packages, as it
is configured on the machine.
"""

import functools
import os
import pathlib
import re
import subprocess
import sys
import venv
from collections.abc import Sequence


class NotRunError(Exception):
    """Something could not be measured. The message is one line."""


@functools.cache
def python(name: str, requirements: Sequence[str], timeout: float) -> tuple[str, str]:
    """The Python interpreter of a package's environment, and the versions of its packages.

    Args:
      name: name of the directory.
      requirements: pip requirements, each of one version (`package==version`); a tuple.
      timeout: seconds until a process is given up.

    Raises:
      NotRunError: if there is no environment and none can be created.
    """
    cache = pathlib.Path(os.environ.get('XDG_CACHE_HOME') or '~/.cache').expanduser()
    directory = cache / 'dpfl' / 'peers' / name
    interpreter = str(directory / 'bin' / 'python')
    pins = [requirement.split('==') for requirement in requirements]
    ask = (
        'from importlib.metadata import version\n'
        f'for name, pin in {pins}:\n'
        '  name = name.split("[")[0]\n'
        '  assert version(name).split("+")[0] == pin, name\n'
        '  print(name, version(name))'
    )
    try:
        return interpreter, _versions(interpreter, ask, timeout)
    except NotRunError:
        print(f'installing {" ".join(requirements)} in {directory}', file=sys.stderr, flush=True)
    try:
        venv.create(directory, clear=True, symlinks=True, with_pip=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise NotRunError(f'no environment for it: {error}') from None
    call([interpreter, '-m', 'pip', 'install', '--quiet', *requirements], timeout)
    return interpreter, _versions(interpreter, ask, timeout)


def _versions(interpreter, ask, timeout):
    return ', '.join(call([interpreter, '-c', ask], timeout).splitlines())


def call(command: list[str], timeout: float, environment: dict[str, str] | None = None) -> str:
    """Runs a process and returns its standard output.

    Raises:
      NotRunError: if the process cannot be started, fails or takes too long.
    """
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **(environment or {})},
            timeout=timeout,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except OSError as error:
        raise NotRunError(f'{command[0]}: {error.strerror}') from None
    except subprocess.TimeoutExpired:
        raise NotRunError(f'given up after {timeout:g} s') from None
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f'exit status {done.returncode}']
        # The message of an exception may have several lines, of which the first names it.
        named = [line for line in lines if re.match(r'[\w.]*(Error|Exception)\b', line)]
        raise NotRunError((named or lines)[-1])
    return done.stdout
