"""Figures of runs, plans and mechanisms."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import ticker
from matplotlib.backends import backend_agg  # noqa: F401 - loaded now, since later memory may be short
from matplotlib.figure import Figure

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
    figure = Figure(figsize=(7, 4.5), layout='constrained')
    axes = figure.subplots()
    axes.set_title(title, fontsize=10)
    unit = {row[variable]: row[loss] for row in rows if row['mechanism'] == relative_to}
    for name in dict.fromkeys(row['mechanism'] for row in rows):
        points = sorted(
            (row[variable], row[loss] / unit.get(row[variable], 1.0))
            for row in rows
            if row['mechanism'] == name and (row[variable] in unit or not relative_to)
        )
        axes.plot(*np.reshape(points, (-1, 2)).T, marker='.', label=name)
    axes.set_xlabel(variable.replace('_', ' '))
    label = loss.replace('_', ' ')
    axes.set_ylabel(f'{label} / that of {relative_to}' if relative_to else label)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    return figure


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
    figure = Figure(figsize=(7, 2 + 2.5 * len(measures)), layout='constrained')
    panels = figure.subplots(len(measures), 1, sharex=True, squeeze=False)[:, 0]
    for axes, measure in zip(panels, measures, strict=True):
        for label in dict.fromkeys(_line(row, lines) for row in rows):
            points = sorted(
                (row[variable], row[measure])
                for row in rows
                if row[measure] is not None and _line(row, lines) == label
            )
            if points:
                axes.plot(*zip(*points, strict=True), marker='.', label=label)
        axes.set_ylabel(measure.replace('_', ' '))
        _logarithmic(axes, 'y')
        axes.grid(alpha=0.3)
    values = [row[variable] for row in rows]
    if max(values) >= _LOGARITHMIC_FROM * min(values) > 0:
        _logarithmic(panels[-1], 'x')
    panels[-1].set_xlabel(variable.replace('_', ' '))
    if lines:
        panels[0].legend(fontsize=8)
    return figure


def _line(row: Mapping, keys: Sequence[str]) -> str:
    """The label of a row's line: names as they are, numbers after their keys."""
    return ', '.join(
        row[key] if isinstance(row[key], str) else f'{key.replace("_", " ")} {row[key]:,}'
        for key in keys
    )


def _logarithmic(axes: Any, name: str) -> None:
    """Makes an axis logarithmic, with plain numbers at 1, 2 and 5 of each decade."""
    axes.set(**{f'{name}scale': 'log'})
    axis = getattr(axes, f'{name}axis')
    axis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(ticker.StrMethodFormatter('{x:,.12g}'))
    axis.set_minor_formatter(ticker.NullFormatter())


def _series(rows: Sequence[Mapping[str, float]], name: str) -> tuple[list, list]:
    """Rounds and values of the rows that have a value."""
    present = [row for row in rows if name in row]
    return [row['round'] for row in present], [row[name] for row in present]
