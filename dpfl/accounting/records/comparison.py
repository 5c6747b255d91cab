"""Compares what a file states, as JSON values or as text, with what was computed anew.

Numbers may differ by a relative 1e-9, because other releases of the numerical libraries differ in
the last digits. In figures coordinates may differ by an invisible fraction of a point.
"""

import json
import math
import os
import re
from typing import Any

from dpfl import errors

# In place of a value that one of two objects does not have.
MISSING, NOT_A_KEY = 'missing', 'not a key'
_TOLERANCE = 1e-9
_MOST_CHARACTERS = 60
# Characters that two texts have in common and that are shown.
_BEFORE = 20
# A number with a fraction or an exponent, not a part of a word such as a digest. Other numbers are
# counts, which are exact.
_NUMBER = re.compile(r'(?<![\w.])(-?\d+(?:\.\d+(?:e[+-]?\d+)?|e[+-]?\d+))(?![\w])')
# Points. Matplotlib writes six digits, the last of which may be rounded in another way.
_SVG_TOLERANCE = 1e-5
_SVG = re.compile(r'(<svg\b.*?</svg>)', re.DOTALL)
# Invisible shapes that show a value under the pointer, placed to a tenth of a point.
_MARK = re.compile(
    r'<(circle|rect)(?: (?:cx|cy|r|x|y|width|height)="[\d.-]+")+><title>(.*?)</title></\1>'
)
# Another version of Matplotlib draws other letters and places marks on axes elsewhere.
_DRAWN_BY = re.compile(r'<dc:title>Matplotlib v([\w.]+),')
# Matplotlib names parts of a figure by digests of their numbers, whose last digits may differ.
_NAME = re.compile(r'(?<=id=")[^"]+(?=")|(?<=href="#)[^"]+(?=")|(?<=url\(#)[\w.-]+(?=\))')
# Elements that draw lines and areas within a figure, and do nothing else: no texts, no scripts, no
# links to elsewhere.
_DRAWN = re.compile(
    r'<!--[^<>]*-->|</?defs>|</(?:g|clipPath)>|'
    r'<(?:g|path|use|clipPath|rect|circle)(?:\s+(?:(?:clip-path|d|id|style|transform)="[^"<>]*"'
    r'|(?:x|y|cx|cy|r|width|height)="[\d.e-]+"|xlink:href="#[^"<>]*"))*\s*/?>'
)


def differences(stated: Any, computed: Any, where: str = '') -> list[tuple[str, Any, Any]]:
    """Where two JSON values differ by more than rounding.

    Args:
      stated: the value in the file.
      computed: the value that it should have.
      where: path to both values in their documents.

    Returns:
      A triple (path, stated, computed) for each difference.
    """
    if isinstance(stated, dict) and isinstance(computed, dict):
        triples = []
        for name in [*computed, *(name for name in stated if name not in computed)]:
            path = f'{where}.{name}' if where else name
            if name in stated and name in computed:
                triples += differences(stated[name], computed[name], path)
            else:  # Whatever the value of an unknown key is.
                values = stated.get(name, MISSING), computed.get(name, NOT_A_KEY)
                triples.append((errors.shown(path), *values))
        return triples
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
    return [] if _is_same(stated, computed) else [(errors.shown(where), stated, computed)]


def page_difference(stated: str, computed: str) -> str | None:
    """The first difference of two pages, in words; None if both say the same.

    Args:
      stated: the page in the file, Markdown or HTML.
      computed: the page that it should be.
    """
    was, now = _SVG.split(stated), _SVG.split(computed)
    if len(was) != len(now):
        return 'has another number of figures'
    for i, (one, other) in enumerate(zip(was, now, strict=True)):
        if i % 2 and not is_same_figure(one, other):
            return f'its figure {i // 2 + 1} is another one'
        if not i % 2 and not is_same_text(one, other):
            return _first_line(one, other)
    return None


def is_same_text(stated: str, computed: str, tolerance: float = 0.0) -> bool:
    """Whether two texts are equal but for the last digits of numbers that are not integers.

    Args:
      stated: the text in the file.
      computed: the text that it should be.
      tolerance: absolute difference of two numbers that is also accepted.
    """
    if stated == computed:
        return True
    was, now = _NUMBER.split(stated), _NUMBER.split(computed)
    return len(was) == len(now) and all(
        math.isclose(float(one), float(other), rel_tol=_TOLERANCE, abs_tol=tolerance)
        if i % 2
        else one == other
        for i, (one, other) in enumerate(zip(was, now, strict=True))
    )


def is_same_figure(stated: str, computed: str) -> bool:
    """Whether two SVG elements draw the same, and show the same values under the pointer.

    Drawings of two versions of Matplotlib cannot be compared. Then the values are, and that there
    is nothing but lines and areas besides.
    """
    (was, shown), (now, other) = (
        (_renamed(_MARK.sub('', figure)), '\n'.join(text for _, text in _MARK.findall(figure)))
        for figure in (stated, computed)
    )
    if drawn_by(stated) != drawn_by(computed):
        was, now = _besides_drawing(was), _besides_drawing(now)
    return is_same_text(shown, other) and is_same_text(was, now, _SVG_TOLERANCE)


def _besides_drawing(figure: str) -> str:
    """What a figure has besides its lines and areas, and besides the version that drew it."""
    return ' '.join(_DRAWN_BY.sub('', _DRAWN.sub('', figure)).split())


def drawn_by(page: str) -> set[str]:
    """Versions of Matplotlib that drew the figures of a page, as they say."""
    return set(_DRAWN_BY.findall(page))


def short(value: Any) -> str:
    """A JSON value as a short text."""
    text = json.dumps(value)
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 3] + '...'


def short_pair(stated: Any, computed: Any) -> tuple[str, str]:
    """Two JSON values as short texts; of long texts, from a little before they differ."""
    if isinstance(stated, str) and isinstance(computed, str):
        start = len(os.path.commonprefix([stated, computed])) - _BEFORE
        if start > 0:
            stated, computed = f'...{stated[start:]}', f'...{computed[start:]}'
    return short(stated), short(computed)


def is_number(value: Any) -> bool:
    """Whether a JSON value is a number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_close(stated: float, computed: float) -> bool:
    """Whether two numbers are the same but for rounding."""
    return math.isclose(stated, computed, rel_tol=_TOLERANCE)


def _is_same(stated: Any, computed: Any) -> bool:
    if is_number(stated) and is_number(computed):
        return is_close(stated, computed)
    if isinstance(stated, str) and isinstance(computed, str):
        return is_same_text(stated, computed)
    return type(stated) is type(computed) and stated == computed


def _renamed(figure: str) -> str:
    """A figure whose parts are numbered in the order in which they are named."""
    names: dict[str, str] = {}
    return _NAME.sub(lambda match: names.setdefault(match[0], f'part{len(names)}'), figure)


def _first_line(stated: str, computed: str) -> str:
    was, now = stated.splitlines(), computed.splitlines()
    for i, line in enumerate(was):
        if i == len(now):
            break
        if not is_same_text(line, now[i]):
            says, would_say = short_pair(line, now[i])
            return f'says {says}, computed {would_say}'
    return 'ends with other lines'
