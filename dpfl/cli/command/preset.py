"""Flags of a preset that no longer apply, because the command line says something else.

A preset is what --flagfile holds. What follows it on the command line wins over it. Some flags of
the preset then have no meaning: the parameters of another mechanism, or a second amount of noise.
They are dropped, and a message says so.
"""

import dataclasses
from collections.abc import Callable, Iterable, Sequence

_MECHANISM_FLAGS = ('strategy', 'blt_decay', 'blt_scale', 'bands')
_TREE_FLAGS = ('tree_released',)
_AMOUNTS = ('noise_multiplier', 'target_epsilon', 'match')
# Flags of a preset that are dropped, by the flag that is given instead.
_REPLACED = {
    'mechanism': (*_MECHANISM_FLAGS, *_TREE_FLAGS),
    'strategy': ('blt_decay', 'blt_scale'),
    'blt_decay': ('strategy',),
    'blt_scale': ('strategy',),
    'client_update': ('client_epochs', 'client_max_batches', 'clip_each_batch'),
    **{name: tuple(other for other in _AMOUNTS if other != name) for name in _AMOUNTS},
}
# Flags that a run without noise has no use for.
_NOISE_FLAGS = _AMOUNTS


@dataclasses.dataclass(frozen=True)
class Adjusted:
    """Arguments of the command line, and the changes of the preset.

    Attributes:
      arguments: those of the preset that still apply, then the others.
      messages: a line for each flag of the preset that was changed or dropped.
    """

    arguments: tuple[str, ...]
    messages: tuple[str, ...]


def adjust(arguments: Sequence[str], read: Callable[[str], Iterable[str]]) -> Adjusted:
    """Drops the arguments of a preset that the command line replaces.

    Args:
      arguments: of the command line, without the name of the program.
      read: maps the value of --flagfile to the arguments in that file, and in files it names.
    """
    last = max(
        (i for i, argument in enumerate(arguments) if _name(argument) == 'flagfile'), default=None
    )
    if last is None:
        return Adjusted(tuple(arguments), ())
    if '=' not in arguments[last]:
        last += 1  # The path is an argument of its own.
    # Each argument up to there, and whether it is of a preset.
    first: list[tuple[str, bool]] = []
    following = iter(arguments[: last + 1])
    for argument in following:
        if _name(argument) == 'flagfile':
            path = argument.partition('=')[2] if '=' in argument else next(following, '')
            first += [(line, True) for line in read(path)]
        else:
            first.append((argument, False))
    preset = _values([line for line, is_preset in first if is_preset])
    own = _values(arguments[last + 1 :])
    dropped, messages = _replaced(preset, own)
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
    return Adjusted((*kept, *arguments[last + 1 :]), tuple(messages))


def _replaced(preset: dict[str, str], own: dict[str, str]) -> tuple[set[str], list[str]]:
    """Names of the preset that are dropped, and a message for each."""
    dropped: set[str] = set()
    messages = []
    for name, value in own.items():
        others = _REPLACED.get(name, ())
        if name == 'mechanism':
            if preset.get(name) == value:
                continue
            if value == 'none':
                others = (*others, *_NOISE_FLAGS)
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
