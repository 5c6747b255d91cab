"""Files for --flagfile: found by path or by name, and read with those that they name.

A line is a flag, a comment that begins with `#` or `//`, or empty. A relative path in a file is one
from the current directory, or else from the directory of that file.

A preset is what --flagfile holds. What follows it on the command line wins over it. Some flags of
the preset then have no meaning: the parameters of another mechanism, or a second amount of noise.
They are dropped, and a message says so.
"""

import difflib
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

from absl import flags

from dpfl import _files, errors, presets
from dpfl.simulation.training.mechanism import PARAMETERS
from dpfl.simulation.training.privacy_config import AMOUNTS

# Longest name of a flag. absl fails while it searches for names like one of a thousand letters.
_MOST_LETTERS = 100
# A file may name others, and these the same ones again.
_MOST_FILES = 100
_FLAG = 'flagfile'
# A flag whose value may be a file beside the flag file.
_STRATEGY = '--strategy'
# Flags of a preset that are dropped, by the flag that is given instead.
_REPLACED = {
    'mechanism': PARAMETERS,
    'strategy': ('blt_decay', 'blt_scale'),
    'blt_decay': ('strategy',),
    'blt_scale': ('strategy',),
    'client_update': ('client_epochs', 'client_max_batches', 'clip_each_batch'),
    'noise_multiplier': ('target_epsilon',),
    'target_epsilon': ('noise_multiplier',),
}


def expand(arguments: Iterable[str]) -> list[tuple[str, bool]]:
    """Arguments of a command line, with the lines of its flag files in their place.

    Returns:
      Each argument, and whether it is a line of a file.

    Raises:
      flags.Error: If a file is not there or no text, or the name of a flag is far too long.
    """
    expanded: list[tuple[str, bool]] = []
    following = iter(arguments)
    for argument in following:
        if _name(argument) == _FLAG:
            _, separator, value = argument.partition('=')
            path = value if separator else next(following, '')
            expanded += [(line, True) for line in read(path)]
        else:
            expanded.append((_checked(argument), False))
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
    if not name:
        raise flags.Error('--flagfile: must be a file, or the name of a preset')
    path = _found(name, beside)
    if path in outer:
        return
    if next(remaining, None) is None:
        raise flags.Error(f'--flagfile={name}: more than {_MOST_FILES} files')
    for line in map(str.strip, _text(name, path).split('\n')):
        flag, _, value = _checked(line).partition('=')
        if _name(flag) == _FLAG:
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


def adjust(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Replaces flag files by their lines, without those that the rest of the command line replaces.

    Args:
      arguments: of the command line, without the name of the program.

    Returns:
      The arguments, those of the preset first, and a message for each flag of the preset that was
      changed or dropped.

    Raises:
      flags.Error: As in `expand`.
    """
    pairs = expand(arguments)
    count = max((i + 1 for i, (_, is_preset) in enumerate(pairs) if is_preset), default=0)
    first, own_arguments = pairs[:count], [argument for argument, _ in pairs[count:]]
    preset = _values([line for line, is_preset in first if is_preset])
    own = _values(own_arguments)
    dropped, messages = replaced(preset, own)
    kept = [line for line, is_preset in first if not is_preset or _name(line) not in dropped]
    rounds, separation = own.get('rounds', ''), preset.get('min_separation', '')
    if rounds.isdecimal() and separation.isdecimal() and int(separation) > int(rounds) > 0:
        # Either way no client takes part twice.
        if 'min_separation' not in own:
            kept.append(f'--min_separation={rounds}')
            messages.append(
                f'--min_separation={separation} of the preset: {rounds} here, since --rounds='
                f'{rounds} is given'
            )
    return [*kept, *own_arguments], messages


def replaced(preset: Mapping[str, str], own: Mapping[str, str]) -> tuple[set[str], list[str]]:
    """Flags of a preset, or of a run that continues, that other flags replace.

    Args:
      preset: its flags.
      own: the flags that are given beside it, and win over it.

    Returns:
      The names of the flags that are dropped, and a message for each.
    """
    dropped: set[str] = set()
    messages = []
    for name, value in own.items():
        others = _REPLACED.get(name, ())
        if name == 'mechanism':
            if preset.get(name) == value:
                continue
            if value == 'none':
                others = (*others, *AMOUNTS)
        if name == 'client_update' and value != 'fedsgd':
            continue  # FedSGD alone has one batch only.
        for other in others:
            if other in preset and other not in own and other not in dropped:
                dropped.add(other)
                messages.append(
                    f'--{other}={preset[other]} of the preset: dropped, since --{name}={value} is '
                    'given'
                )
    return dropped, messages


def _name(argument: str) -> str:
    """Name of the flag of an argument; '' for another argument."""
    return argument.strip().partition('=')[0].lstrip('-') if argument.startswith('-') else ''


def _values(arguments: Sequence[str]) -> dict[str, str]:
    """Value of each flag that has one, the last if it is there twice."""
    values: dict[str, str] = {}
    for i, argument in enumerate(arguments):
        name, separator, value = argument.strip().partition('=')
        if not name.startswith('-'):
            continue
        if not separator and i + 1 < len(arguments) and not arguments[i + 1].startswith('-'):
            value = arguments[i + 1]
        values[name.lstrip('-')] = value
    return values
