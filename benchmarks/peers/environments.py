"""Environments of other packages, created on first use.

They are in ~/.cache/dpfl/peers, or in XDG_CACHE_HOME if it is set. pip installs the packages, as it
is configured on the machine.
"""

import os
import pathlib
import re
import subprocess
import sys
import venv
from collections.abc import Sequence

# File of an environment with the requirements that were installed in it.
INSTALLED = 'installed'


class NotRunError(Exception):
    """Something could not be measured. The message is one line."""


def python(
    name: str, requirements: Sequence[str], timeout: float, alone: Sequence[str] = ()
) -> str:
    """The Python interpreter of a package's environment.

    Args:
      name: name of the directory.
      requirements: pip requirements.
      timeout: seconds until a process is given up.
      alone: pip requirements that are installed without what they require themselves.

    Raises:
      NotRunError: if there is no environment and none can be created.
    """
    cache = pathlib.Path(os.environ.get('XDG_CACHE_HOME') or '~/.cache').expanduser()
    directory = cache / 'dpfl' / 'peers' / name
    interpreter, installed = str(directory / 'bin' / 'python'), directory / INSTALLED
    wanted = '\n'.join([*requirements, *alone])
    if not installed.exists() or installed.read_text() != wanted:
        print(f'installing {wanted!r} in {directory}', file=sys.stderr, flush=True)
        try:
            venv.create(directory, clear=True, symlinks=True, with_pip=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise NotRunError(f'no environment for it: {error}') from None
        install = [interpreter, '-m', 'pip', 'install', '--quiet']
        call([*install, *requirements], timeout)
        if alone:
            call([*install, '--no-deps', *alone], timeout)
        installed.write_text(wanted)
    return interpreter


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
