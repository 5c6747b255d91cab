"""The command lines that messages tell a user to type, also to install a missing package."""

import importlib.util
import os
import pathlib
import shlex
import shutil
import sys

from dpfl.cli import catalogue

# Names for pip of packages that commands without TensorFlow Federated need.
_LIGHT = {
    'absl': 'absl-py',
    'cryptography': 'cryptography',
    'dp_accounting': 'dp-accounting',
    'markdown': 'markdown',
    'matplotlib': 'matplotlib',
    'numpy': 'numpy',
    'scipy': 'scipy',
    'tqdm': 'tqdm',
}
_PYARROW = ('pyarrow', 'pandas')


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


def explain_missing(error: ModuleNotFoundError, binary: str) -> str | None:
    """Names the missing package and how to install it; None if the module is our own.

    Args:
      error: of the import.
      binary: name of the command.
    """
    command = f'dpfl {binary}'
    name = (error.name or '').partition('.')[0]
    if name in ('', 'dpfl', 'experiments'):
        return None
    # Training needs more than this one package: suggest the full installation.
    is_light = catalogue.binaries()[binary].group == 'accounting' or _has('tensorflow_federated')
    if name in _LIGHT and is_light:
        return f"{command} needs {name}, which is not installed: pip install 'dpfl[accounting]'"
    if name in _PYARROW:
        return f'{command} needs {name}, which is not installed: pip install {name}'
    return (
        f'{command} needs TensorFlow Federated, which is not installed here (no module {name}); on '
        f'Linux with Python 3.11, 3.12 or 3.13 this brings it: {shown("install_tff")}'
    )


def require(name: str) -> None:
    """Checks that a package is installed, before anything else is asked for.

    Raises:
      ModuleNotFoundError: if it is not installed.
    """
    if not _has(name):
        raise ModuleNotFoundError(f'No module named {name!r}', name=name)


def _has(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False
