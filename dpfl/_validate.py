"""Checks of arguments whose messages name the argument, its value and the bound, in one line.

Every comparison is written so that NaN fails it.
"""

import math
import numbers

import numpy as np


def integer(name: str, value, *, minimum: int, maximum: int | None = None) -> int:
    """Returns `value` as an int; raises ValueError unless it is an integer within the bounds."""
    allowed = f'an integer >= {minimum}' + ('' if maximum is None else f' and <= {maximum}')
    is_integer = isinstance(value, numbers.Integral) and not isinstance(value, (bool, np.bool_))
    if not is_integer or value < minimum or (maximum is not None and value > maximum):
        raise ValueError(f'{name}={value}: must be {allowed}')
    return int(value)


def number(
    name: str,
    value,
    *,
    above: float | None = None,
    minimum: float | None = None,
    below: float | None = None,
    maximum: float | None = None,
) -> float:
    """Returns `value` as a finite float; `above` and `below` are strict bounds, the others not."""
    bounds = ((above, '>'), (minimum, '>='), (below, '<'), (maximum, '<='))
    allowed = ' and '.join(f'{sign} {bound:g}' for bound, sign in bounds if bound is not None)
    allowed = f'a finite number {allowed}'.rstrip()
    is_number = isinstance(value, numbers.Real) and not isinstance(value, (bool, np.bool_))
    holds = is_number and (
        math.isfinite(value)
        and (above is None or value > above)
        and (minimum is None or value >= minimum)
        and (below is None or value < below)
        and (maximum is None or value <= maximum)
    )
    if not holds:
        raise ValueError(f'{name}={value}: must be {allowed}')
    return float(value)


def vector(name: str, value) -> np.ndarray:
    """Returns `value` as a read-only float64 vector; raises ValueError unless it is finite."""
    try:
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f'{name}={value}: must be a list of numbers') from None
    if array.ndim != 1 or not np.isfinite(array).all():
        raise ValueError(f'{name}={value}: must be a list of finite numbers')
    array.setflags(write=False)
    return array


def choice(name: str, value, allowed) -> str:
    """Returns `value`; raises ValueError unless it is one of `allowed`."""
    if value not in allowed:
        raise ValueError(f'{name}={value}: must be one of {", ".join(allowed)}')
    return value
