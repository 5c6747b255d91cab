"""How documents print numbers, and whether a computed number prints as the published one."""

import math
from collections.abc import Callable

# Ways in which a document rounds what it prints.
_WAYS: dict[str, Callable[[float], float]] = {
    'nearest': round,
    'up': lambda units: math.ceil(units - 1e-9),
    'down': lambda units: math.floor(units + 1e-9),
}
# 'at most': the published number is the worse of two optima. 'not compared': it is shown beside the
# number that is compared, or was an input.
CONVENTIONS = (*_WAYS, 'at most', 'not compared')


def printed(value: float, decimals: int, convention: str) -> float:
    """`value` as a document prints it with so many decimals.

    Args:
      value: finite.
      decimals: digits after the point; negative for numbers rounded to tens, hundreds, ..
      convention: 'nearest', 'up' or 'down'.
    """
    return round(_WAYS[convention](value * 10.0**decimals) * 10.0**-decimals, decimals)


def agrees(value: float, published: float, decimals: int, convention: str) -> bool:
    """Whether the computed `value` is what the document has as `published`.

    Args:
      value, decimals: as in `printed`; a value that is not finite agrees with none.
      published: the number as it is printed.
      convention: one of `CONVENTIONS`.
    """
    if convention == 'not compared':
        return True
    if not math.isfinite(value):
        return False
    if convention == 'at most':
        return value <= published
    return math.isclose(printed(value, decimals, convention), published, rel_tol=1e-12)
