"""The command lines that messages tell a user to type."""

import os
import pathlib
import shlex
import shutil
import sys


def shown(name: str) -> str:
    """A command as it runs in the user's shell: `dpfl train` if the PATH has this `dpfl`."""
    return f'{_program()} {name}'


def command(name: str, *arguments: str) -> str:
    """A command line that runs here, with its arguments quoted for a shell."""
    return ' '.join([shown(name), *map(shlex.quote, arguments)])


def _program() -> str:
    """`dpfl`, the path of the script beside this Python, or `python -m dpfl`."""
    script = pathlib.Path(sys.executable).with_name('dpfl')
    if script.is_file() and shutil.which('dpfl') == str(script):
        return 'dpfl'
    path = str(script) if script.is_file() else sys.executable or 'python'
    below = os.path.relpath(path)
    shell = shlex.quote(path if below.startswith(os.pardir) else below)
    return shell if script.is_file() else f'{shell} -m dpfl'
