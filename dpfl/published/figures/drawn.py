"""A figure as data: its panels, and the numbers that are measured on it.

Figures compare designs: mechanisms whose errors and sensitivities are computed once.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from dpfl import Participation, mechanisms
from dpfl.mechanisms import rounding
from dpfl.published.tables import calculations, rows
from dpfl.reporting.charts import Panel

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


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How a figure is made.

    Attributes:
      name: `<document>/<figure>`, such as 002/fig3.
      title: Its title.
      compute: Computes its data.
    """

    name: str
    title: str
    compute: Callable[[], Drawn]


def selected(*beginnings: str) -> list[rows.Row]:
    """The rows whose ids begin with one of these texts, in order."""
    return [row for row in _every() if row.id.startswith(beginnings)]


def measured(printed: Sequence[rows.Row]) -> dict[str, Mapping[str, float]]:
    """The numbers of rows, computed as `dpfl reproduce_tables` does."""
    return {row.id: calculations.compute(row).computed for row in printed}


@functools.cache
def _every() -> tuple[rows.Row, ...]:
    return tuple(rows.load())


class Design:
    """A mechanism over a fixed number of rounds, and its losses for any schema within them.

    Args:
      mechanism: the mechanism.
    """

    def __init__(self, mechanism: mechanisms.Mechanism):
        self.mechanism = mechanism
        self._squared: dict[Participation, float] = {}

    @functools.cached_property
    def squared_error(self) -> np.ndarray:
        """Variances of the prefix sums for unit noise, [rounds]."""
        return self.mechanism.squared_error()

    def squared_sensitivity(self, schema: Participation) -> float:
        """Squared sensitivity for clip norm 1; never below the truth."""
        if schema not in self._squared:
            self._squared[schema] = self.mechanism.sensitivity_bound(schema).squared
        return self._squared[schema]

    def loss(self, schema: Participation, kind: str) -> float:
        """Max loss or RMS loss ([McMahan24], equations 9 and 10).

        The noise of a round does not depend on later rounds, so a schema with fewer rounds than
        the mechanism has the error of the first of them.

        Args:
          schema: the schema that the mechanism is used with.
          kind: 'max' or 'rms'.
        """
        errors = self.squared_error[: schema.rounds]
        error = errors.max() if kind == 'max' else errors.mean()
        return math.sqrt(error) * rounding.root_up(self.squared_sensitivity(schema))


@functools.cache
def banded(rounds: int, bands: int) -> Design:
    """BandMF, optimised for RMS loss with equal column norms."""
    return Design(mechanisms.optimize_banded(Participation(rounds, bands), bands))


@functools.cache
def blt(
    rounds: int, separation: int, participations: int | None, buffers: int, loss: str
) -> Design:
    """A BLT that is optimised for a schema."""
    schema = Participation(rounds, separation, participations)
    return Design(mechanisms.optimize_blt(schema, buffers, loss))


@functools.cache
def full_honaker_tree(rounds: int) -> Design:
    """TreeAgg-Full: all nodes of the forest, decoded by least squares."""
    return Design(mechanisms.FullHonakerTree(rounds))
