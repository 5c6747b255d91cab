"""Settings: frozen dataclasses of plain values, read from JSON and from flags of the same names.

A class of settings is a table: each field gives once the purpose of the value, its type, default
and allowed values, the other settings that it needs, whether a run that is resumed must keep it,
and the draws before training that it enters. `dpfl.cli.flags` makes flags from it, so a flag and an
argument cannot drift apart.
"""

import dataclasses
import functools
import hashlib
import json
import types
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from dpfl import _json, _validate
from dpfl.errors import NOT_SHOWN, ArgumentError

_MOST_INTEGER = 2**63 - 1
_S = TypeVar('_S', bound='Settings')


def setting(
    default: Any,
    help: str,
    *,
    choices: Sequence[str] | Callable[[], Sequence[str]] = (),
    minimum: float | None = None,
    above: float | None = None,
    maximum: float | None = None,
    below: float | None = None,
    needs: str | Mapping[str, Collection[Any]] = {},
    kept: bool = True,
    draws: Collection[str] = (),
) -> Any:
    """A field of `Settings`.

    Args:
      default: value where none is given.
      help: its purpose in a sentence; the help text of its flag.
      choices: the allowed texts, or a function that returns them; any text by default.
      minimum, above, maximum, below: bounds of a number; `above` and `below` are strict.
      needs: settings of which one must be given, for this one to have an effect: a name, or the
        values with which each of them will do (none: any but its default).
      kept: whether a run that is resumed must have the same value.
      draws: names of the draws before training whose result depends on the value.
    """
    bounds = {'minimum': minimum, 'above': above, 'maximum': maximum, 'below': below}
    return dataclasses.field(
        default=default,
        metadata={
            'help': help,
            'choices': choices,
            'bounds': {name: bound for name, bound in bounds.items() if bound is not None},
            'needs': {needs: ()} if isinstance(needs, str) else needs,
            'kept': kept,
            'draws': draws,
        },
    )


def choices_of(field: dataclasses.Field) -> tuple[str, ...]:
    """The allowed texts of a setting; none for any text."""
    choices = field.metadata['choices']
    return tuple(choices() if callable(choices) else choices)


