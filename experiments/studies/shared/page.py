"""The page and the figures of a study."""

import io
import json
import math
from collections.abc import Mapping, Sequence

import markdown
import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dpfl import accounting
from dpfl.reporting import html_page
from experiments.studies.shared import grid
from experiments.studies.shared.intervals import CONFIDENCE, Interval, interval
from experiments.studies.shared.results import (
    SMOOTHED,
    TO_THRESHOLD,
    Orders,
    Prediction,
    Results,
    summary,
)

HTML = 'study.html'
_STYLE = 'table { display: block; overflow-x: auto; }\n'
# Shown as the largest over the seeds, rounded up: the weakest guarantee.
_GUARANTEES = ('epsilon', 'rho')
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
_PREDICTIONS = (
    'For each seed, a straight line over the points in the logarithm of the predictor: its R '
    "squared, and Spearman's rank correlation; means over the seeds."
)


def run_name(point: str, seed: int) -> str:
    """Name of a run, which is its path within the directory of the study."""
    return f'runs/{point.replace(" ", "_")}/seed_{seed}'


def files(results: Results, text: str) -> dict[str, bytes]:
    """The files of a study by name, with its text from `text`."""
    figure = draw(results)
    figures = {'Results': figure}
    found = {
        'results.json': json.dumps(results.values(), indent=1, allow_nan=False).encode(),
        'study.md': text.encode(),
        'study.png': _png(figure),
    }
    if results.predictions:
        figures['Predictions'] = draw_predictions(results)
        found['prediction.png'] = _png(figures['Predictions'])
    body = markdown.markdown(text, extensions=['tables'])
    for heading, each in figures.items():
        title = f'<h2>{heading}</h2>'
        body = body.replace(title, f'{title}\n<figure>{html_page.svg(each)}</figure>', 1)
    found[HTML] = html_page.document(results.study.title, body, _STYLE).encode()
    return found


def _png(figure: Figure) -> bytes:
    image = io.BytesIO()
    figure.savefig(image, format='png', dpi=90)
    return image.getvalue()


def text(results: Results, command: str) -> str:
    """The study in Markdown, with the command that repeats it."""
    study, seeds = results.study, results.seeds
    parts = [
        f'# {study.title}',
        study.about,
        f'This study copies {study.mirrors} at a small scale.',
        '## Results',
        table(rows(results)),
        f'{len(seeds)} seeds ({", ".join(map(str, seeds))}); ± is the half-width of the '
        f"{CONFIDENCE:.0%} confidence interval of the mean over the seeds, by Student's t. The "
        'seed determines language, clients, cohorts, initial model and noise. All points of a '
        'seed share its language, which causes part of the spread; this is why points are '
        f'compared pair by pair below.{_notes(results)}',
    ]
    if results.findings:
        claims = [
            {
                'claim': each.claim.text,
                'measure': _words(each.claim.measure),
                'compared': f'{each.claim.higher} minus {each.claim.lower}',
                'difference': str(each.difference or '-'),
                'claimed': f'> {each.claim.by:g}',
                'verdict': each.verdict,
            }
            for each in results.findings
        ]
        parts += ['## Claims', table(claims)]
    if results.orders:
        parts.append('## Orders')
    for value, orders in results.orders.items():
        parts += [*_heading(study, value), *_orders(orders)]
    if results.predictions:
        parts += ['## Predictions', _PREDICTIONS]
    for value, found in results.predictions.items():
        parts += [*_heading(study, value), *map(_prediction, found)]
    parts += ['## How it was made', f'    {command}', _made(study), table(_links(results))]
    return '\n\n'.join(parts) + '\n'


def rows(results: Results) -> list[dict[str, str]]:
    """A row for each point: mean over the seeds and half-width of its interval, as text."""
    return [
        {
            'point': point.name,
            **{_words(name): _cell(results, point, name) for name in results.study.measures},
        }
        for point in results.study.points
    ]


def _cell(results: Results, point: grid.Point, measure: str) -> str:
    runs = results.runs[point.name]
    found = summary(runs, measure)
    if found is None:
        return '-'
    if measure in _GUARANTEES:
        return accounting.round_up(max(run.values[measure] or 0.0 for run in runs))
    return str(found)


