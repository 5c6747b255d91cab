"""All figures by name, and their numbers beside the statements of their documents."""

import dataclasses
import functools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from dpfl.published.figures import production, sampled_training, separations
from dpfl.published.figures.drawn import Drawn, Recipe
from dpfl.published.tables import rows
from dpfl.reporting import plain_text

# The data file of the statements.
PUBLISHED = pathlib.Path(__file__).with_name('statements.json')


def load() -> dict[str, rows.Row]:
    """The statements of all documents about figures, by id."""
    return {row.id: row for row in rows.load(PUBLISHED)}


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
    checks: list[rows.Result]

    @property
    def match(self) -> bool | None:
        """False if a check differs, None if none can be compared, otherwise True."""
        matches = {check.match for check in self.checks}
        return False if False in matches else True if True in matches else None

    def to_dict(self) -> dict[str, Any]:
        """The JSON values that `--format=json` prints."""
        checks = [
            {
                'id': check.row.id,
                'place': check.row.place,
                'says': check.row.says,
                'published': check.published,
                'computed': check.computed,
                'match': check.match,
                'note': check.row.note,
            }
            for check in self.checks
        ]
        return {**vars(self), 'checks': checks, 'match': self.match}


def of_figure(
    name: str, drawn: Drawn, statements: Mapping[str, rows.Row], published: Mapping[str, rows.Row]
) -> list[rows.Result]:
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
    known, results = {**published, **statements}, []
    for id, computed in drawn.measured.items():
        row = known[id]
        assert isinstance(row.published, dict)  # No figure is of parameters.
        results.append(rows.Result(row, row.published, dict(computed), row.holds(computed)))
    return results


def text(results: Sequence[Result]) -> str:
    """A table of checks for each figure, notes of those that do not match, and a summary."""
    lines = []
    for result in results:
        lines += [f'{result.figure}: {result.title} ({result.png}, {result.data})']
        lines += [plain_text.columns([_cells(check) for check in result.checks])]
        lines += [
            f'{check.row.id}: {check.row.says} {check.row.note}'
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


def _cells(check: rows.Result) -> dict[str, str]:
    return {
        'id': check.row.id,
        'published': _numbers(check.published),
        'computed': _numbers(check.computed),
        'match': rows.MATCH[check.match],
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
    Recipe(
        '004/table3',
        'epsilon against the size of a subpopulation',
        functools.partial(sampled_training.by_population, '004-T3'),
    ),
    Recipe('004/table5', 'epsilon of the language models against rounds', sampled_training.table5),
    Recipe(
        '004/table13',
        'epsilon, selection by example',
        functools.partial(sampled_training.by_population, '004-T13'),
    ),
)
