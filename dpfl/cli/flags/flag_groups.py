"""The flags of a binary in groups, for `--help`: a group for each class of settings.

The title of a group is the first sentence of the class that declares the settings.
"""

import inspect
from collections.abc import Sequence

from absl import flags

from dpfl._settings import Settings

# The group of flags that no settings class declares.
_OTHERS = 'Flags of this command'
# Classes, by name, whose groups come first and last; the others are in the order of definition.
_FIRST = ('RunDirectoryConfig', 'DryRunConfig')
_LAST = ('RunConfig', 'ExecutionConfig', 'FormatConfig')
# The class that declares each flag.
_classes: dict[str, type[Settings]] = {}


def remember(settings: Settings, names: Sequence[str]) -> None:
    """Notes which classes declare the settings of some flags."""
    declaring = _declaring(settings)
    _classes.update({name: declaring[name] for name in names})


def grouped(names: Sequence[str]) -> dict[str, list[str]]:
    """Names of flags by the title of their group, in the order in which help shows them.

    Args:
      names: of flags.
    """
    declaring = dict.fromkeys(_classes.values())
    classes = [settings for settings in declaring if settings.__name__ not in _FIRST]
    first = [settings for settings in declaring if settings.__name__ in _FIRST]
    classes.sort(key=lambda settings: settings.__name__ in _LAST)
    titles = [*map(title, first), _OTHERS, *map(title, classes)]
    groups: dict[str, list[str]] = {heading: [] for heading in titles}
    for name in names:
        groups[title(_classes[name]) if name in _classes else _OTHERS].append(name)
    return {heading: members for heading, members in groups.items() if members}


def title(settings: type[Settings]) -> str:
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
            kinds = [base for base in type(settings).__mro__ if name in _annotations(base)]
            classes[name] = kinds[-1]
    return classes


def _annotations(kind: type) -> dict:
    return kind.__dict__.get('__annotations__', {})
