"""Pieces that pages share: tables, figures with captions, sheets of images, folded parts, notes.

Texts are plain and are escaped here, unless they are said to be HTML. Nothing is loaded from
elsewhere.
"""

import base64
import html
from collections.abc import Iterable, Sequence

import numpy as np
from matplotlib.figure import Figure

from dpfl.reporting import contact_sheet, html_page

# Rules of the pieces, for `html_page.document`.
STYLE = """
body { max-width: 70rem; }
.scroll { overflow-x: auto; }
th, td { vertical-align: top; }
td { font-variant-numeric: tabular-nums; }
td.number { white-space: nowrap; }
td.text, th.text, table.words td, table.words th { text-align: left; }
tr.clear td, td.clear { background: var(--marked); }
.sheets { display: grid; grid-template-columns: repeat(auto-fit, minmax(20rem, 1fr)); gap: 1.5rem; }
.sheets figure { margin: 0; }
img { image-rendering: pixelated; width: 100%; }
summary { cursor: pointer; }
.note, figcaption { color: var(--muted); font-size: .92rem; }
"""
SHEET_IMAGES, _SHEET_COLUMNS = 72, 12


class Cell(str):
    """Text of a cell with its CSS class, such as `number` or `text`."""

    kind: str

    def __new__(cls, text: str, kind: str = 'number') -> 'Cell':
        cell = super().__new__(cls, text)
        cell.kind = kind
        return cell


def table(
    names: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    kind: str = '',
    clear: Sequence[bool] = (),
) -> str:
    """A table, which scrolls to the side if the page is narrow.

    Args:
      names: names of the columns.
      rows: cells of each row.
      kind: CSS class of the table, such as `words`.
      clear: whether each row is marked as a clear difference; by default none is.
    """
    rows = list(rows)
    marks = clear or [False] * len(rows)
    head = ''.join(_cell('th', name) for name in names)
    body = ''.join(
        f'<tr{" class=clear" if mark else ""}>{"".join(_cell("td", cell) for cell in row)}</tr>\n'
        for row, mark in zip(rows, marks, strict=True)
    )
    opening = f'<table class="{kind}">' if kind else '<table>'
    return f'<div class="scroll">{opening}<tr>{head}</tr>\n{body}</table></div>\n'


def _cell(tag: str, text: str) -> str:
    kind = getattr(text, 'kind', '')
    opening = f'<{tag} class="{kind}">' if kind else f'<{tag}>'
    return f'{opening}{html.escape(text)}</{tag}>'


def figure(drawn: Figure, caption: str) -> str:
    """A figure with its caption."""
    return _figure(html_page.svg(drawn), html.escape(caption))


def sheet(pixels: np.ndarray, caption: str) -> str:
    """Images side by side with a caption.

    Args:
      pixels: values within [0, 1], float32 [n, 28, 28]; the first `SHEET_IMAGES` are shown.
      caption: a description; also the text for those who do not see the images.
    """
    picture = contact_sheet.png(pixels[:SHEET_IMAGES], _SHEET_COLUMNS, scale=1)
    data, text = base64.b64encode(picture).decode(), html.escape(caption)
    return _figure(f'<img alt="{text}" src="data:image/png;base64,{data}">', text)


def _figure(element: str, caption: str) -> str:
    return f'<figure>{element}<figcaption>{caption}</figcaption></figure>\n'


def folded(title: str, content: str, *, is_open: bool = False) -> str:
    """Content, as HTML, that a reader opens by its title."""
    opening = '<details open>' if is_open else '<details>'
    return f'{opening}<summary>{html.escape(title)}</summary>\n{content}</details>\n'


def note(text: str) -> str:
    """A remark below a table."""
    return f'<p class="note">{html.escape(text)}</p>\n'
