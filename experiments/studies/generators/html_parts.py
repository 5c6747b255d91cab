"""Pieces of HTML for the page of a comparison: cells, tables, numbers with their intervals."""

import html
import math
from collections.abc import Iterable, Sequence

from dpfl import accounting
from dpfl.debugging.differences import Difference
from experiments.studies.generators.verdict import Verdict

STYLE = """
body { max-width: 74rem; }
.scroll { overflow-x: auto; }
th { vertical-align: bottom; }
td { vertical-align: top; font-variant-numeric: tabular-nums; }
th { hyphens: auto; }
td { white-space: nowrap; }
td.text, th.text { text-align: left; }
td.text { white-space: pre-wrap; min-width: 5rem; }
td.sentence { text-align: left; white-space: normal; min-width: 14rem; }
td.path { overflow-wrap: anywhere; white-space: normal; min-width: 9rem; }
summary { cursor: pointer; font-weight: bold; margin: .8rem 0; }
.verdict { font-size: 1.15rem; padding: .7rem 1rem; border-left: .35rem solid var(--good);
  background: var(--good-paper); }
.verdict.untold { border-color: var(--unsure); background: none; }
.verdict.differs { border-color: var(--bad); background: var(--bad-paper); }
tr.clear td { background: var(--marked); }
.sheets { display: grid; grid-template-columns: repeat(auto-fit, minmax(18rem, 1fr)); gap: 1.5rem; }
.sheets figure { margin: 0; }
.sheets img { image-rendering: pixelated; width: 100%; }
.note { color: var(--muted); font-size: .92rem; }
figcaption { color: var(--muted); font-size: .92rem; }
"""
_COLUMNS = ('a', 'b', 'a minus b', '95 % interval', 'adjusted p')
# Units of the columns of shares.
_UNITS = {'a': '%', 'b': '%', 'a minus b': 'points', '95 % interval': 'points'}


class Cell(str):
    """Text of a cell with its CSS class."""

    kind: str

    def __new__(cls, text: str, kind: str = 'text') -> 'Cell':
        cell = super().__new__(cls, text)
        cell.kind = kind
        return cell


def table(names: Sequence[str], rows: Iterable[Sequence[str]], clear: Sequence[bool] = ()) -> str:
    """A table; names and cells are plain text.

    Args:
      names: Names of the columns.
      rows: Cells of each row.
      clear: Whether each row is marked as a clear difference; by default none is.
    """
    rows = list(rows)
    marks = list(clear) or [False] * len(rows)
    head = ''.join(
        f'<th class="{getattr(name, "kind", "")}">{html.escape(name)}</th>' for name in names
    )
    body = ''.join(
        f'<tr{" class=clear" if mark else ""}>'
        + ''.join(
            f'<td class="{getattr(cell, "kind", "")}">{html.escape(cell)}</td>' for cell in row
        )
        + '</tr>\n'
        for row, mark in zip(rows, marks, strict=True)
    )
    return f'<div class="scroll"><table><tr>{head}</tr>\n{body}</table></div>\n'


def folded(title: str, body: str, is_open: bool) -> str:
    """A part of the page that can be unfolded; `title` is plain text, `body` HTML."""
    mark = ' open' if is_open else ''
    return f'<details{mark}><summary>{html.escape(title)}</summary>\n{body}</details>\n'


def note(text: str) -> str:
    """A remark below a table; `text` is plain text."""
    return f'<p class="note">{html.escape(text)}</p>\n'


def percent(share: float) -> str:
    """A share in percent, with three digits and without the unit."""
    return '–' if math.isnan(share) else f'{100 * share:.3g}'


def epsilon(value: float | None) -> str:
    """Epsilon, rounded up."""
    return 'infinite' if value is None or math.isinf(value) else f'{accounting.round_up(value)}'


def differences(
    name: str,
    found: Sequence[Difference],
    verdict: Verdict,
    *,
    is_share: bool = True,
    ratio: bool = False,
) -> str:
    """A table of differences, the clear ones marked.

    Args:
      name: Name of the first column.
      found: The differences.
      verdict: The verdict, which has the level of an area.
      is_share: Whether the values are shares, shown in percent, differences in percentage points.
      ratio: Whether to show the quotient of a and b.
    """
    rows = []
    for each in found:
        if is_share:
            values = [percent(each.first), percent(each.second)]
            points = [f'{100 * number:+.3g}' for number in (each.value, each.low, each.high)]
        else:
            values = [f'{each.first:.4g}', f'{each.second:.4g}']
            points = [f'{number:+.3g}' for number in (each.value, each.low, each.high)]
        quotient = [_quotient(each)] if ratio else []
        rows.append(
            [
                Cell(each.name),
                *values,
                *quotient,
                f'{points[0]}',
                f'{points[1]} to {points[2]}',
                p_value(each.adjusted),
            ]
        )
    columns = [*_COLUMNS[:2], *(['a : b'] if ratio else []), *_COLUMNS[2:]]
    if is_share:
        columns = [f'{each} ({_UNITS[each]})' if each in _UNITS else each for each in columns]
    return table([Cell(name), *columns], rows, [each.is_clear(verdict.of_area) for each in found])


def p_value(value: float) -> str:
    """A p-value with two digits."""
    return '< 1e-12' if value < 1e-12 else f'{value:.2g}'


def _quotient(each: Difference) -> str:
    if not each.second:
        return 'only a'
    return 'only b' if not each.first else f'{each.first / each.second:.3g}'
