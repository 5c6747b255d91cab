"""A figure as data: its panels, and the numbers that are measured on it."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dpfl.published.tables import calculations, rows
from dpfl.reporting.charts import Line, Panel

# Numbers by the id of the statement about them, and by name.
Measured = Mapping[str, Mapping[str, float]]


@dataclasses.dataclass(frozen=True)
class Drawn:
    """The data of a figure.

    Attributes:
      panels: its panels.
      columns: number of panels in a row.
      measured: numbers that are compared with statements of the document: id of the statement
        (`checks.Statement`) or of the row (`dpfl.published.tables.rows.Row`) -> name -> number.
    """

    panels: Sequence[Panel]
    columns: int
    measured: Measured

    def to_dict(self) -> dict[str, Any]:
        """The data as plain values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> 'Drawn':
        """The data that `to_dict` gave.

        Raises:
          TypeError, KeyError: If the values have another form.
        """
        panels = [
            Panel(**{**panel, 'lines': [Line(**line) for line in panel['lines']]})
            for panel in values['panels']
        ]
        return cls(panels, values['columns'], values['measured'])


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How a figure is made.

    Attributes:
      name: `<document>/<figure>`, such as 002/fig3.
      title: Its title.
      compute: Computes its data.
      is_kept: Whether the data of an earlier call may be used; not if they are times.
    """

    name: str
    title: str
    compute: Callable[[], Drawn]
    is_kept: bool = True


def selected(*beginnings: str) -> list[rows.Row]:
    """The rows whose ids begin with one of these texts, in order."""
    return [row for row in _every() if row.id.startswith(beginnings)]


def measured(printed: Sequence[rows.Row]) -> dict[str, Mapping[str, float]]:
    """The numbers of rows, computed as `dpfl reproduce_tables` does."""
    return {row.id: calculations.compute(row).computed for row in printed}


@functools.cache
def _every() -> tuple[rows.Row, ...]:
    return tuple(rows.load(rows.PUBLISHED))
