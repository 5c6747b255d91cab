"""Tables in plain text, as commands print them. Numbers have four digits.

Guarantees, whose names begin with sensitivity, rho, mu or epsilon, are rounded up as in the privacy
report, and lower bounds on them (`mu_lower`) are rounded down.
"""

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

_GUARANTEES = ('rho', 'mu', 'epsilon')
_ROUNDED_UP = (*_GUARANTEES, 'sensitivity')
_NO_GUARANTEE = 'none: there is no guarantee'
# With amplification by sampling, for example.
_ONLY_EPSILON = 'none: the guarantee is known as epsilon only'


def table(values: dict) -> str:
    """A table with a name and its value in each line."""
    width = max(map(len, values))
    epsilon = values.get('epsilon')
    has_epsilon = isinstance(epsilon, float | int) and math.isfinite(epsilon)
    return '\n'.join(
        f'{name:<{width}}  {_in_table(name, value, has_epsilon)}' for name, value in values.items()
    )


def columns(rows: list[dict]) -> str:
    """A table of rows that have the same names."""
    names = list(rows[0])
    cells = [names] + [[_cell(name, row[name]) for name in names] for row in rows]
    widths = [max(len(line[i]) for line in cells) for i in range(len(names))]
    return '\n'.join(
        '  '.join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in cells
    )


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ['---'] * len(head), *rows]
    return '\n'.join(f'| {" | ".join(line)} |' for line in lines)


def _in_table(name: str, value: Any, has_epsilon: bool) -> str:
    if name in _GUARANTEES and (value is None or value == math.inf):
        return _ONLY_EPSILON if has_epsilon else _NO_GUARANTEE
    if name == 'delta' and isinstance(value, float):
        from dpfl.mechanisms import rounding

        return rounding.shown_delta(value)
    return _cell(name, value)


def _cell(name: str, value: Any) -> str:
    if value is None:
        return 'none'
    if not isinstance(value, float):
        return str(value)
    if value == math.inf:
        return 'infinite'
    if re.split('[^a-z]', name)[0] not in _ROUNDED_UP or math.isnan(value):
        return f'{value:.4g}'
    from dpfl.mechanisms import rounding

    return rounding.round_down(value) if '_lower' in name else rounding.round_up(value)
