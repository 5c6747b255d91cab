"""Flags defined from settings: one per value, with its name, type, default and help text.

A binary chooses the settings it has. The class of the settings is the only definition of a flag.

`--help` has a group for each class of settings. The title of a group is the first sentence of the
class that declares the settings.
"""

import inspect
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Generic, TypeVar

from absl import flags

from dpfl import _setting_texts, _settings
from dpfl._settings import Settings
from dpfl.cli.command.command_line import refusing_bad_values

# The group of flags that no settings class declares.
_OTHERS = 'Flags of this command'
# Classes, by name, whose groups come first and last; the others are in the order of definition.
_FIRST = ('RunDirectoryConfig', 'DryRunConfig')
_LAST = ('RunConfig', 'ExecutionConfig', 'FormatConfig')
# The class that declares each flag.
_classes: dict[str, type[Settings]] = {}
_S = TypeVar('_S', bound=Settings)


def grouped(names: Sequence[str]) -> dict[str, list[str]]:
    """Names of flags by the title of their group, in the order in which help shows them.

    Args:
      names: of flags.
    """
    declaring = dict.fromkeys(_classes.values())
    classes = [settings for settings in declaring if settings.__name__ not in _FIRST]
    first = [settings for settings in declaring if settings.__name__ in _FIRST]
    classes.sort(key=lambda settings: settings.__name__ in _LAST)
    titles = [*map(_title, first), _OTHERS, *map(_title, classes)]
    groups: dict[str, list[str]] = {heading: [] for heading in titles}
    for name in names:
        groups[_title(_classes[name]) if name in _classes else _OTHERS].append(name)
    return {heading: members for heading, members in groups.items() if members}


def _title(settings: type[Settings]) -> str:
    """The first sentence about a class of settings, without its full stop."""
    text = inspect.cleandoc(settings.__doc__ or '')
    return ' '.join(text.partition('\n\n')[0].split()).partition('. ')[0].rstrip('.')


def help_text(main_module: str) -> str:
    """The flags of a binary with their help, group by group.

    Args:
      main_module: name under which absl knows the main module.
    """
    own = {flag.name: flag for flag in flags.FLAGS.get_key_flags_for_module(main_module)}
    parts = []
    for heading, names in grouped(sorted(own)).items():
        # absl writes the flags of a module: each group is one.
        values = flags.FlagValues()
        for name in names:
            flags.DEFINE_flag(own[name], values, module_name=heading)
        parts.append(values.module_help(heading))
    return '\n'.join(parts)


def _declaring(settings: Settings) -> dict[str, type[Settings]]:
    """The class that declares each setting, those of nested settings included."""
    classes: dict[str, type[Settings]] = {}
    for name in type(settings).__dataclass_fields__:
        value = getattr(settings, name)
        if isinstance(value, Settings):
            classes |= _declaring(value)
        else:
            classes[name] = [
                kind
                for kind in type(settings).__mro__
                if name in vars(kind).get('__annotations__', {})
            ][-1]
    return classes


class SettingsFlags(Generic[_S]):
    """Defines flags for settings, and reads them.

    Args:
      settings: Class of the settings, or settings whose values are the defaults of the flags.
      defaults: Other defaults of flags, by name.
      choices: Allowed values of flags, by name, if they differ from those of the class.
      help: Other help texts of flags, by name.
      only: Names of the values that get a flag; by default all.
      skip: Names of values that get no flag.
    """

    def __init__(
        self,
        settings: type[_S] | _S,
        *,
        defaults: Mapping[str, Any] | None = None,
        choices: Mapping[str, Sequence[str]] | None = None,
        help: Mapping[str, str] | None = None,
        only: Collection[str] | None = None,
        skip: Collection[str] = (),
    ):
        self._base: Any = settings if isinstance(settings, Settings) else settings()
        self._kinds: dict[str, _settings.Kind] = {}
        # The flags belong to the module that calls this, so that --help shows them.
        frame = inspect.currentframe()
        assert frame is not None and frame.f_back is not None
        module = frame.f_back.f_globals['__name__']
        self._module = sys.argv[0] if module == '__main__' else module
        for field, kind, value in self._base.table():
            name = field.name
            if name in skip or (only is not None and name not in only):
                continue
            text = (help or {}).get(name, field.metadata['help'])
            allowed = (choices or {}).get(name, _settings.choices_of(field))
            self._define(name, kind, (defaults or {}).get(name, value), text, allowed)
            self._kinds[name] = kind
        declaring = _declaring(self._base)
        _classes.update({name: declaring[name] for name in self._kinds})

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the flags."""
        return tuple(self._kinds)

    def read(self) -> _S:
        """The settings with the values of the flags.

        Raises:
          UsageError: If a value is not allowed.
        """
        with refusing_bad_values():
            return self._base.with_values(self.values())

    def values(self) -> dict[str, Any]:
        """The values of the flags by name, not checked by the settings.

        Raises:
          UsageError: If an entry of a list has another type.
        """
        values: dict[str, Any] = {name: flags.FLAGS[name].value for name in self._kinds}
        with refusing_bad_values():
            for name, kind in self._kinds.items():
                if kind.is_tuple and values[name] is not None:
                    values[name] = _setting_texts.entries(name, kind.scalar, values[name])
        return values

    def _define(
        self, name: str, kind: _settings.Kind, default: Any, text: str, allowed: Sequence[str]
    ) -> None:
        owner: dict[str, Any] = {'module_name': self._module}
        if kind.is_tuple:
            listed = None if default is None else list(map(str, default))
            flags.DEFINE_list(name, listed, text, **owner)
        elif kind.scalar is bool:
            flags.DEFINE_boolean(name, default, text, **owner)
        elif allowed:
            flags.DEFINE_enum(name, default, list(allowed), text, **owner)
        elif kind.scalar is int:
            flags.DEFINE_integer(name, default, text, **owner)
        elif kind.scalar is float:
            flags.DEFINE_float(name, default, text, **owner)
        else:
            flags.DEFINE_string(name, default, text, **owner)
        flags.FLAGS.register_key_flag_for_module(self._module, flags.FLAGS[name])
