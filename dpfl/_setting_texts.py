"""Settings from text, as in flag files and studies. No TensorFlow."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from dpfl import _settings
from dpfl._settings import Settings
from dpfl.errors import NOT_SHOWN, ArgumentError

_S = TypeVar('_S', bound=Settings)
_TRUTHS = {'true': True, 't': True, '1': True, 'false': False, 'f': False, '0': False}


def with_texts(settings: _S, texts: Mapping[str, str]) -> _S:
    """Settings in which some values are replaced by the text of flags.

    Raises:
      ArgumentError: If a name is unknown, or a value is not allowed.
    """
    kinds = {field.name: kind for field, kind, _ in settings.table()}
    values = {}
    for name, text in texts.items():
        if name not in kinds:
            raise ArgumentError(name, NOT_SHOWN, f'is not a setting of {type(settings).__name__}')
        values[name] = value_of(name, kinds[name], text)
    return settings.with_values(values)


def text(value: Any) -> str:
    """A value as the text of its flag, such as `true`, `0.5,2` or `100:0.5,200:0.25`."""
    if isinstance(value, bool):
        return 'true' if value else 'false'
    if isinstance(value, list | tuple):
        return ','.join(
            ':'.join(map(text, entry)) if isinstance(entry, list | tuple) else text(entry)
            for entry in value
        )
    return repr(value) if isinstance(value, float) else str(value)


def flags(values: Mapping[str, Any]) -> list[str]:
    """The flags that give settings these values, not quoted for a shell; None is left out.

    All command lines and flag files that one command makes for another consist of them.
    """
    return [f'--{name}={text(value)}' for name, value in values.items() if value is not None]


def value_of(name: str, kind: _settings.Kind, text: str) -> Any:
    """The value of a setting whose text is that of its flag.

    Raises:
      ArgumentError: If the text is none of this type.
    """
    if kind.is_tuple:
        texts = text.split(',') if text else []
        return entries(name, kind.scalar, texts)
    try:
        if kind.scalar is bool:
            return _TRUTHS[text.lower()]
        return kind.scalar(text) if kind.scalar in (int, float) else text
    except (ValueError, KeyError):
        raise ArgumentError(name, text, f'must be a value of type {kind.scalar.__name__}') from None


def entries(name: str, scalar: type, texts: Sequence[str]) -> tuple:
    """The entries of a list: texts, numbers, or pairs of a round and a norm such as `100:0.5`."""
    if scalar is str:
        return tuple(texts)
    try:
        if scalar in (int, float):
            return tuple(map(scalar, texts))
        pairs = [text.split(':') for text in texts]
        return tuple((int(first), float(norm)) for first, norm in pairs)
    except ValueError:
        allowed = {int: 'integers', float: 'numbers'}.get(scalar, 'round:norm')
        raise ArgumentError(name, ','.join(texts), f'must be comma-separated {allowed}') from None
