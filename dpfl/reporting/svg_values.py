"""Values that an SVG figure shows under the pointer: invisible shapes over points and bars.

A browser shows the title of the element under the pointer, so no script is needed.
"""

import html
import math
from collections.abc import Iterator

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

# The points of an inch, matplotlib's unit of SVG.
_POINTS = 72
_RADIUS = 5
# Points of a line with values, at most, evenly spread; each takes some 100 bytes.
_MOST = 200


def titles(drawn: Figure) -> str:
    """SVG elements to put on top of a figure that was just saved as SVG."""
    scale, height = _POINTS / drawn.dpi, drawn.get_figheight() * _POINTS
    shapes: list[str] = []
    for axes in drawn.axes:
        for x, y, text in _points(axes):
            shapes.append(
                f'<circle cx="{x * scale:.1f}" cy="{height - y * scale:.1f}" r="{_RADIUS}">'
                f'<title>{html.escape(text)}</title></circle>'
            )
        for left, bottom, right, top, text in _bars(axes):
            shapes.append(
                f'<rect x="{left * scale:.1f}" y="{height - top * scale:.1f}" '
                f'width="{(right - left) * scale:.1f}" height="{(top - bottom) * scale:.1f}">'
                f'<title>{html.escape(text)}</title></rect>'
            )
    return f'<g fill="none" pointer-events="all">{"".join(shapes)}</g>' if shapes else ''


def _points(axes: Axes) -> Iterator[tuple[float, float, str]]:
    """Points of lines within the axes, in pixels, with a text for each."""
    (low, high), (least, most) = sorted(axes.get_xlim()), sorted(axes.get_ylim())
    for line in axes.get_lines():
        # Others are drawn across the axes, such as the accuracy of a baseline.
        if line.get_transform() != axes.transData:
            continue
        points = np.column_stack([np.ravel(line.get_xdata()), np.ravel(line.get_ydata())])
        points = points.astype(np.float64)
        is_inside = np.isfinite(points).all(axis=1)
        is_inside &= (points[:, 0] >= low) & (points[:, 0] <= high)
        is_inside &= (points[:, 1] >= least) & (points[:, 1] <= most)
        points = points[is_inside]
        points = points[:: max(1, math.ceil(len(points) / _MOST))]
        for (x, y), (across, up) in zip(points, axes.transData.transform(points), strict=True):
            yield across, up, _text(axes, line, x, y)


def _text(axes: Axes, line: Line2D, x: float, y: float) -> str:
    label = str(line.get_label())
    name = '' if label.startswith('_') else f'{label}\n'
    names = _named(axes.get_xlabel(), 'x'), _named(axes.get_ylabel(), 'y')
    return f'{name}{names[0]}: {x:.6g}\n{names[1]}: {y:.6g}'


def _named(label: str, otherwise: str) -> str:
    return ' '.join(label.split()) or otherwise


def _bars(axes: Axes) -> Iterator[tuple[float, float, float, float, str]]:
    """Bars: left, bottom, right and top in pixels, with a text for each."""
    for bar in axes.patches:
        if not isinstance(bar, Rectangle) or bar.get_data_transform() != axes.transData:
            continue
        x, y, width, height = bar.get_x(), bar.get_y(), bar.get_width(), bar.get_height()
        if not (width > 0 and height > 0):
            continue
        (left, bottom), (right, top) = axes.transData.transform([(x, y), (x + width, y + height)])
        names = _named(axes.get_xlabel(), 'x'), _named(axes.get_ylabel(), 'y')
        yield (
            left,
            bottom,
            right,
            top,
            f'{names[0]}: {x:.4g} to {x + width:.4g}\n{names[1]}: {y:.4g} to {y + height:.4g}',
        )
