"""Line charts as data: panels of named lines, which are drawn, and written as a table.

In SVG, invisible shapes over points and bars have their values. A browser shows the title of the
element under the pointer, so no script is needed.
"""

import dataclasses
import html
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

# The points of an inch, matplotlib's unit of SVG.
_POINTS = 72
_RADIUS = 5
# Points of a line with values, at most, evenly spread; each takes some 100 bytes.
_MOST = 200
# Colours that people with any colour vision can tell apart (Okabe and Ito), and dashes besides.
COLORS = ('#0072B2', '#D55E00', '#009E73', '#CC79A7', '#000000', '#E69F00', '#56B4E9', '#777777')
_DASHES: tuple[Any, ...] = ('-', '--', ':', '-.', (0, (5, 1, 1, 1, 1, 1)))
# Shapes of the points of values with intervals.
_MARKERS = 'os^vD*xP'
_PANEL_SIZE = (5.2, 3.9)
# Letters of the legend that fit below one panel.
_LETTERS = 80


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


@dataclasses.dataclass(frozen=True)
class Line:
    """A named line, or a set of points.

    Attributes:
      label: its name. Lines of the same name in several panels have one entry in the legend.
      x, y: the values, of equal length.
      color: index of the colour, at least 0; reused after eight.
      dash: index of the dashes, at least 0, 0 being a solid line; None for points alone.
      legend: its name in the legend, if that is not the label; several lines may share it.
      ends: lower and upper ends of the intervals of the values, of equal length; None for none.
      is_band: whether intervals are drawn as a band in place of bars.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    color: int
    dash: int | None = 0
    legend: str | None = None
    ends: Sequence[tuple[float, float]] | None = None
    is_band: bool = False


@dataclasses.dataclass(frozen=True)
class Panel:
    """One pair of axes.

    Attributes:
      title: its title, unique within its chart.
      x_label, y_label: names of the quantities, with their units.
      lines: the lines and sets of points, at least one.
      x_log, y_log: whether an axis is logarithmic.
      y_range: ends of the vertical axis; None for ends that fit the lines.
      x_ticks: names of places on the horizontal axis; None for numbers at regular places.
    """

    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line]
    x_log: bool = False
    y_log: bool = False
    y_range: Sequence[float] | None = None
    x_ticks: Mapping[float, str] | None = None


def draw(panels: Sequence[Panel], columns: int) -> Figure:
    """Draws panels row by row, with one legend below them, if a line has a name.

    Args:
      panels: the panels, at least one.
      columns: number of panels in a row.

    Returns:
      The figure; the caller saves it.
    """
    rows = math.ceil(len(panels) / columns)
    width, height = _PANEL_SIZE
    # Without pyplot, which would keep every figure in memory and may need a display.
    figure = Figure(figsize=(width * columns, height * rows + 1.0), layout='constrained')
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    entries: dict[str, Any] = {}
    for panel, panel_axes in zip(panels, axes, strict=False):
        entries |= {
            name: line for name, line in _draw_panel(panel_axes, panel) if name not in entries
        }
    for unused in axes[len(panels) :]:
        unused.remove()
    if any(entries):
        figure.legend(
            list(entries.values()),
            [name.replace('$', r'\$') for name in entries],  # No name is a formula.
            loc='outside lower center',
            ncols=max(1, int(_LETTERS * columns / (8 + max(map(len, entries))))),
            fontsize=8,
        )
    return figure


def table(panels: Sequence[Panel]) -> list[dict[str, Any]]:
    """The points of all lines, in order: `panel`, `line`, and x and y with their names."""
    return [
        {
            'panel': panel.title,
            'line': line.label,
            'x_name': panel.x_label,
            'x': x,
            'y_name': panel.y_label,
            'y': y,
        }
        for panel in panels
        for line in panel.lines
        for x, y in zip(line.x, line.y, strict=True)
    ]


def _draw_panel(axes: Axes, panel: Panel) -> list[tuple[str, Any]]:
    """Draws one panel; returns the entries of its legend: names and drawn lines."""
    entries = []
    for line in panel.lines:
        style: dict[str, Any] = {'color': COLORS[line.color % len(COLORS)]}
        if line.dash is None:
            style |= {'linestyle': 'none', 'marker': 'o', 'markersize': 6, 'fillstyle': 'none'}
        else:
            style |= {'linestyle': _DASHES[line.dash % len(_DASHES)], 'linewidth': 1.6}
            if len(line.x) < 2:
                style['marker'] = 'o'
        if line.ends is not None and not line.is_band:
            drawn: Any = _with_bars(axes, line, style)
        else:
            (drawn,) = axes.plot(line.x, line.y, label=line.label, **style)
        if line.ends is not None and line.is_band:
            low, high = np.array(line.ends).T
            axes.fill_between(line.x, low, high, color=style['color'], alpha=0.15, linewidth=0)
        entries.append((line.legend or line.label, drawn))
    axes.set_title(panel.title, fontsize=10, parse_math=False)
    axes.set_xlabel(panel.x_label, parse_math=False)
    axes.set_ylabel(panel.y_label, parse_math=False)
    if panel.x_log:
        logarithmic(axes, 'x')
    if panel.y_log:
        logarithmic(axes, 'y')
    if panel.y_range is not None:
        axes.set_ylim(*panel.y_range)
    if panel.x_ticks is not None:
        axes.set_xticks(list(panel.x_ticks), list(panel.x_ticks.values()), parse_math=False)
        axes.minorticks_off()
    axes.grid(alpha=0.3)
    return entries


def _with_bars(axes: Axes, line: Line, style: dict[str, Any]) -> Any:
    values = np.asarray(line.y, float)
    style |= {'marker': _MARKERS[line.color % len(_MARKERS)], 'markersize': 4, 'fillstyle': 'full'}
    return axes.errorbar(
        line.x,
        values,
        np.abs(np.array(line.ends).T - values),
        label=line.label,
        capsize=3,
        **style,
    )


def logarithmic(axes: Axes, name: str) -> None:
    """Makes an axis logarithmic, with plain numbers unless it spans many decades."""
    axes.set(**{f'{name}scale': 'log'})
    low, high = axes.get_xlim() if name == 'x' else axes.get_ylim()
    decades = math.log10(high / low)
    axis = axes.xaxis if name == 'x' else axes.yaxis
    if decades < 6:
        subs = (1, 2, 5) if decades < 2.6 else (1,)
        axis.set_major_locator(ticker.LogLocator(subs=subs))
        axis.set_major_formatter(ticker.StrMethodFormatter('{x:,.12g}'))
    axis.set_minor_formatter(ticker.NullFormatter())
