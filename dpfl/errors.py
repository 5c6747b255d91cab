"""Errors that users of the library may want to catch; each message is one line."""

import contextlib
import difflib
from collections.abc import Iterable, Iterator

_MOST_CHARACTERS = 300
# Stands for a value that a message does not show, such as an array or an object.
NOT_SHOWN = object()
# The last commit before dominated designs and early formats were removed, before version 0.1.0.
_LAST_READER = 'c37a5758'


def shown(value: object, most: int = _MOST_CHARACTERS) -> str:
    """A value or an error as one line of printable text of at most about `most` characters."""
    try:
        text = str(value)
    except (ValueError, RecursionError):  # Thousands of digits or brackets.
        return f'<{type(value).__name__}>'
    text = ' '.join(text[: 2 * most + 1].split())
    if len(text) > most:
        text = text[: most - 3] + '...'
    return ''.join(c if c.isprintable() else c.encode('unicode_escape').decode() for c in text)


def one_of(value: object, allowed: Iterable[str], where: str = '') -> str:
    """Part of a message about a misspelt value: the allowed values, and the nearest of them.

    Example:
      >>> one_of('tre', ['gaussian', 'tree'])
      'must be one of gaussian, tree; the nearest is tree'
    """
    names = list(allowed)
    near = nearest(value, names)
    return f'must be one of {", ".join(names)}{where}' + (
        f'; the nearest is {near}' if near else ''
    )


def nearest(value: object, names: Iterable[str]) -> str | None:
    """The name that looks most like a value, in any case; None if none does."""
    by_lower = {name.lower(): name for name in names}
    written = str(value)[:_MOST_CHARACTERS].lower()
    near = difflib.get_close_matches(written, by_lower, 1, 0.5)
    beginning = [name for name in by_lower if written and name.startswith(written)]
    return by_lower[(beginning or near)[0]] if near or beginning else None


def removed(what: str, last_reader: str = _LAST_READER) -> str:
    """Part of a message about a file whose format or design this version no longer reads.

    Args:
      what: the format or the design, with a verb, such as 'has format 1'.
      last_reader: the last commit that reads it.
    """
    return f'{what}, which commit {last_reader} of dpfl was the last to read'


class ArgumentError(ValueError):
    """An argument has a value that is not allowed. The message is `name=value: allowed`.

    Attributes:
      name: name of the argument in the library; a binary translates it to a flag.
      value: the refused value; `NOT_SHOWN` if the message does not show it.
      allowed: what is allowed, such as 'must be > 0'.
    """

    def __init__(self, name: str, value: object, allowed: str):
        self.name = name
        self.value = value
        self.allowed = allowed
        super().__init__(self.named(name))

    def named(self, name: str) -> str:
        """The message with another name for the argument, such as the name of a flag."""
        if self.value is NOT_SHOWN:
            return f'{name}: {self.allowed}'
        return f'{name}={shown(self.value)}: {self.allowed}'

    def __reduce__(self) -> tuple:
        return type(self), (self.name, self.value, self.allowed)


class RunError(RuntimeError):
    """A run cannot begin or go on; everything that was saved before is intact."""


class StorageError(RunError):
    """A file cannot be read or written, for instance on a full disk; the message names the file."""


class DataError(RuntimeError):
    """Data that could be read before cannot be read now; the message does not quote any data.

    Attributes:
      reason: the message without the file that it is about.
    """

    def __init__(self, message: str, reason: str | None = None):
        self.reason = message if reason is None else reason
        super().__init__(message)

    @classmethod
    def of_file(cls, path: object, reason: str) -> 'DataError':
        """The error that a file cannot be used, with the reason."""
        return cls(f'{path}: {reason}', reason)


@contextlib.contextmanager
def renaming(**names: str) -> Iterator[None]:
    """Context in which an `ArgumentError` has the caller's name of the argument.

    Args:
      **names: the caller's names by those of the arguments.
    """
    try:
        yield
    except ArgumentError as error:
        if error.name not in names:
            raise
        raise ArgumentError(names[error.name], error.value, error.allowed) from error
