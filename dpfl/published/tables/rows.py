"""Rows of published numbers, of tables and of statements about figures, and how they compare."""

import dataclasses
import json
import math
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from dpfl.reporting import plain_text

# The documents by the number that their row ids begin with.
SOURCES = {
    '000': 'Xu et al. 2023. Federated Learning of Gboard Language Models with Differential Privacy',
    '001': 'McMahan et al. 2018. Learning Differentially Private Recurrent Language Models',
    '002': 'McMahan et al. 2024. A Hassle-free Algorithm for Private Learning in Practice (BLT)',
    '003': 'Supplement to McMahan and Thakurta 2022. Colab: accounting of the Gboard es-ES model',
    '004': 'Augenstein et al. 2020. '
    'Generative Models for Effective ML on Private, Decentralized Datasets',
}


@dataclasses.dataclass(frozen=True)
class Row:
    """Published numbers that belong together, and the inputs they follow from.

    Attributes:
      id: Unique name that begins with the document, a key of `SOURCES`. That of a statement about a
        figure is the figure, a slash, and a word.
      place: Place in the document.
      published: Name -> number as it is printed; or words, for parameters that are shipped in
        dpfl/strategies. For words of a statement such as `better` it is a ratio of 1.
      comparison: How a computed number must compare: one of `_WAYS` or `_COMPARISONS` for all
        numbers, or by name.
      reproducible: Whether the documents have the inputs of the numbers.
      note: A remark for readers. If the row is not reproducible, the reason.
      says: A statement in other words.
      mechanism: Calculation that recomputes a row of a table, see `calculations.compute`.
      inputs: Inputs of the calculation, as the document gives them. `MinS` counts the rounds
        strictly between two participations.
      decimals: Name -> number of digits that are printed after the point.
      method: Name -> how it is computed. The method of `eps` begins with an accountant and ends
        with the rho that the accountant is given.
      assumed: Inputs that no document gives, in words.
    """

    id: str
    place: str
    published: dict[str, float] | str
    comparison: str | dict[str, str]
    reproducible: bool
    note: str
    says: str = 'printed value'
    mechanism: str = ''
    inputs: dict = dataclasses.field(default_factory=dict)
    decimals: dict[str, int] = dataclasses.field(default_factory=dict)
    method: dict[str, str] = dataclasses.field(default_factory=dict)
    assumed: str = ''

    @property
    def source(self) -> str:
        """The document, a key of `SOURCES`."""
        return self.id[:3]

    @property
    def figure(self) -> str:
        """Name of the figure that a statement is about."""
        return self.id.rpartition('/')[0]

    def holds(self, computed: Mapping[str, float]) -> bool | None:
        """Whether all computed numbers compare as stated; None if they cannot be compared.

        Args:
          computed: Name -> number, not rounded; may have more names than `published`.
        """
        assert isinstance(self.published, dict)  # Words are compared by `calculations`.
        agree = [
            agrees(
                computed[name],
                wanted,
                self.decimals.get(name, 0),
                self.comparison if isinstance(self.comparison, str) else self.comparison[name],
            )
            for name, wanted in self.published.items()
        ]
        return all(agree) if self.reproducible else None

    @property
    def method_text(self) -> str:
        """The method of all numbers in one line."""
        return '; '.join(f'{name}: {words}' for name, words in self.method.items())

    @property
    def may_be_better(self) -> bool:
        """Whether a number may be better than it is printed."""
        return isinstance(self.comparison, dict) and 'at most' in self.comparison.values()


@dataclasses.dataclass(frozen=True)
class Result:
    """A row, the numbers that were computed for it, and whether they agree.

    Attributes:
      row: The row.
      published: Name -> published number or list of numbers.
      computed: The same names -> computed numbers, not rounded.
      match: Whether all numbers agree in the digits that the document prints; None if the row is
        not reproducible.
    """

    row: Row
    published: dict
    computed: dict
    match: bool | None

    def to_dict(self) -> dict:
        """The JSON values that `--format=json` prints. Numbers that are not finite are None."""
        return {
            'id': self.row.id,
            'published': self.row.published,
            'computed': {name: _plain(value) for name, value in self.computed.items()},
            'method': self.row.method_text,
            'match': self.match,
        }


# The data file of the published numbers.
PUBLISHED = pathlib.Path(__file__).with_name('published.json')


def load(path: pathlib.Path | None = None) -> list[Row]:
    """The rows of a data file; by default those of the tables of all documents."""
    return [Row(**entry) for entry in json.loads((path or PUBLISHED).read_text(encoding='utf-8'))]


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(entry) for entry in value]
    return float(value) if math.isfinite(value) else None


