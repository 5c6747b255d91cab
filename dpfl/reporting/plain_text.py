"""Tables in plain text, as commands print them."""

import math
from typing import Any

# Guarantees: they are rounded up, to the digits that the privacy report has.
_GUARANTEES = ('rho', 'mu', 'epsilon')
_NO_GUARANTEE = 'none: there is no guarantee'
# With amplification by sampling, for example.
_ONLY_EPSILON = 'none: the guarantee is known as epsilon only'


def table(values: dict) -> str:
    """A table with a name and its value in each line; guarantees are rounded up."""
    width = max(map(len, values))
    epsilon = values.get('epsilon')
    has_epsilon = isinstance(epsilon, float | int) and math.isfinite(epsilon)
    return '\n'.join(
        f'{name:<{width}}  {_in_table(name, value, has_epsilon)}' for name, value in values.items()
    )


def columns(rows: list[dict]) -> str:
    """A table of rows that have the same names; numbers have four digits."""
    names = list(rows[0])
    cells = [names] + [[_number(row[name]) for name in names] for row in rows]
    widths = [max(len(line[i]) for line in cells) for i in range(len(names))]
    return '\n'.join(
        '  '.join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in cells
    )


def _in_table(name: str, value: Any, has_epsilon: bool) -> str:
    if name not in _GUARANTEES or isinstance(value, str):
        return _number(value)
    if value is None or math.isinf(value):
        return _ONLY_EPSILON if has_epsilon else _NO_GUARANTEE
    from dpfl.mechanisms.rounding import round_up

    return round_up(value)


def _number(value: Any) -> str:
    if value is None:
        return 'none'
    if isinstance(value, float):
        return 'infinite' if value == math.inf else f'{value:.4g}'
    return str(value)
