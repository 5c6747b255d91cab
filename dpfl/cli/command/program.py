"""How this process was started, for messages that name a command to type."""

_MODULE = 'python -m experiments.'
_SCRIPT = 'dpfl '
_typed = _MODULE


def is_script() -> None:
    """Says that the user typed `dpfl`; otherwise it was `python -m experiments.<name>`."""
    global _typed
    _typed = _SCRIPT


def shown(name: str) -> str:
    """A command as the user would type it, such as `dpfl train`."""
    return f'{_typed}{name}'


def arguments(name: str) -> list[str]:
    """The words of a command as the user would type them."""
    return shown(name).split()


def adapted(text: str) -> str:
    """A text that has commands as `python -m experiments.<name>`, with them as shown here."""
    return text.replace(_MODULE, _typed)
