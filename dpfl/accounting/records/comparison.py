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


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 3] + '...'
