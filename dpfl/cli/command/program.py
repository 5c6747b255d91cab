"""How this process was started, for messages that name a command to type."""

import os
import shlex
import sys

# As examples have it.
_MODULE = 'python -m experiments.'
_SCRIPT = 'dpfl '
_typed: str | None = None


def is_script() -> None:
    """Says that the user typed `dpfl`; otherwise it was `python -m experiments.<name>`."""
    global _typed
    _typed = _SCRIPT


def shown(name: str) -> str:
    """A command as the user would type it, such as `dpfl train`."""
    return f'{_typed or _module()}{name}'


def command(name: str, *arguments: str) -> str:
    """A command line that runs here, with its arguments quoted for a shell."""
    return ' '.join([shown(name), *map(shlex.quote, arguments)])


def adapted(text: str) -> str:
    """A text that has commands as `python -m experiments.<name>`, with them as shown here."""
    return text.replace(_MODULE, _typed or _module())


def _module() -> str:
    """How modules run with the interpreter of this process, which may not be that of the shell."""
    path = sys.executable or 'python'
    below = os.path.relpath(path)
    return f'{shlex.quote(path if below.startswith(os.pardir) else below)} -m experiments.'
