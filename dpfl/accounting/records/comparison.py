"""Compares what a file states, as JSON values, with what was computed anew."""

import json
import math
from typing import Any

from dpfl import errors

# Other releases of the numerical libraries may differ in the last digits.
_TOLERANCE = 1e-9
_MOST_CHARACTERS = 60


def differences(stated: Any, computed: Any, where: str = '') -> list[tuple[str, str, str]]:
    """Where two JSON values differ by more than rounding.

    Args:
      stated: the value in the file.
      computed: the value that it should have.
      where: path to both values in their documents.

    Returns:
      A triple (path, stated, computed) of short texts for each difference.
    """
    if isinstance(stated, dict) and isinstance(computed, dict):
        names = [*computed, *(name for name in stated if name not in computed)]
        return [
            difference
            for name in names
            for difference in differences(
                stated.get(name, 'missing'),
                computed.get(name, 'not a key'),
                f'{where}.{name}' if where else name,
            )
        ]
    if (
        isinstance(computed, (list, tuple))
        and isinstance(stated, list)
        and len(stated) == len(computed)
    ):
        return [
            difference
            for i, (was, now) in enumerate(zip(stated, computed, strict=True))
            for difference in differences(was, now, f'{where}[{i}]')
        ]
    if _is_number(stated) and _is_number(computed):
        same = math.isclose(stated, computed, rel_tol=_TOLERANCE)
    else:
        same = type(stated) is type(computed) and stated == computed
    return [] if same else [(errors.shown(where), _short(stated), _short(computed))]


def with_common_keys(one: dict[str, Any], other: dict[str, Any]) -> tuple[dict, dict]:
    """Both dictionaries without the keys, at any depth, that only one of them has."""
    first, second = {}, {}
    for name in one:
        if name not in other:
            continue
        if isinstance(one[name], dict) and isinstance(other[name], dict):
            first[name], second[name] = with_common_keys(one[name], other[name])
        else:
            first[name], second[name] = one[name], other[name]
    return first, second


def without_looser(
    stated: dict[str, Any], computed: dict[str, Any], names: tuple[str, ...]
) -> dict[str, Any]:
    """`stated` with the computed values of keys, at any depth, that promise no more than those.

    Args:
      stated: the values in the file.
      computed: the values that they should have.
      names: of numbers or lists of numbers of which a larger one promises less, and of lists of
        texts that tell where they come from.
    """
    found = dict(stated)
    for name in stated.keys() & computed.keys():
        was, now = stated[name], computed[name]
        if isinstance(was, dict) and isinstance(now, dict):
            found[name] = without_looser(was, now, names)
        elif name in names and _is_looser(was, now):
            found[name] = now
    return found


def _is_looser(was: Any, now: Any) -> bool:
    if isinstance(was, list) and isinstance(now, (list, tuple)):
        return len(was) == len(now) and all(map(_is_looser, was, now))
    if isinstance(was, str) and isinstance(now, str):
        return True
    return _is_number(was) and _is_number(now) and was >= now


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 3] + '...'
