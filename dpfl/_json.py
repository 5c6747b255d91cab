"""Reads JSON that somebody else may have written: strictly, and with one kind of error.

Python's reader takes more than JSON is (NaN, a key that occurs twice), and some of what it takes
fails later, far from the file: integers of a thousand digits where a float is expected, lists so
deep that they cannot be compared or copied, halves of characters that cannot be printed.
"""

import json

# Deeper than any file of dpfl, and far from the limit of Python.
_MOST_DEPTH = 64
# Longer integers are not the value of anything; those of 310 digits and more are no floats either.
_MOST_DIGITS = 40


def loads(text: str | bytes, *, allow_nan: bool = False):
    """The value of a JSON document.

    Args:
      text: the document; bytes are UTF-8.
      allow_nan: whether NaN, Infinity and -Infinity are numbers, as Python writes them.

    Raises:
      ValueError: if it is no JSON document, has a key twice in one object, an integer of more than
        40 digits, or lists and objects nested more than 64 deep.
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
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))
        raise ValueError(f'has the key {twice!r:.80} twice')
    return values


def _integer(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f'has an integer of {len(digits)} digits')
    return int(digits)


def _refuse_constant(name: str):
    raise ValueError(f'has {name}, which is not a number of JSON')


def _check_depth(value) -> None:
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
