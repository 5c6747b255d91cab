"""Figures of runs and reports."""

import itertools
from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure


def training_curves(
    rows: Sequence[Mapping[str, float]], reference_accuracies: Mapping[str, float] | None = None
) -> Figure:
    """Accuracy and epsilon against rounds, one above the other.

    Args:
      rows: metrics by round, each with `round` and, where measured, `accuracy` and `epsilon`.
      reference_accuracies: drawn as labelled horizontal lines, such as the best reachable one.

    Returns:
      The figure; the caller saves it.
    """
    # Not through pyplot: it would keep every figure alive and may want a display.
    figure = Figure(figsize=(7, 6), layout='constrained')
    accuracy, epsilon = figure.subplots(2, 1, sharex=True)
    accuracy.plot(*_series(rows, 'accuracy'), marker='.')
    styles = itertools.cycle(('--', '-.', ':'))
    for style, (name, value) in zip(styles, (reference_accuracies or {}).items(), strict=False):
        accuracy.axhline(value, linestyle=style, color='grey', linewidth=1)
        accuracy.annotate(
            f'{name.replace("_", " ")} {value:.3f}',
            (0.01, value),
            xycoords=('axes fraction', 'data'),
            va='bottom',
            fontsize=8,
            color='dimgrey',
        )
    accuracy.set_ylabel('accuracy on held-out clients')
    epsilon.plot(*_series(rows, 'epsilon'), marker='.', color='tab:red')
    epsilon.set_ylabel('epsilon so far')
    epsilon.set_xlabel('round')
    for axes in (accuracy, epsilon):
        axes.grid(alpha=0.3)
        axes.set_ylim(0, axes.get_ylim()[1] * 1.03)
    return figure


def losses(
    rows: Sequence[Mapping], variable: str, loss: str, relative_to: str | None = None
) -> Figure:
    """Losses of mechanisms against a variable (document 002, figures 2 to 6).

    Args:
      rows: each with `mechanism`, the variable and the loss.
      variable: name of what is on the horizontal axis.
      loss: name of what is on the vertical axis.
      relative_to: mechanism by whose loss the others are divided at each value.

    Returns:
      The figure; the caller saves it.
    """
    figure = Figure(figsize=(7, 4.5), layout='constrained')
    axes = figure.subplots()
    unit = {row[variable]: row[loss] for row in rows if row['mechanism'] == relative_to}
    for name in dict.fromkeys(row['mechanism'] for row in rows):
        points = sorted(
            (row[variable], row[loss] / unit.get(row[variable], 1.0))
            for row in rows if row['mechanism'] == name
        )
        axes.plot(*zip(*points, strict=True), marker='.', label=name)
    axes.set_xlabel(variable.replace('_', ' '))
    label = loss.replace('_', ' ')
    axes.set_ylabel(f'{label} / that of {relative_to}' if relative_to else label)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    return figure


def _series(rows, name) -> tuple[list, list]:
    present = [row for row in rows if name in row]
    return [row['round'] for row in present], [row[name] for row in present]
