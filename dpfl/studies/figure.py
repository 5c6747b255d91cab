"""The figure of a study, with confidence intervals over the seeds. No TensorFlow."""

import io
import math
from collections.abc import Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure

from dpfl.studies import definition, measures, statistics

_LABELS = {
    'round': 'round',
    'epsilon': 'epsilon of the rounds so far',
    'accuracy': 'accuracy on held-out clients',
    'accuracy_with_oov': 'accuracy on held-out clients, words outside the vocabulary are errors',
    'loss': 'loss on held-out clients',
}
_MARKERS = 'os^vD*xPX<'
# With more lines, each has a colour of its own, and the legend is beside the axes.
_MANY_LINES = 10


def draw(study: definition.Study, runs: statistics.Runs) -> Figure:
    """Draws the first measure against the axis; without an axis, curves beside the first measure.

    Args:
      study: The study.
      runs: Its runs by the name of the point, in the order of the seeds.

    Returns:
      The figure; the caller saves it. Bars and bands are confidence intervals over the seeds.
    """
    if study.axis is not None:
        width = 9.5 if len(study.lines) > _MANY_LINES else 7
        figure = Figure(figsize=(width, 4.2), layout='constrained')
        _against_axis(figure.subplots(), study, runs)
    else:
        figure = Figure(figsize=(9.5, 4.2), layout='constrained')
        left, right = figure.subplots(1, 2, width_ratios=(1.5, 1))
        _curves(left, study, runs)
        _by_line(right, study, runs)
    figure.suptitle(study.title)
    return figure


def png(drawn: Figure) -> bytes:
    """A figure as PNG."""
    image = io.BytesIO()
    drawn.savefig(image, format='png', dpi=90)
    return image.getvalue()


def _against_axis(axes, study, runs) -> None:
    measure = study.measures[0]
    shown = {float(value) for value in study.axis.values}
    is_crowded = len(study.lines) > _MANY_LINES
    if is_crowded:
        axes.set_prop_cycle(color=[colormaps['tab20'](number) for number in range(20)])
    for line, marker in zip(study.lines, _markers(study), strict=True):
        x, intervals = [], []
        for value in study.axis.values:
            found = statistics.summary(runs[f'{line}/{value}'], measure)
            if found is not None:
                x.append(float(value))
                intervals.append(found)
        axes.errorbar(
            x,
            [each.mean for each in intervals],
            yerr=_bars(measure, intervals),
            marker=marker,
            markersize=4,
            capsize=3,
            linewidth=1.2,
            label=line,
        )
    axes.set(xlabel=study.axis.label, ylabel=_label(measure), xscale=study.axis.scale)
    axes.set_xticks(sorted(shown), [f'{value:g}' for value in sorted(shown)])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    beside = {'loc': 'center left', 'bbox_to_anchor': (1.0, 0.5)} if is_crowded else {}
    axes.legend(fontsize=8, **beside)


def _curves(axes, study, runs) -> None:
    first = study.measures[0]
    measure = first if first in measures.SMOOTHED else 'accuracy'
    for line in study.lines:
        curves = [run.curve for run in runs[line]]
        x = curves[0].rounds if study.curves == 'round' else _epsilons(curves)
        if x is None:
            continue
        heights = np.array([curve.smoothed(measure) for curve in curves])
        intervals = [statistics.interval(column) for column in heights.T]
        (drawn,) = axes.plot(x, [each.mean for each in intervals], linewidth=1.2, label=line)
        if len(curves) > 1:
            axes.fill_between(
                x,
                *np.clip([[each.low, each.high] for each in intervals], *_possible(measure)).T,
                color=drawn.get_color(),
                alpha=0.15,
                linewidth=0,
            )
    if study.threshold is not None and measure == 'accuracy':
        axes.axhline(study.threshold, linestyle='--', color='grey', linewidth=1)
    axes.set(xlabel=_LABELS[study.curves], ylabel=_LABELS[measure])
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)


def _epsilons(curves):
    """Epsilon at each evaluation, the same for all seeds; None without a guarantee."""
    epsilon = curves[0].epsilon
    return epsilon if np.isfinite(epsilon).all() else None


def _by_line(axes, study, runs) -> None:
    measure = study.measures[0]
    names = list(study.lines)
    for number, line in enumerate(names):
        found = statistics.summary(runs[line], measure)
        if found is None:
            continue
        values = [run.values[measure] for run in runs[line]]
        axes.plot(values, [number] * len(values), '.', color='grey', alpha=0.5, zorder=1)
        axes.errorbar(
            found.mean, number, xerr=_bars(measure, [found]), marker='o', markersize=4, capsize=3
        )
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlabel(_label(measure))
    axes.grid(alpha=0.3, axis='x')


def _possible(measure: str) -> tuple[float, float]:
    """The least and the largest value of a measure: Student's t does not know them."""
    if measure.startswith('accuracy'):
        return 0.0, 1.0
    return (0.0, math.inf) if measure in ('loss', 'epsilon') else (-math.inf, math.inf)


def _bars(measure: str, intervals: Sequence[statistics.Interval]) -> np.ndarray:
    """Lengths of error bars below and above the means, cut off at what is possible."""
    means = np.array([each.mean for each in intervals])
    half = np.array([each.half_width or 0.0 for each in intervals])
    ends = np.clip([means - half, means + half], *_possible(measure))
    return np.abs(ends - means)


def _markers(study) -> str:
    return (_MARKERS * (len(study.lines) // len(_MARKERS) + 1))[: len(study.lines)]


def _label(measure: str) -> str:
    return _LABELS.get(measure, measure.replace('_', ' '))
