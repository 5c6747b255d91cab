"""Compares the numbers of a figure with what its document says."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from dpfl.published.figures.drawn import Drawn
from dpfl.published.figures.statements import Statement
from dpfl.published.tables import calculations, rows


@dataclasses.dataclass(frozen=True)
class Check:
    """Something that a document says, the numbers that were computed, and whether they agree.

    Attributes:
      id: Id of the statement, or of the row of the published tables.
      place: Where the document says so.
      says: What it says.
      published: Name -> number in the document.
      computed: Name -> number, not rounded; may have more names than `published`.
      match: Whether they agree; None if they cannot be compared, for the reason in `note`.
      note: What a reader must know.
    """

    id: str
    place: str
    says: str
    published: Mapping[str, float]
    computed: Mapping[str, float]
    match: bool | None
    note: str


@dataclasses.dataclass(frozen=True)
class Result:
    """A figure, its checks, and where it was written.

    Attributes:
      figure: Its name.
      title: What it shows.
      png, data: Files.
      seconds: Time that it took.
      checks: What the document says about it.
    """

    figure: str
    title: str
    png: str
    data: str
    seconds: float
    checks: list[Check]

    @property
    def match(self) -> bool | None:
        """False if a check differs, None if none can be compared, otherwise True."""
        matches = {check.match for check in self.checks}
        return False if False in matches else True if True in matches else None

    def to_dict(self) -> dict[str, Any]:
        """What `--format=json` prints."""
        return {**dataclasses.asdict(self), 'match': self.match}


def of_figure(
    name: str, drawn: Drawn, statements: Mapping[str, Statement], published: Mapping[str, rows.Row]
) -> list[Check]:
    """The checks of a figure, in the order of its numbers.

    Args:
      name: Name of the figure.
      drawn: Its data.
      statements: What is said of all figures, by id.
      published: Rows of the published tables, by id.

    Raises:
      ValueError: If a statement of the figure has no number, or a number no statement.
    """
    missing = [
        one.id for one in statements.values() if one.figure == name and one.id not in drawn.measured
    ]
    if missing:
        raise ValueError(f'statement {missing[0]}: is not of a figure that is drawn')
    return [
        _of_statement(statements[id], computed)
        if id in statements
        else _of_row(id, computed, published)
        for id, computed in drawn.measured.items()
    ]


def _of_statement(statement: Statement, computed: Mapping[str, float]) -> Check:
    try:
        match = statement.holds(computed)
    except KeyError as error:
        raise ValueError(f'statement {statement.id}: {error.args[0]}: is not measured') from None
    return Check(
        statement.id,
        statement.place,
        statement.says,
        statement.published,
        computed,
        match,
        statement.note,
    )


def _of_row(id: str, computed: Mapping[str, float], published: Mapping[str, rows.Row]) -> Check:
    if id not in published:
        raise ValueError(f'statement {id}: must be given, for the figure that measures it')
    row = published[id]
    assert isinstance(row.published, dict)
    match = None
    if row.reproducible:
        match = calculations.matches(row, dict(computed), row.published)
    return Check(id, row.table, 'printed value', row.published, computed, match, row.note)
