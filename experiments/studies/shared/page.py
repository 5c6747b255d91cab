"""The page and the figures of a study."""

import dataclasses
import io
import json
import math
from collections.abc import Mapping, Sequence

import markdown
import numpy as np
from matplotlib.figure import Figure

from dpfl import accounting
from dpfl.reporting import charts, html_parts, plain_text
from experiments.studies.shared import grid
from experiments.studies.shared.results import (
    CONFIDENCE,
    SMOOTHED,
    TO_THRESHOLD,
    Interval,
    Orders,
    Prediction,
    Results,
    interval,
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
        body = body.replace(title, f'{title}\n<figure>{html_parts.svg(each)}</figure>', 1)
    found[HTML] = html_parts.document(results.study.title, body, _STYLE).encode()
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
    mean = results.mean(point.name, measure)
    if mean is None:
        return '-'
    if measure in _GUARANTEES:
        weakest = max(run.values[measure] or 0.0 for run in results.runs[point.name])
        return accounting.round_up(weakest)
    return str(mean)


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
    return plain_text.markdown(list(rows[0]), [list(row.values()) for row in rows])


def _words(name: str) -> str:
    return name.replace('_', ' ')


def draw(results: Results) -> Figure:
    """Draws the first measure against the axis; without an axis, curves beside the first measure.

    Bars and bands are confidence intervals over the seeds.
    """
    study = results.study
    if study.axis is not None:
        panels = [_against_axis(results, study.axis)]
    else:
        panels = [_curves(results), _by_line(results)]
    figure = charts.draw(panels, len(panels))
    figure.suptitle(study.title)
    return figure


def _line(name: str, number: int, measure: str, values: Mapping[float, Interval]) -> charts.Line:
    """Means with their intervals by their places on the horizontal axis."""
    means = [value.mean for value in values.values()]
    ends = [_ends(measure, value) for value in values.values()]
    # Two lines with one colour have different dashes.
    dash = number // len(charts.COLORS)
    return charts.Line(name, list(values), means, number, dash, ends=ends)


def _against_axis(results: Results, axis: grid.Axis) -> charts.Panel:
    study, measure = results.study, results.study.measures[0]
    lines = []
    for number, line in enumerate(study.lines):
        means = {float(each): results.mean(f'{line}/{each}', measure) for each in axis.values}
        known = {place: mean for place, mean in means.items() if mean is not None}
        lines.append(_line(line, number, measure, known))
    ticks = {place: f'{place:g}' for place in sorted(map(float, axis.values))}
    is_log = axis.scale == 'log'
    return charts.Panel('', axis.label, _label(measure), lines, x_log=is_log, x_ticks=ticks)


def _curves(results: Results) -> charts.Panel:
    study, first = results.study, results.study.measures[0]
    measure = first if first in SMOOTHED else 'accuracy'
    lines = []
    for number, line in enumerate(study.lines):
        curves = [run.curve for run in results.runs[line]]
        x = curves[0][study.curves]
        if not np.isfinite(x).all():  # Epsilon without a guarantee.
            continue
        columns = np.array([curve[measure] for curve in curves]).T
        means = dict(zip(x.tolist(), map(interval, columns), strict=True))
        lines.append(dataclasses.replace(_line(line, number, measure, means), is_band=True))
    if study.threshold is not None and measure == 'accuracy':
        ends = [min(line.x[0] for line in lines), max(line.x[-1] for line in lines)]
        lines.append(charts.Line('threshold', ends, [study.threshold] * 2, 7, 1))
    return charts.Panel('', _LABELS[study.curves], _LABELS[measure], lines)


def _by_line(results: Results) -> charts.Panel:
    measure, names = results.study.measures[0], list(results.study.lines)
    means = {number: results.mean(line, measure) for number, line in enumerate(names)}
    lines = [
        dataclasses.replace(_line(names[number], number, measure, {number: mean}), dash=None)
        for number, mean in means.items()
        if mean is not None
    ]
    ticks = {float(number): name for number, name in enumerate(names)}
    return charts.Panel('', '', _label(measure), lines, x_ticks=ticks)


def draw_predictions(results: Results) -> Figure:
    """Draws the first outcome: a row for each value of the axis, a column for each predictor.

    Bars are confidence intervals over the seeds.
    """
    study = results.study
    firsts = {value: found[0] for value, found in results.predictions.items()}
    lines = {point.name: point.line for point in study.points}
    names = list(dict.fromkeys(lines[point] for each in firsts.values() for point in each.points))
    panels = []
    for value, found in firsts.items():
        at = f'{study.axis.label} {value}: ' if study.axis is not None else ''
        for predictor, square in found.r_squared.items():
            drawn = []
            for point in found.points:
                x, y = results.mean(point, predictor), results.mean(point, found.outcome)
                assert x is not None and y is not None  # As `results.predict` has checked.
                number = names.index(lines[point])
                line = _line(lines[point], number, found.outcome, {x.mean: y})
                drawn.append(dataclasses.replace(line, dash=None))
            title = f'{at}R squared {square.mean:.3g}'
            labels = _words(predictor), _words(found.outcome)
            panels.append(charts.Panel(title, *labels, drawn, x_log=True))
    figure = charts.draw(panels, len(next(iter(firsts.values())).r_squared))
    figure.suptitle(study.title)
    return figure


def _possible(measure: str) -> tuple[float, float]:
    """The least and the largest value of a measure: Student's t does not know them."""
    if measure.startswith('accuracy'):
        return 0.0, 1.0
    return (0.0, math.inf) if measure in ('loss', 'epsilon') else (-math.inf, math.inf)


def _ends(measure: str, mean: Interval) -> tuple[float, float]:
    """Ends of an interval, cut off at what is possible; the mean itself for a single value."""
    half = mean.half_width or 0.0
    low, high = np.clip([mean.mean - half, mean.mean + half], *_possible(measure))
    return float(low), float(high)


def _label(measure: str) -> str:
    return _LABELS.get(measure, _words(measure))
