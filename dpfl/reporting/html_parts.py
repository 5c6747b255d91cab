"""HTML pages and their pieces: tables, figures with captions, sheets of images, notes.

Texts are plain and are escaped here, unless they are said to be HTML. Nothing is loaded from
elsewhere. Figures are embedded.
"""

import base64
import html
import io
import pathlib
from collections.abc import Iterable, Sequence

import matplotlib
import numpy as np
from matplotlib import image
from matplotlib.backends import backend_svg  # noqa: F401 - loaded now, since later memory may be short
from matplotlib.figure import Figure

from dpfl import _storage
from dpfl.reporting import charts

# Pages are light or dark, as the reader's system is. Pictures of data keep their colours.
_STYLE = """
:root { color-scheme: light dark; --ink: #1a1a1a; --paper: #ffffff; --line: #d0d0d0;
  --muted: #444444; --marked: #fde9c8; --good: #2d5f2d; --good-paper: #eef4ee; --bad: #9a2a00;
  --bad-paper: #fbeee8; --unsure: #7a5a00; }
@media screen and (prefers-color-scheme: dark) {
  :root { --ink: #e6e6e6; --paper: #17191d; --line: #44484f; --muted: #b5b9c0; --marked: #4d3b14;
    --good: #8fd08f; --good-paper: #1d2b1f; --bad: #ff9d73; --bad-paper: #3a211a;
    --unsure: #e3bf5a; }
  figure > svg { filter: invert(.93) hue-rotate(180deg); }
}
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: var(--ink); background: var(--paper); }
h1, h2 { line-height: 1.2; }
h2 { margin-top: 2.2rem; border-bottom: 1px solid var(--line); }
table { border-collapse: collapse; }
th, td { padding: .2rem .8rem; border-bottom: 1px solid var(--line); text-align: right; }
th:first-child, td:first-child { text-align: left; }
code, li { overflow-wrap: anywhere; }
figure { margin: 1.5rem 0; }
img, svg { max-width: 100%; height: auto; }
@media (max-width: 40rem) {
  body { padding: 0 .6rem; }
  table { display: block; overflow-x: auto; font-size: .85rem; }
  th, td { padding: .2rem .3rem; }
}
"""
_GAP = 2  # Width of the gaps, in pixels of the images.
_GAP_PIXEL = 0.5  # Grey.
# Rules of the pieces, for `document`.
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


def document(title: str, body: str, style: str = '') -> str:
    """A complete HTML document.

    Args:
      title: title of the page, as plain text.
      body: HTML of the body.
      style: additional CSS rules, which override the common ones.
    """
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<title>{html.escape(title)}</title>\n<style>{_STYLE}{style.lstrip()}</style>\n</head>\n'
        f'<body>\n{body}\n</body>\n</html>\n'
    )


def svg(drawn: Figure) -> str:
    """A figure as an SVG element; equal figures give equal text.

    A pointer on a point of a line, or on a bar, shows its values: browsers show titles of elements,
    without scripts.
    """
    text = io.StringIO()
    with matplotlib.rc_context({'svg.hashsalt': 'dpfl'}):
        drawn.savefig(text, format='svg', metadata={'Date': None})
    element = text.getvalue().partition('?>')[2].partition('>')[2].strip()
    return element.removesuffix('</svg>') + charts.titles(drawn) + '</svg>'


def tiled(pixels: np.ndarray, columns: int, scale: int = 2) -> np.ndarray:
    """Arranges images in rows, with grey gaps.

    Args:
      pixels: float [n, height, width] in [0, 1] with n > 0; 0 is black.
      columns: images per row; the rest of the last row is grey.
      scale: factor by which the picture is enlarged along each axis.

    Returns:
      The picture, uint8 [height, width].
    """
    number, height, width = pixels.shape
    rows = -(-number // columns)
    sheet = np.full((rows, height + _GAP, columns, width + _GAP), _GAP_PIXEL)
    for index, picture in enumerate(pixels):
        row, column = divmod(index, columns)
        sheet[row, :height, column, :width] = picture
    sheet = sheet.reshape(rows * (height + _GAP), columns * (width + _GAP))[:-_GAP, :-_GAP]
    levels = np.round(255 * np.clip(sheet, 0, 1)).astype(np.uint8)
    return levels.repeat(scale, axis=0).repeat(scale, axis=1)


def png(pixels: np.ndarray, columns: int, scale: int = 2) -> bytes:
    """The picture of `tiled` as a PNG file."""
    file = io.BytesIO()
    image.imsave(file, tiled(pixels, columns, scale), format='png', cmap='gray', vmin=0, vmax=255)
    return file.getvalue()


def write(path: pathlib.Path, pixels: np.ndarray, columns: int = 12) -> None:
    """Writes the picture of `tiled` as a PNG file; makes the directory if need be.

    Raises:
      StorageError: if that fails.
    """
    with _storage.naming(path):
        path.parent.mkdir(exist_ok=True)
    picture = png(pixels, columns)
    _storage.write_atomically(path, lambda file: file.write(picture))


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
    return _figure(svg(drawn), html.escape(caption))


def sheet(pixels: np.ndarray, caption: str) -> str:
    """Images side by side with a caption.

    Args:
      pixels: values within [0, 1], float32 [n, 28, 28]; the first `SHEET_IMAGES` are shown.
      caption: a description; also the text for those who do not see the images.
    """
    picture = png(pixels[:SHEET_IMAGES], _SHEET_COLUMNS, scale=1)
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
