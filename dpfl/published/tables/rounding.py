"""How documents round the numbers they print, and whether a computed number agrees."""

import math
from collections.abc import Callable

# Ways to round to an integer.
_WAYS: dict[str, Callable[[float], float]] = {
    'nearest': round,
    'up': lambda units: math.ceil(units - 1e-9),
    'down': lambda units: math.floor(units + 1e-9),
}
# 'at most': the computed number may be smaller, since the published one is the worse of two optima.
# 'not compared': the number is shown beside the one that is compared, or was an input.
CONVENTIONS = (*_WAYS, 'at most', 'not compared')


def printed(value: float, decimals: int, convention: str) -> float:
    """Rounds `value` as a document prints it.

    Args:
      value: A finite number.
      decimals: Digits after the point; negative for numbers rounded to tens, hundreds, ..
      convention: 'nearest', 'up' or 'down'.
    """
    return round(_WAYS[convention](value * 10.0**decimals) * 10.0**-decimals, decimals)


def agrees(value: float, published: float, decimals: int, convention: str) -> bool:
    """Whether the computed `value` prints as the published number.

    Args:
      value: The computed number. A value that is not finite never agrees.
      published: The number as it is printed.
      decimals: Digits after the point, as in `printed`.
      convention: One of `CONVENTIONS`.
    """
    if convention == 'not compared':
        return True
    if not math.isfinite(value):
        return False
    if convention == 'at most':
        return value <= published
    return math.isclose(printed(value, decimals, convention), published, rel_tol=1e-12)
