"""Reads JSON that somebody else may have written: strictly, and with one kind of error.

Python's reader accepts more than JSON (NaN, a key that occurs twice). Some of what it accepts fails
later, far from the file: integers of a thousand digits where a float is expected, lists so deep
that they cannot be compared or copied, half a surrogate pair that cannot be printed.

`JsonFields` gives dataclasses of plain values a JSON form.
"""

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any, ClassVar, TypeAlias, TypeVar

import numpy as np

from dpfl import _validate, errors

# Deeper than any file of dpfl, and far below Python's limit.
_MOST_DEPTH = 64
# No value is longer. An integer of 310 digits or more does not even fit into a float.
_MOST_DIGITS = 40

_Part = TypeVar('_Part', bound='JsonFields')
# Of attributes by the keys of a JSON object; see `by_paths`.
Paths: TypeAlias = 'Mapping[str, str | tuple[str, Paths]]'


class JsonFields:
    """Base class of dataclasses whose fields are all JSON values, to store them in files.

    Fields are checked by their types (`_validate.Limits`). Subclasses with further checks have them
    in `__post_init__`.
    """

    def __post_init__(self) -> None:
        for field in _fields(type(self)):
            assert not isinstance(field.type, str)  # It would have no limits to check.
            _validate.by_type(field.name, getattr(self, field.name), field.type)

    def to_dict(self) -> dict[str, Any]:
        """All fields by name."""
        return fields_of(self)

    @classmethod
    def from_dict(cls: type[_Part], values: Any) -> _Part:
        """The object that `to_dict` wrote as `values`; fields with a default may be missing.

        Raises:
          ArgumentError: if `values` is no dictionary, a key is unknown, a field is missing, or a
            value is not allowed.
        """
        values = checked_object(cls.__name__, values)
        refuse_unknown(values, [field.name for field in _fields(cls)], cls.__name__)
        for field in _fields(cls):
            if field.default is dataclasses.MISSING and field.name not in values:
                raise errors.ArgumentError(
                    field.name, errors.NOT_SHOWN, f'must be given for {cls.__name__}'
                )
        return cls(**values)


class JsonPaths:
    """Base class of objects whose JSON form has attributes by their paths; see `by_paths`."""

    json_paths: ClassVar[Paths]

    def to_dict(self) -> dict[str, Any]:
        """JSON values by the keys of `json_paths`."""
        return by_paths(self, self.json_paths)


def _fields(kind: Any) -> tuple[dataclasses.Field, ...]:
    return dataclasses.fields(kind)


def fields_of(value: Any) -> dict[str, Any]:
    """The fields of a dataclass by name, as JSON values."""
    return {field.name: plain(getattr(value, field.name)) for field in _fields(type(value))}


def by_paths(value: Any, paths: Paths) -> dict[str, Any]:
    """JSON values from the attributes of an object.

    Args:
      value: the object.
      paths: by key, the path of the attribute that it holds, such as 'plan.clip_norm'. A key that
        ends with a question mark is left out if its value says nothing, see `given`. In place of a
        path, a pair has that of an attribute without which the value is null, and the paths of the
        keys of an object.
    """
    values = {}
    for key, path in paths.items():
        if isinstance(path, str):
            entry = plain(_at(value, path))
        else:
            entry = None if _at(value, path[0]) is None else by_paths(value, path[1])
        if not key.endswith('?') or given({key: entry}):
            values[key.removesuffix('?')] = entry
    return values


def _at(value: Any, path: str) -> Any:
    for name in path.split('.'):
        value = None if value is None else getattr(value, name)
    return value


def plain(value: Any) -> Any:
    """A value as JSON has it: dataclasses are objects, arrays lists, and infinite numbers null."""
    if value is None or isinstance(value, (str, int, float)):
        return finite(value)
    if hasattr(value, 'to_dict'):
        return value.to_dict()
    if dataclasses.is_dataclass(value):
        return fields_of(value)
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    if isinstance(value, Mapping):
        return {key: plain(entry) for key, entry in value.items()}
    return value.tolist() if isinstance(value, np.ndarray) else value


def finite(value: Any) -> Any:
    """A value for JSON, which has no infinity and no NaN: None in place of these."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def checked_object(name: str, values: Any) -> dict[str, Any]:
    """Returns `values`; raises ArgumentError unless it is a JSON object."""
    if not isinstance(values, dict):
        raise errors.ArgumentError(name, values, 'must be an object')
    return values


def given(values: dict[str, Any]) -> dict[str, Any]:
    """The values without those that a file leaves out: None, False and empty lists."""
    return {
        name: value
        for name, value in values.items()
        if value is not None and value is not False and value != []
    }


def pairs(name: str, values: Any) -> tuple[tuple[Any, Any], ...]:
    """A list of pairs as a tuple of tuples; refuses anything else under `name`."""
    if not isinstance(values, list) or not all(
        isinstance(pair, list) and len(pair) == 2 for pair in values
    ):
        raise errors.ArgumentError(name, values, 'must be a list of pairs')
    return tuple((first, second) for first, second in values)


def list_of(name: str, values: Any, what: str) -> list[Any]:
    """Returns `values`; raises ArgumentError unless it is a list, of what `what` says."""
    if not isinstance(values, list):
        raise errors.ArgumentError(name, values, f'must be a list of {what}')
    return values


def refuse_unknown(values: dict[str, Any], known: list[str], what: str) -> None:
    """Raises ArgumentError for the first key of `values` that is not among the `known` ones."""
    for name, value in values.items():
        if name not in known:
            raise errors.ArgumentError(errors.shown(name), value, f'is not a field of {what}')


def loads(text: str | bytes, *, allow_nan: bool = False) -> Any:
    """The value of a JSON document.

    Args:
      text: the document; bytes are UTF-8.
      allow_nan: whether to accept NaN, Infinity and -Infinity, as Python writes them.

    Raises:
      ValueError: if the text is not a JSON document, has a key twice in one object, an integer of
        more than 40 digits, or lists and objects nested more than 64 deep.
    """
    if isinstance(text, bytes):
        text = text.decode()
    try:
        value = json.loads(
            text,
            object_pairs_hook=_object,
            parse_int=_integer,
            parse_constant=float if allow_nan else _refuse_constant,
        )
    except RecursionError:
        raise ValueError(f'is nested more than {_MOST_DEPTH} deep') from None
    _check_depth(value)
    if '\\u' in text:  # An escape may be half of a character.
        json.dumps(value, ensure_ascii=False).encode()
    return value


def _object(pairs: list[tuple]) -> dict:
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise ValueError(f'has the key {twice!r:.80} twice')
    return values


def _integer(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f'has an integer of {len(digits)} digits')
    return int(digits)


def _refuse_constant(name: str) -> None:
    raise ValueError(f'has {name}, which is not a number of JSON')


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(_MOST_DEPTH):
        level = [
            inner
            for outer in level
            if isinstance(outer, (dict, list))
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, (dict, list))
        ]
        if not level:
            return
    raise ValueError(f'is nested more than {_MOST_DEPTH} deep')
