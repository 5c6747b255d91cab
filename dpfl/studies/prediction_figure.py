"""The figure of predictions: an outcome of every point against what predicts it. No TensorFlow."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from dpfl.studies import definition, statistics
from dpfl.studies.prediction import Prediction

_MARKERS = 'os^vD*xPX<'


def draw(
    study: definition.Study,
    runs: statistics.Runs,
    predictions: Mapping[str | None, Sequence[Prediction]],
) -> Figure:
    """Draws the first outcome: a row for each value of the axis, a column for each predictor.

    Args:
      study: The study.
      runs: Its runs by the name of the point.
      predictions: From `prediction.by_value`, at least one.

    Returns:
      The figure; the caller saves it. Bars are confidence intervals over the seeds.
    """
    firsts = {value: found[0] for value, found in predictions.items()}
    predictors = list(next(iter(firsts.values())).r_squared)
    figure = Figure(figsize=(4.2 * len(predictors) + 2, 3.2 * len(firsts)), layout='constrained')
    grid = figure.subplots(len(firsts), len(predictors), squeeze=False, sharey='row')
    lines = {point.name: point.line for point in study.points}
    names = list(dict.fromkeys(lines[point] for each in firsts.values() for point in each.points))
    for row, (value, found) in zip(grid, firsts.items(), strict=True):
        for axes, predictor in zip(row, predictors, strict=True):
            for point in found.points:
                x, y = (statistics.summary(runs[point], n) for n in (predictor, found.outcome))
                assert x is not None and y is not None  # As `prediction.predict` has checked.
                number = names.index(lines[point])
                axes.errorbar(
                    x.mean,
                    y.mean,
                    yerr=y.half_width or 0,
                    color=f'C{number % 10}',
                    marker=_MARKERS[number % len(_MARKERS)],
                    markersize=5,
                    capsize=3,
                    linestyle='',
                    label=lines[point],
                )
            explained = f'R squared {found.r_squared[predictor].mean:.3g}'
            at = f'{study.axis.label} {value}: ' if study.axis is not None else ''
            axes.set_title(f'{at}{explained}', fontsize=9)
            axes.set(xscale='log', xlabel=predictor.replace('_', ' '))
            axes.minorticks_off()
            low, high = axes.dataLim.intervalx
            ticks = [low, (low * high) ** 0.5, high]
            axes.set_xticks(ticks, [f'{tick:.3g}' for tick in ticks])
            axes.grid(alpha=0.3)
        row[0].set_ylabel(found.outcome.replace('_', ' '))
    handles, labels = grid[0][-1].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=8, loc='outside right center')
    figure.suptitle(study.title)
    return figure
