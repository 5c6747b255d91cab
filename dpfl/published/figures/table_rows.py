"""Rows of the table of published numbers that belong to a figure."""

import functools
from collections.abc import Mapping, Sequence

from dpfl.published.tables import calculations, rows


def selected(*beginnings: str) -> list[rows.Row]:
    """The rows whose ids begin with one of these texts, in order."""
    return [row for row in _every() if row.id.startswith(beginnings)]


def measured(found: Sequence[rows.Row]) -> dict[str, Mapping[str, float]]:
    """The numbers of rows, computed as `dpfl reproduce_tables` does."""
    return {row.id: calculations.compute(row).computed for row in found}


@functools.cache
def _every() -> tuple[rows.Row, ...]:
    return tuple(rows.load(rows.PUBLISHED))
