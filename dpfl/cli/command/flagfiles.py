"""Files for --flagfile: found by path or by name, and read with those that they name.

A line is a flag, a comment that begins with `#` or `//`, or empty. A relative path in a file is one
from the current directory, or else from the directory of that file.
"""

import difflib
import os
import pathlib
from collections.abc import Iterable, Iterator, Sequence

from absl import flags

from dpfl import _files, errors, presets

# Longest name of a flag. absl fails while it searches for names like one of a thousand letters.
_MOST_LETTERS = 100
# A file may name others, and these the same ones again.
_MOST_FILES = 100
_FLAGS = ('--flagfile', '-flagfile')
# A flag whose value may be a file beside the flag file.
_STRATEGY = '--strategy'


def expand(arguments: Sequence[str]) -> list[str]:
    """Arguments of a command line with the lines of its flag files in their place.

    Raises:
      flags.Error: If a file is not there or no text, or the name of a flag is far too long.
    """
    expanded: list[str] = []
    following = iter(arguments)
    for argument in following:
        name, separator, value = argument.partition('=')
        if name in _FLAGS:
            expanded += read(value if separator else next(following, ''))
        else:
            expanded.append(_checked(argument))
    return expanded


def read(name_or_path: str) -> list[str]:
    """The flags in a file and in those that it names, in their order.

    Raises:
      flags.Error: As in `expand`.
    """
    return list(_lines(name_or_path, None, (), iter(range(_MOST_FILES))))


def _lines(
    name_or_path: str,
    beside: pathlib.Path | None,
    outer: tuple[pathlib.Path, ...],
    remaining: Iterator[int],
) -> Iterable[str]:
    name = os.path.expanduser(name_or_path.strip())
    path = _found(name, beside) if name else None
    if path is None or path in outer:
        return
    if next(remaining, None) is None:
        raise flags.Error(f'--flagfile={name}: more than {_MOST_FILES} files')
    for line in map(str.strip, _text(name, path).split('\n')):
        flag, separator, value = _checked(line).partition('=')
        if flag in _FLAGS:
            yield from _lines(value, path.parent, (*outer, path), remaining)
        elif flag == _STRATEGY and not os.path.exists(value) and (path.parent / value).is_file():
            yield f'{flag}={path.parent / value}'
        elif line and not line.startswith(('#', '//')):
            yield line


def _found(name: str, beside: pathlib.Path | None) -> pathlib.Path:
    try:
        path = presets.find(name, beside)
    except ValueError:  # A null character.
        path = None
    if path is not None or os.sep in name.removeprefix('configs/'):
        return path or pathlib.Path(name)
    near = difflib.get_close_matches(name.removesuffix('.flags'), presets.names(), 1, 0.4)
    known = f', such as {near[0]}' if near else ''
    raise flags.Error(
        f'--flagfile={errors.shown(name)}: must be a file, or the name of a preset{known}'
    )


def _text(name: str, path: pathlib.Path) -> str:
    # absl would wait for a FIFO and read a device without end.
    try:
        return _files.read_text(path)
    except OSError as error:
        raise flags.Error(f'--flagfile={name}: cannot be read ({error.strerror})') from None
    except ValueError:
        raise flags.Error(f'--flagfile={name}: must be UTF-8 text') from None


def _checked(argument: str) -> str:
    name = argument.partition('=')[0]
    if name.startswith('-') and len(name) > _MOST_LETTERS:
        raise flags.Error(f'{errors.shown(name, 80)}: is not a flag')
    return argument
