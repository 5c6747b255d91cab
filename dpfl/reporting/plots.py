"""Figures of runs, plans and mechanisms."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.backends import backend_agg  # noqa: F401 - loaded now, since later memory may be short
from matplotlib.figure import Figure

from dpfl.reporting import charts

# Where a run keeps the figure of its training.
TRAINING = 'plots/training.png'
# A horizontal axis is logarithmic if its values span at least this ratio.
_LOGARITHMIC_FROM = 10


def training_curves(
    rows: Sequence[Mapping[str, float]],
    reference_accuracies: Mapping[str, float] | None = None,
    run: str = '',
) -> Figure:
    """Accuracy, loss, epsilon and an adaptive clip norm against rounds.

    Args:
      rows: metrics of the rounds, each with `round` and, if measured, `accuracy`, `loss` and
        `epsilon`. With `accuracy_q10` and so on, bands show the middle halves and four fifths of
        the clients. With `clip_norm` and `clip_norm_estimate` there is a fourth panel.
      reference_accuracies: accuracies by name, drawn as labelled horizontal lines, unless unknown
        words count (`_with_oov`): the curve is that of known words.
      run: name of the run, for the title.

    Returns:
      The figure; the caller saves it.
    """
    # Without pyplot, which would keep every figure in memory and may need a display.
    is_adaptive = any('clip_norm' in row for row in rows)
    # Fixed margins: to find the least ones takes as long as to draw the figure.
    figure = Figure(figsize=(11, 7))
    figure.subplots_adjust(left=0.08, right=0.98, bottom=0.08, top=0.9, wspace=0.2, hspace=0.16)
    title = f'{run}: after {rows[-1]["round"]:.0f} rounds' if run and rows else run
    figure.suptitle(title, parse_math=False)  # A name may have dollar signs.
    panels = figure.subplots(2, 2, sharex=True).ravel()
    accuracy, loss, epsilon, norm = panels
    _draw_accuracy(accuracy, rows, reference_accuracies or {})
    _draw_loss(loss, rows)
    epsilon.plot(*_series(rows, 'epsilon'), marker='.', color='tab:red')
    epsilon.set(title='Privacy', ylabel='epsilon of the rounds so far')
    if is_adaptive:
        norm.plot(*_series(rows, 'clip_norm_estimate'), color='grey', label='estimate')
        norm.step(*_series(rows, 'clip_norm'), where='mid', label='in use')
        norm.set(title='Adaptive clip norm', ylabel='clip norm')
        norm.legend(fontsize=8)
    else:
        norm.remove()
        loss.tick_params(labelbottom=True)
    shown = panels if is_adaptive else panels[:3]
    for axes in shown:
        axes.grid(alpha=0.3)
        if axes is not loss:
            axes.set_ylim(0, axes.get_ylim()[1] * 1.03)
    for axes in (epsilon, shown[-1] if is_adaptive else loss):
        axes.set_xlabel('round')
    return figure


def _draw_accuracy(axes: Any, rows: Sequence[Mapping], references: Mapping[str, float]) -> None:
    axes.plot(*_series(rows, 'accuracy'), marker='.')
    for low, high in (('accuracy_q10', 'accuracy_q90'), ('accuracy_q25', 'accuracy_q75')):
        at, least = _series(rows, low)
        if at:
            axes.fill_between(at, least, _series(rows, high)[1], color='tab:blue', alpha=0.12)
    styles = itertools.cycle(('--', '-.', ':'))
    shown = {k: value for k, value in references.items() if not k.endswith('_with_oov')}
    for style, (name, value) in zip(styles, shown.items(), strict=False):
        _draw_line(axes, f'{name.replace("_", " ")} {value:.3f}', value, style)
    axes.set(title='Accuracy', ylabel='accuracy on held-out clients')


def _draw_loss(axes: Any, rows: Sequence[Mapping]) -> None:
    at, losses = _series(rows, 'loss')
    axes.plot(at, losses, marker='.', color='tab:green')
    finite = [loss for loss in losses if np.isfinite(loss)]
    if finite and min(finite) > 0 and max(finite) > _LOGARITHMIC_FROM * min(finite):
        axes.set_yscale('log')
    axes.set(title='Loss', ylabel='loss on held-out clients')


def _draw_line(axes: Any, label: str, value: float, style: str) -> None:
    """A horizontal line to compare with, and its label above its left end."""
    axes.axhline(value, linestyle=style, color='grey', linewidth=1)
    axes.annotate(
        label,
        (0.01, value),
        xycoords=('axes fraction', 'data'),
        va='bottom',
        fontsize=8,
        color='dimgrey',
    )


def losses(
    rows: Sequence[Mapping],
    variable: str,
    loss: str,
    relative_to: str | None = None,
    title: str = '',
) -> Figure:
    """Losses of mechanisms against a variable ([McMahan24], figures 2 to 6).

    Args:
      rows: each with `mechanism`, the variable and the loss.
      variable: key of the values on the horizontal axis.
      loss: key of the values on the vertical axis.
      relative_to: name of the mechanism by whose loss all losses are divided, at the values that it
        has; None for absolute losses.
      title: the common setting of all losses.

    Returns:
      The figure; the caller saves it.
    """
    unit = {row[variable]: row[loss] for row in rows if row['mechanism'] == relative_to}
    points = [
        (row['mechanism'], row[variable], row[loss] / unit.get(row[variable], 1.0))
        for row in rows
        if row[variable] in unit or not relative_to
    ]
    names = [row['mechanism'] for row in rows]
    label = _words(loss)
    y_label = f'{label} / that of {relative_to}' if relative_to else label
    panel = charts.Panel(title, _words(variable), y_label, _lines(names, points))
    return charts.draw([panel], 1)


def plans(
    rows: Sequence[Mapping], variable: str, measures: Sequence[str], lines: Sequence[str] = ()
) -> Figure:
    """Measures of plans against a variable, one panel each ([Xu23], figure 4; [McMahan24], 8, 9).

    Args:
      rows: each with the variable and the measures; a measure may be None.
      variable: key of the values on the horizontal axis.
      measures: keys of the values on the vertical axes, which are logarithmic.
      lines: keys of the values that distinguish the lines; none for a single line.

    Returns:
      The figure; the caller saves it.
    """
    values = [row[variable] for row in rows]
    is_wide = max(values) >= _LOGARITHMIC_FROM * min(values) > 0
    panels = []
    for measure in measures:
        points = [
            (_line(row, lines), row[variable], row[measure])
            for row in rows
            if row[measure] is not None
        ]
        drawn = _lines([name for name, _, _ in points], points)
        panels.append(
            charts.Panel('', _words(variable), _words(measure), drawn, x_log=is_wide, y_log=True)
        )
    return charts.draw(panels, len(panels))


def _lines(names: Sequence[str], points: Sequence[tuple[str, float, float]]) -> list[charts.Line]:
    """A line for each name, through its points: name, place and value."""
    lines = []
    for number, name in enumerate(dict.fromkeys(names)):
        own = dict(sorted((x, y) for each, x, y in points if each == name))
        lines.append(
            charts.Line(name, list(own), list(own.values()), number, number // len(charts.COLORS))
        )
    return lines


def _line(row: Mapping, keys: Sequence[str]) -> str:
    """The label of a row's line: names as they are, numbers after their keys."""
    return ', '.join(
        row[key] if isinstance(row[key], str) else f'{_words(key)} {row[key]:,}' for key in keys
    )


def _words(name: str) -> str:
    return name.replace('_', ' ')


def _series(rows: Sequence[Mapping[str, float]], name: str) -> tuple[list, list]:
    """Rounds and values of the rows that have a value."""
    present = [row for row in rows if name in row]
    return [row['round'] for row in present], [row[name] for row in present]