def _notes(results: Results) -> str:
    study, found = results.study, ''
    if study.smooth > 1:
        found += f' Accuracy and loss are means of the last {study.smooth} evaluations.'
    if study.threshold is not None:
        found += f' The threshold is an accuracy of {study.threshold:g}.'
        counts = {
            point: sum(TO_THRESHOLD in run.is_bound for run in runs)
            for point, runs in results.runs.items()
        }
        missed = [f'{count} of the runs of {point}' for point, count in counts.items() if count]
        if missed:
            found += (
                f' Not reached by {", ".join(missed)}; these count one round more than the run.'
            )
    return found


def _heading(study: grid.Study, value: str | None) -> list[str]:
    return [] if study.axis is None else [f'### {study.axis.label} {value}']


def _orders(orders: Orders) -> list[str]:
    first = _words(next(iter(orders.best_to_worst)))
    verdict = 'The orders agree.' if orders.agree else 'The orders do not agree.'
    if orders.not_told_apart:
        pairs = '; '.join(f'{better} and {worse}' for better, worse in orders.not_told_apart)
        verdict += f' Pairs whose {first} does not differ clearly, seed by seed: {pairs}.'
        agree = 'agree' if orders.agree_on_others else 'do not agree'
        verdict += f' On all other pairs the orders {agree}.'
    lines = [
        {'measure': _words(name), 'best to worst': ', '.join(points)}
        for name, points in orders.best_to_worst.items()
    ]
    return [table(lines), verdict]


def _prediction(found: Prediction) -> str:
    lines = [
        {
            f'{_words(found.outcome)} predicted by': _words(name),
            'R squared': str(square),
            'rank correlation': str(found.rank_correlation[name]),
        }
        for name, square in found.r_squared.items()
    ]
    verdict = f'{len(found.points)} points.'
    if found.difference is not None:
        first, second = map(_words, found.r_squared)
        better = 'not settled' if found.better is None else _words(found.better)
        verdict += (
            f' R squared of {first} minus that of {second}, seed by seed: {found.difference}. '
            f'Predicts better: {better}.'
        )
    return f'{table(lines)}\n\n{verdict}'


def _made(study: grid.Study) -> str:
    seeds = ', '.join(map(str, study.tuned_on))
    tuned = f'The flags were chosen on other seeds ({seeds}). ' if seeds else ''
    return (
        f'{tuned}The noise of every run comes from its seed, so the study can be repeated bit for '
        'bit. Therefore the runs are simulations and protect nobody. Each run has its own '
        'directory with its privacy report:'
    )


def _links(results: Results) -> list[dict[str, str]]:
    return [
        {
            'point': point.name,
            'runs': ' '.join(
                f'[seed {seed}]({run_name(point.name, seed)}/privacy_report.html)'
                for seed in results.seeds
            ),
        }
        for point in results.study.points
    ]


def table(rows: Sequence[Mapping[str, str]]) -> str:
    """A table in Markdown; the first row has the names of the columns."""
    names = list(rows[0])
    lines = [names, ['---'] * len(names), *([row[name] for name in names] for row in rows)]
    return '\n'.join('| ' + ' | '.join(line) + ' |' for line in lines)


def _words(name: str) -> str:
    return name.replace('_', ' ')


def draw(results: Results) -> Figure:
    """Draws the first measure against the axis; without an axis, curves beside the first measure.

    Bars and bands are confidence intervals over the seeds.
    """
    study = results.study
    if study.axis is not None:
        width = 9.5 if len(study.lines) > _MANY_LINES else 7
        figure = Figure(figsize=(width, 4.2), layout='constrained')
        _against_axis(figure.subplots(), results, study.axis)
    else:
        figure = Figure(figsize=(9.5, 4.2), layout='constrained')
        left, right = figure.subplots(1, 2, width_ratios=(1.5, 1))
        _curves(left, results)
        _by_line(right, results)
    figure.suptitle(study.title)
    return figure


def _against_axis(axes: Axes, results: Results, axis: grid.Axis) -> None:
    study, measure = results.study, results.study.measures[0]
    is_crowded = len(study.lines) > _MANY_LINES
    if is_crowded:
        axes.set_prop_cycle(color=[colormaps['tab20'](number) for number in range(20)])
    for number, line in enumerate(study.lines):
        found = {
            float(value): each
            for value in axis.values
            if (each := summary(results.runs[f'{line}/{value}'], measure)) is not None
        }
        axes.errorbar(
            list(found),
            [each.mean for each in found.values()],
            yerr=_bars(measure, list(found.values())),
            marker=_MARKERS[number % len(_MARKERS)],
            markersize=4,
            capsize=3,
            linewidth=1.2,
            label=line,
        )
    axes.set(xlabel=axis.label, ylabel=_label(measure), xscale=axis.scale)
    ticks = sorted(map(float, axis.values))
    axes.set_xticks(ticks, [f'{value:g}' for value in ticks])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    if is_crowded:
        axes.legend(fontsize=8, loc='center left', bbox_to_anchor=(1.0, 0.5))
    else:
        axes.legend(fontsize=8)


