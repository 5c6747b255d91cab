"""Self-contained HTML pages: figures are embedded, and nothing is loaded from elsewhere."""

import html
import io

import matplotlib
from matplotlib.backends import backend_svg  # noqa: F401 - loaded now, since later memory may be short
from matplotlib.figure import Figure

from dpfl.reporting import svg_values

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
    return element.removesuffix('</svg>') + svg_values.titles(drawn) + '</svg>'