# Ways to round to an integer.
_WAYS: dict[str, Callable[[float], float]] = {
    'nearest': round,
    'up': lambda units: math.ceil(units - 1e-9),
    'down': lambda units: math.floor(units + 1e-9),
}
# The largest gain of an optimum over a published one is 0.52 %.
_BETTER = 0.01
# Relative difference up to which numbers are about the same; the documents only say so in words.
_ABOUT = 0.02
# How a computed number compares with a published one that is not rounded.
_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    # The number may be smaller, by up to `_BETTER`: the published one is the worse of two optima.
    'at most': lambda value, published: published * (1 - _BETTER) <= value <= published,
    'above': lambda value, published: value > published,
    'below': lambda value, published: value < published,
    'at least': lambda value, published: value >= published,
    'about': lambda value, published: math.isclose(value, published, rel_tol=_ABOUT),
    'equal': lambda value, published: math.isclose(value, published, rel_tol=1e-12),
}


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
      convention: One of `_WAYS` or `_COMPARISONS`; or 'not compared', if it is shown beside the
        number that is compared, or was an input.
    """
    if convention == 'not compared':
        return True
    if not math.isfinite(value):
        return False
    if convention in _COMPARISONS:
        return _COMPARISONS[convention](value, published)
    return math.isclose(printed(value, decimals, convention), published, rel_tol=1e-12)


MATCH = {True: 'yes', False: 'NO', None: 'cannot'}
_DIGITS_BEYOND = 2
_PARAMETER_DECIMALS = 4


def text(results: list[Result]) -> str:
    """Tables for a terminal."""
    lines = []
    for source, groups in _sections(results):
        lines += [f'Rows {source}: {SOURCES[source]}', '']
        for group in groups:
            cells, notes = _cells(group)
            lines += [group[0].row.place, *_method_lines(group), plain_text.columns(cells)]
            lines += [f'[{number}] {note}' for note, number in notes.items()] + ['']
    return '\n'.join([*lines, summary(results)])


def summary(results: list[Result]) -> str:
    """How many rows match and how far that goes, in one line."""
    matching = [result.row for result in results if result.match]
    better = sum(row.may_be_better for row in matching)
    assumed = sum(bool(row.assumed) for row in matching)
    kinds = {
        'to the digit': len(matching) - better - assumed,
        'with one of two losses better than printed': better,
        'with an input that no document gives': assumed,
    }
    how = ', '.join(f'{count} {words}' for words, count in kinds.items() if count)
    differ = sum(result.match is False for result in results)
    return (
        f'{len(results)} rows: {len(matching)} match{f" ({how})" if matching else ""}, {differ} '
        f'differ, {len(results) - len(matching) - differ} cannot be reproduced for the reason in '
        'their note.'
    )


def _sections(results):
    """Documents in order, each with its results grouped by table and method."""
    sections: dict[str, dict[tuple, list]] = {}
    for result in results:
        groups = sections.setdefault(result.row.source, {})
        kind = result.row.place, result.row.method_text, *result.computed
        groups.setdefault(kind, []).append(result)
    for source in sorted(sections):
        yield source, list(sections[source].values())


def _method_lines(group) -> list[str]:
    return [f'{name}: {words}' for name, words in group[0].row.method.items()]


def _cells(group) -> tuple[list[dict[str, str]], dict[str, int]]:
    """The cells of each row of a group by column, and the numbers of the distinct notes."""
    notes: dict[str, int] = {}
    cells = []
    for result in group:
        line = {'id': result.row.id}
        for name, value in result.computed.items():
            decimals = result.row.decimals.get(name, _PARAMETER_DECIMALS)
            line[f'{name} published'] = _number(result.published[name], decimals)
            line[f'{name} computed'] = _number(value, decimals + _DIGITS_BEYOND)
        line['match'] = MATCH[result.match]
        note = result.row.note
        number = notes.setdefault(note, len(notes) + 1) if note else None
        line['note'] = f'[{number}]' if number else ''
        cells.append(line)
    return cells, notes


def _number(value, decimals: int) -> str:
    """A number with `decimals`, or in scientific notation with the same digits."""
    if isinstance(value, list):
        return ' '.join(_number(entry, decimals) for entry in value)
    exponent = int(f'{value:e}'.partition('e')[2]) if math.isfinite(value) else 0
    if 0 <= decimals <= 6 and exponent >= -4:
        return f'{value:.{decimals}f}'
    return f'{value:.{max(decimals + exponent, 0)}e}'