@dataclasses.dataclass(frozen=True)
class Kind:
    """The type of a setting.

    Attributes:
      scalar: bool, int, float or str; of the entries, for a tuple. Another type for a value that
        has `to_dict`, and any structure for `object`.
      is_optional: None is allowed.
      is_tuple: it is a tuple of scalars.
    """

    scalar: Any
    is_optional: bool = False
    is_tuple: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Base class. Fields are made with `setting`, or are settings themselves."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            kind = kind_of(type(self), field.name)
            value = getattr(self, field.name)
            if 'help' in field.metadata:
                object.__setattr__(self, field.name, _checked(field, kind, value))
            elif not isinstance(value, kind.scalar):
                raise ArgumentError(field.name, value, f'must be a {kind.scalar.__name__}')
        table = {field.name: (field, value) for field, _, value in self.table()}
        for name, (field, value) in table.items():
            needs = field.metadata['needs']
            if not needs or value == field.default or needs.keys() - table.keys():
                continue
            if not any(_is_given(*table[other], values) for other, values in needs.items()):
                shown = ','.join(map(str, value)) if isinstance(value, tuple) else value
                wanted = [
                    f'{other}={" or ".join(values)}' if values else other
                    for other, values in needs.items()
                ]
                *others, last = wanted
                needed = f'{", ".join(others)} or {last}' if others else last
                raise ArgumentError(name, shown, f'needs {needed}')
        self.check()

    def check(self) -> None:
        """Raises ArgumentError if values contradict each other; subclasses say how."""

    def to_dict(self) -> dict[str, Any]:
        """Values that JSON has; `from_dict` reads them back."""
        return _json.fields_of(self)

    @classmethod
    def from_dict(cls: type[_S], values: Mapping[str, Any]) -> _S:
        """Settings from the values of `to_dict`; a missing one has its default.

        Raises:
          ArgumentError: if a name is unknown, or a value is not allowed.
        """
        if not isinstance(values, Mapping):
            raise ArgumentError(cls.__name__, values, 'must be an object')
        names = {field.name for field in dataclasses.fields(cls)}
        for name in values:
            if name not in names:
                raise ArgumentError(str(name), NOT_SHOWN, f'is not a setting of {cls.__name__}')
        read = {}
        for name, value in values.items():
            inner = nested(cls, name)
            read[name] = cls.decode(name, value) if inner is None else inner.from_dict(value)
        return cls(**read)

    @classmethod
    def decode(cls, name: str, value: Any) -> Any:
        """The value of a setting from JSON; subclasses with values of other types override it."""
        return _tuples(value)

    def flat(self) -> dict[str, Any]:
        """All values by name, those of nested settings included; no two have one name."""
        return {field.name: value for field, _, value in self.table()}

    def changed(self) -> dict[str, Any]:
        """The values that are not the defaults, by name, those of nested settings included."""
        defaults = type(self)().flat()
        return {name: value for name, value in self.flat().items() if value != defaults[name]}

    def table(self) -> Iterator[tuple[dataclasses.Field, 'Kind', Any]]:
        """Field, type and value of every setting, those of nested settings included."""
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Settings):
                yield from value.table()
            else:
                yield field, kind_of(type(self), field.name), value

    def with_values(self: _S, values: Mapping[str, Any]) -> _S:
        """The settings with other values for some names, which may be of nested settings.

        Raises:
          ArgumentError: if a name is unknown, or a value is not allowed.
        """
        unknown = sorted(set(values) - set(self.flat()))
        if unknown:
            raise ArgumentError(unknown[0], NOT_SHOWN, f'is not a setting of {type(self).__name__}')
        changed: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Settings):
                own = {name: values[name] for name in value.flat() if name in values}
                changed |= {field.name: value.with_values(own)} if own else {}
            elif field.name in values:
                changed[field.name] = values[field.name]
        return dataclasses.replace(self, **changed)

    def digest(self) -> str:
        """SHA-256 of all values."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()


# Types of the fields of a class. To evaluate them takes most of the time of making settings.
_hints = functools.cache(typing.get_type_hints)


def kind_of(cls: type[Settings], name: str) -> Kind:
    """The type of a field, from its annotation."""
    hint = _hints(typing.cast(Any, cls))[name]  # For mypy, a class is not hashable.
    is_optional = False
    if isinstance(hint, types.UnionType):
        options = [option for option in hint.__args__ if option is not type(None)]
        is_optional = len(options) < len(hint.__args__)
        hint = options[0] if len(options) == 1 else object
    if typing.get_origin(hint) is tuple:
        scalar = typing.get_args(hint)[0]
        return Kind(scalar if isinstance(scalar, type) else object, is_optional, is_tuple=True)
    return Kind(hint, is_optional)


def nested(cls: type[Settings], name: str) -> type[Settings] | None:
    """The class of a field that is settings itself; None for a value."""
    scalar = kind_of(cls, name).scalar
    return scalar if isinstance(scalar, type) and issubclass(scalar, Settings) else None


def _checked(field: dataclasses.Field, kind: Kind, value: Any) -> Any:
    """The value of a field, as its type; raises ArgumentError if it is not allowed."""
    if value is None and kind.is_optional:
        return None
    if not kind.is_tuple:
        return _scalar(field, kind.scalar, value)
    if not isinstance(value, list | tuple):
        raise ArgumentError(field.name, value, 'must be a list')
    return tuple(_scalar(field, kind.scalar, entry) for entry in value)


def _scalar(field: dataclasses.Field, scalar: type, value: Any) -> Any:
    name, bounds, choices = field.name, field.metadata['bounds'], choices_of(field)
    if scalar is bool:
        return _validate.truth(name, value)
    if scalar is int:
        least, most = bounds.get('minimum', -_MOST_INTEGER), bounds.get('maximum')
        number = _validate.integer(name, value, minimum=least, maximum=most)
        if number > _MOST_INTEGER:
            raise ArgumentError(name, value, f'must be an integer <= {_MOST_INTEGER}')
        return number
    if scalar is float:
        return _validate.number(name, value, **bounds)
    if scalar is str:
        if choices:
            return _validate.choice(name, value, choices)
        if not isinstance(value, str):
            raise ArgumentError(name, value, 'must be a text')
    return value


def _is_given(field: dataclasses.Field, value: Any, values: Collection[Any]) -> bool:
    return value in values if values else value != field.default


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
