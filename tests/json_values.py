"""JSON values that differ in one place, for tests of what reads them."""

import copy
import functools
from typing import Any


def changed(values: Any, path: str, value: Any) -> Any:
    """A copy with another value at a path such as `observed.0.test`, or without it (`...`)."""
    values = copy.deepcopy(values)
    *places, last = [int(part) if part.isdecimal() else part for part in path.split('.')]
    part = functools.reduce(lambda part, place: part[place], places, values)
    if value is ...:
        del part[last]
    else:
        part[last] = value
    return values
