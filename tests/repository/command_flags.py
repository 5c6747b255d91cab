"""The commands with their flags, types, bounds and defaults, for tests of pages and docstrings.

The flags are those that the binaries define: each binary is imported, which loads no TensorFlow,
and its flags are taken from absl again before the next one.

Run as a program, it prints them as JSON.
"""

import dataclasses
import json
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

from absl import flags

from dpfl import _settings
from dpfl.cli import catalogue
from dpfl.cli.flags import settings_flags
from dpfl.cli.flags.settings_flags import SettingsFlags
from tests import paths

_SCALARS = {bool: 'true or false', int: 'integer', float: 'number', str: 'text'}
_PLURALS = {int: 'integers', float: 'numbers', str: 'texts'}


@dataclasses.dataclass(frozen=True)
class Flag:
    """A flag.

    Attributes:
      name: without dashes.
      kind: its type and bounds, in words.
      choices: the allowed values; empty for any.
      default: the value without the flag, as text; None for none.
      help: what it is for.
      group: heading it stands under.
    """

    name: str
    kind: str
    choices: tuple[str, ...]
    default: str | None
    help: str
    group: str


@dataclasses.dataclass(frozen=True)
class Command:
    """A command with its flags, in the order in which its help shows their groups.

    Attributes:
      name: such as `train`.
      group: kind of command, such as `training`.
      about: its docstring.
      flags: its flags.
    """

    name: str
    group: str
    about: str
    flags: tuple[Flag, ...]


def read() -> list[Command]:
    """The commands."""
    found = []
    for binary in (*catalogue.binaries().values(), *catalogue.studies().values()):
        before = set(flags.FLAGS)
        names = binary.define()
        own = {flag.name: flag for flag in flags.FLAGS.flags_by_module_dict().get(binary.name, [])}
        fields = _fields(names.values())
        each = tuple(
            _flag(own[name], fields.get(name), group)
            for group, members in settings_flags.grouped(list(own)).items()
            for name in members
        )
        about = (names['__doc__'] or '').strip()
        found.append(Command(binary.name, binary.group, about, each))
        for name in set(flags.FLAGS) - before:
            delattr(flags.FLAGS, name)
        settings_flags._classes.clear()
    return found


def read_apart() -> list[dict[str, Any]]:
    """The commands, as JSON values, read by a process of its own."""
    done = subprocess.run(
        [sys.executable, '-m', 'tests.repository.command_flags'],
        cwd=paths.ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def _fields(values: Iterable[Any]) -> dict[str, tuple[type, dataclasses.Field]]:
    """The class and the field of every setting that a binary has flags for."""
    found = {}
    for value in values:
        if isinstance(value, SettingsFlags):
            leaves = _leaves(type(value._base))
            found.update({name: leaves[name] for name in value._names})
    return found


def _leaves(cls: type[_settings.Settings]) -> dict[str, tuple[type, dataclasses.Field]]:
    found = {}
    for field in dataclasses.fields(cls):
        inner = _settings.nested(cls, field.name)
        if inner is not None:
            found.update(_leaves(inner))
        else:
            owner = next(
                c for c in reversed(cls.__mro__) if field.name in vars(c).get('__annotations__', {})
            )
            found[field.name] = (cls if owner is cls else owner, field)
    return found


def _flag(flag: flags.Flag, setting: tuple[type, dataclasses.Field] | None, group: str) -> Flag:
    choices = tuple(getattr(flag.parser, 'enum_values', ()))
    text = flag.help
    if choices:
        text = text.removeprefix(f'<{"|".join(choices)}>: ')
    default = flag.default
    if isinstance(default, list | tuple):
        default = ','.join(map(str, default)) or None
    return Flag(
        name=flag.name,
        kind=_kind_of_flag(flag) if setting is None else _kind_of_setting(*setting),
        choices=choices,
        default=None if default is None else _text(default),
        help=text,
        group=group,
    )


def _kind_of_setting(owner: type, field: dataclasses.Field) -> str:
    kind = _settings.kind_of(owner, field.name)
    if kind.is_tuple:
        return f'list of {_PLURALS.get(kind.scalar, "round:norm")}'
    return _bounded(_SCALARS.get(kind.scalar, 'text'), field.metadata['bounds'])


def _kind_of_flag(flag: flags.Flag) -> str:
    if flag.flag_type() == 'bool':
        return _SCALARS[bool]
    if 'list' in flag.flag_type() or 'multi' in flag.flag_type():
        return 'list of texts' if 'list' in flag.flag_type() else 'text, any number of times'
    names = {'int': int, 'float': float}
    parser = flag.parser
    bounds = {
        'minimum': getattr(parser, 'lower_bound', None),
        'maximum': getattr(parser, 'upper_bound', None),
    }
    return _bounded(_SCALARS[names.get(flag.flag_type(), str)], bounds)


def _bounded(kind: str, bounds: dict[str, Any]) -> str:
    words = {'minimum': '≥', 'above': '>', 'maximum': '≤', 'below': '<'}
    parts = [
        f'{words[name]} {_text(bounds[name])}' for name in words if bounds.get(name) is not None
    ]
    return f'{kind} {" and ".join(parts)}' if parts else kind


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'{value:g}' if isinstance(value, float) and value == float(f'{value:g}') else str(value)


if __name__ == '__main__':
    json.dump([dataclasses.asdict(command) for command in read()], sys.stdout)
