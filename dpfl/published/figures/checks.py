"""All figures by name, and their numbers beside the statements of their documents."""

import dataclasses
import json
import math
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dpfl.published.figures import production, sampled_training, separations
from dpfl.published.figures.drawn import Drawn, Recipe
from dpfl.published.tables import calculations, rows
from dpfl.reporting import plain_text

# Relative difference up to which numbers are about the same; the documents only say so in words.
_ABOUT = 0.02
# How a computed number has to compare with the one in the document.
COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    'above': lambda computed, published: computed > published,
    'below': lambda computed, published: computed < published,
    'at least': lambda computed, published: computed >= published,
    'at most': lambda computed, published: computed <= published,
    'about': lambda computed, published: math.isclose(computed, published, rel_tol=_ABOUT),
    'equal': lambda computed, published: math.isclose(computed, published, rel_tol=1e-12),
}
# The data file of the statements.
PUBLISHED = pathlib.Path(__file__).with_name('statements.json')


@dataclasses.dataclass(frozen=True)
class Statement:
    """A statement of a document about a figure, in numbers.

    Attributes:
      id: Unique name: the figure, a slash, and a word.
      place: Where the document says so.
      says: The statement in other words.
      published: Name -> number of the document. For words such as `better` it is a ratio of 1.
      comparison: Name -> one of `COMPARISONS`: how a number computed for the name must compare.
      reproducible: Whether it can be compared: whether the document has the inputs of the numbers.
      note: A remark for readers. If the statement is not reproducible, the reason.
    """

    id: str
    place: str
    says: str
    published: dict[str, float]
    comparison: dict[str, str]
    reproducible: bool
    note: str

    @property
    def figure(self) -> str:
        """Name of the figure."""
        return self.id.rpartition('/')[0]

    def holds(self, computed: Mapping[str, float]) -> bool | None:
        """Whether all computed numbers compare as stated; None if it cannot be compared."""
        agree = [
            math.isfinite(computed[name]) and COMPARISONS[self.comparison[name]](computed[name], x)
            for name, x in self.published.items()
        ]
        return all(agree) if self.reproducible else None


def load() -> dict[str, Statement]:
    """The statements of all documents, by id."""
    entries = json.loads(PUBLISHED.read_text(encoding='utf-8'))
    return {entry['id']: Statement(**entry) for entry in entries}


@dataclasses.dataclass(frozen=True)
class Check:
    """Something that a document says, the numbers that were computed, and whether they agree.

    Attributes:
      id: Id of the statement, or of the row of the published tables.
      place: Where the document says so.
      says: The statement.
      published: Name -> number in the document.
      computed: Name -> number, not rounded; may have more names than `published`.
      match: Whether they agree; None if they cannot be compared, for the reason in `note`.
      note: A remark for readers.
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
      title: Its title.
      png, data: Files.
      seconds: Time that it took.
      checks: Its numbers against those of the document.
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
        """The JSON values that `--format=json` prints."""
        return {**dataclasses.asdict(self), 'match': self.match}


def of_figure(
    name: str, drawn: Drawn, statements: Mapping[str, Statement], published: Mapping[str, rows.Row]
) -> list[Check]:
    """The checks of a figure, in the order of its numbers.

    Args:
      name: Name of the figure.
      drawn: Its data.
      statements: The statements on all figures, by id.
      published: Rows of the published tables, by id.

    Raises:
      ValueError: If a statement of the figure has no number.
    """
    missing = [
        statement.id
        for statement in statements.values()
        if statement.figure == name and statement.id not in drawn.measured
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
    return Check(
        statement.id,
        statement.place,
        statement.says,
        statement.published,
        computed,
        statement.holds(computed),
        statement.note,
    )


def _of_row(id: str, computed: Mapping[str, float], published: Mapping[str, rows.Row]) -> Check:
    row = published[id]
    assert isinstance(row.published, dict)
    match = None
    if row.reproducible:
        match = calculations.matches(row, dict(computed), row.published)
    return Check(id, row.table, 'printed value', row.published, computed, match, row.note)


_MATCH = {True: 'yes', False: 'NO', None: 'cannot'}


def text(results: Sequence[Result]) -> str:
    """A table of checks for each figure, notes of those that do not match, and a summary."""
    lines = []
    for result in results:
        lines += [f'{result.figure}: {result.title} ({result.png}, {result.data})']
        lines += [plain_text.columns([_cells(check) for check in result.checks])]
        lines += [
            f'{check.id}: {check.says} {check.note}'
            for check in result.checks
            if check.match is not True
        ]
        lines += ['']
    return '\n'.join([*lines, summary(results)])


def summary(results: Sequence[Result]) -> str:
    """How many checks match, in one line."""
    matches = [check.match for result in results for check in result.checks]
    return (
        f'{len(results)} figures, {len(matches)} checks: {matches.count(True)} match, '
        f'{matches.count(False)} differ, {matches.count(None)} cannot be compared for the reason '
        'in their note.'
    )


def _cells(check: Check) -> dict[str, str]:
    return {
        'id': check.id,
        'published': _numbers(check.published),
        'computed': _numbers(check.computed),
        'match': _MATCH[check.match],
    }


def _numbers(values) -> str:
    return ', '.join(f'{name} {value:.6g}' for name, value in values.items())


RECIPES = (
    Recipe(
        '000/fig4',
        'rho of tree aggregation against report goal and separation',
        production.tree_figure4,
    ),
    Recipe('001/table1', 'epsilon against rounds', sampled_training.table1),
    Recipe('001/table2', 'epsilon against rounds at delta 1e-9', sampled_training.table2),
    Recipe('002/fig1', 'time to optimise BandMF and BLT', separations.figure1),
    Recipe('002/fig2', 'RMS loss against separation, 2 and 5 participations', separations.figure2),
    Recipe('002/fig3', 'RMS loss against separation, 3 participations', separations.figure3),
    Recipe('002/fig4', 'RMS loss against separation, n / b participations', separations.figure4),
    Recipe('002/fig5', 'RMS loss against rounds executed', separations.figure5),
    Recipe('002/fig6', 'RMS loss of BLT, BandToep, BandFHU', separations.figure6),
    Recipe('002/fig8', 'rho against report goal and separation', production.figure8),
    Recipe('002/fig9', 'rho against rounds', production.figure9),
    Recipe('002/fig10', 'coefficients of the production BLTs', production.figure10),
    Recipe('002/fig12', 'max loss against separation', separations.figure12),
    Recipe('004/table3', 'epsilon against the size of a subpopulation', sampled_training.table3),
    Recipe('004/table5', 'epsilon of the language models against rounds', sampled_training.table5),
    Recipe('004/table13', 'epsilon, selection by example', sampled_training.table13),
)