def _curves(axes: Axes, results: Results) -> None:
    study, first = results.study, results.study.measures[0]
    measure = first if first in SMOOTHED else 'accuracy'
    for line in study.lines:
        curves = [run.curve for run in results.runs[line]]
        x = curves[0][study.curves]
        if not np.isfinite(x).all():  # Epsilon without a guarantee.
            continue
        heights = np.array([curve[measure] for curve in curves])
        intervals = [interval(column) for column in heights.T]
        (drawn,) = axes.plot(x, [each.mean for each in intervals], linewidth=1.2, label=line)
        if len(curves) > 1:
            low, high = np.clip([[i.low, i.high] for i in intervals], *_possible(measure)).T
            axes.fill_between(x, low, high, color=drawn.get_color(), alpha=0.15, linewidth=0)
    if study.threshold is not None and measure == 'accuracy':
        axes.axhline(study.threshold, linestyle='--', color='grey', linewidth=1)
    axes.set(xlabel=_LABELS[study.curves], ylabel=_LABELS[measure])
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)


def _by_line(axes: Axes, results: Results) -> None:
    measure, names = results.study.measures[0], list(results.study.lines)
    for number, line in enumerate(names):
        found = summary(results.runs[line], measure)
        if found is None:
            continue
        known = (run.values[measure] for run in results.runs[line])
        values = [value for value in known if value is not None]
        axes.plot(values, [number] * len(values), '.', color='grey', alpha=0.5, zorder=1)
        bars = _bars(measure, [found])
        axes.errorbar(found.mean, number, xerr=bars, marker='o', markersize=4, capsize=3)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlabel(_label(measure))
    axes.grid(alpha=0.3, axis='x')


def draw_predictions(results: Results) -> Figure:
    """Draws the first outcome: a row for each value of the axis, a column for each predictor.

    Bars are confidence intervals over the seeds.
    """
    study = results.study
    firsts = {value: found[0] for value, found in results.predictions.items()}
    predictors = list(next(iter(firsts.values())).r_squared)
    figure = Figure(figsize=(4.2 * len(predictors) + 2, 3.2 * len(firsts)), layout='constrained')
    panels = figure.subplots(len(firsts), len(predictors), squeeze=False, sharey='row')
    lines = {point.name: point.line for point in study.points}
    names = list(dict.fromkeys(lines[point] for each in firsts.values() for point in each.points))
    for row, (value, found) in zip(panels, firsts.items(), strict=True):
        for axes, predictor in zip(row, predictors, strict=True):
            for point in found.points:
                runs = results.runs[point]
                x, y = summary(runs, predictor), summary(runs, found.outcome)
                assert x is not None and y is not None  # As `results.predict` has checked.
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
            at = f'{study.axis.label} {value}: ' if study.axis is not None else ''
            axes.set_title(f'{at}R squared {found.r_squared[predictor].mean:.3g}', fontsize=9)
            axes.set(xscale='log', xlabel=_words(predictor))
            axes.minorticks_off()
            low, high = axes.dataLim.intervalx
            ticks = [low, (low * high) ** 0.5, high]
            axes.set_xticks(ticks, [f'{tick:.3g}' for tick in ticks])
            axes.grid(alpha=0.3)
        row[0].set_ylabel(_words(found.outcome))
    handles, labels = panels[0][-1].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=8, loc='outside right center')
    figure.suptitle(study.title)
    return figure


def _possible(measure: str) -> tuple[float, float]:
    """The least and the largest value of a measure: Student's t does not know them."""
    if measure.startswith('accuracy'):
        return 0.0, 1.0
    return (0.0, math.inf) if measure in ('loss', 'epsilon') else (-math.inf, math.inf)


def _bars(measure: str, intervals: Sequence[Interval]) -> np.ndarray:
    """Lengths of error bars below and above the means, cut off at what is possible."""
    means = np.array([each.mean for each in intervals])
    half = np.array([each.half_width or 0.0 for each in intervals])
    ends = np.clip([means - half, means + half], *_possible(measure))
    return np.abs(ends - means)


def _label(measure: str) -> str:
    return _LABELS.get(measure, _words(measure))
