"""Tables and sheets of images as HTML that loads nothing from elsewhere. No TensorFlow."""

import base64
import html
from collections.abc import Sequence

import numpy as np

from dpfl.reporting import contact_sheet

SHEET_IMAGES, _SHEET_COLUMNS = 72, 12


def sheet(pixels: np.ndarray, caption: str) -> str:
    """Images side by side with a caption.

    Args:
      pixels: values within [0, 1], float32 [n, 28, 28]; the first `SHEET_IMAGES` are shown.
      caption: what is shown; also the text for those who do not see it.
    """
    picture = contact_sheet.png(pixels[:SHEET_IMAGES], _SHEET_COLUMNS, scale=1)
    data, text = base64.b64encode(picture).decode(), html.escape(caption)
    return (
        f'<figure><img alt="{text}" src="data:image/png;base64,{data}">'
        f'<figcaption>{text}</figcaption></figure>\n'
    )


def table(names: Sequence[str], rows: Sequence[Sequence[str]], kind: str = 'numbers') -> str:
    """A table of `kind` numbers or words; it scrolls to the side if the page is narrow."""
    head = ''.join(f'<th>{html.escape(name)}</th>' for name in names)
    body = ''.join(
        '<tr>' + ''.join(f'<td>{html.escape(cell)}</td>' for cell in row) + '</tr>\n'
        for row in rows
    )
    return f'<div class="scroll"><table class="{kind}"><tr>{head}</tr>\n{body}</table></div>\n'
