"""The results of a study as Markdown, as an HTML page and as JSON values. No TensorFlow."""

import base64
import html
import math
from collections.abc import Mapping, Sequence
from typing import Any

import markdown

from dpfl import accounting
from dpfl.reporting import html_page
from dpfl.studies import definition, jobs, measures, prediction, statistics

_STYLE = 'table { display: block; overflow-x: auto; }\n'
_ROUNDED_UP = ('epsilon', 'rho')
# A relative half-width below this is rounding: all runs have the same value.
_ROUNDING = 1e-9
_PREDICTIONS = (
    'For each seed, a straight line over the points in the logarithm of the predictor: its R '
    "squared, and Spearman's rank correlation; means over the seeds."
)


def rows(study: definition.Study, runs: statistics.Runs) -> list[dict[str, str]]:
    """A row for each point: mean over the seeds and half-width of its interval, as text."""
    table = []
    for point in study.points:
        row = {'point': point.name}
        for measure in study.measures:
            row[measure.replace('_', ' ')] = _cell(measure, runs[point.name])
        table.append(row)
    return table


def _cell(measure: str, runs: Sequence[measures.Run]) -> str:
    found = statistics.summary(runs, measure)
    if found is None:
        return '-'
    if measure in _ROUNDED_UP:  # The weakest guarantee.
        values = (run.values[measure] for run in runs)
        return accounting.round_up(max(value for value in values if value is not None))
    return _shown(found)


def _shown(found: statistics.Interval) -> str:
    """Mean and half-width, the half-width with two digits."""
    text_ = f'{found.mean:.4g}'
    if found.half_width and found.half_width > _ROUNDING * abs(found.mean):
        digits = max(0, 1 - math.floor(math.log10(found.half_width)))
        text_ = f'{found.mean:.{digits}f} ± {found.half_width:.{digits}f}'
    return f'>= {text_}' if found.is_bound else text_


def text(
    study: definition.Study,
    runs: statistics.Runs,
    findings: Sequence[statistics.Finding],
    orders: Mapping[str | None, statistics.Orders],
    predictions: Mapping[str | None, Sequence[prediction.Prediction]],
    seeds: Sequence[int],
    command: str,
) -> str:
    """The study in Markdown.

    Args:
      study: The study.
      runs: Its runs by the name of the point, in the order of the seeds.
      findings: Results of its claims.
      orders: Rankings of the points by several measures, see `statistics.orders_by_value`.
      predictions: How well measures predict others, see `prediction.by_value`.
      seeds: Seeds of the runs.
      command: Command that repeats the study.
    """
    table = rows(study, runs)
    parts = [
        f'# {study.title}',
        study.about,
        f'This study copies {study.mirrors} at a small scale.',
        '## Results',
        _table(table),
        f'{len(seeds)} seeds ({", ".join(map(str, seeds))}); ± is the half-width of the '
        f"{statistics.CONFIDENCE:.0%} confidence interval of the mean over the seeds, by Student's "
        't. The seed determines language, clients, cohorts, initial model and noise. All points of '
        'a seed share its language, which causes part of the spread; this is why points are '
        f'compared pair by pair below.{_smoothing(study)}{_thresholds(study, runs)}',
    ]
    if findings:
        parts += ['## Claims', _table([_claim(finding) for finding in findings])]
    if orders:
        parts.append('## Orders')
    for value, each in orders.items():
        if value is not None and study.axis is not None:
            parts.append(f'### {study.axis.label} {value}')
        parts += _orders(each)
    if predictions:
        parts += ['## Predictions', _PREDICTIONS]
    for value, found in predictions.items():
        if value is not None and study.axis is not None:
            parts.append(f'### {study.axis.label} {value}')
        parts += [_prediction(each) for each in found]
    parts += ['## How it was made', f'    {command}', _made(study, seeds), _run_links(study, seeds)]
    return '\n\n'.join(parts) + '\n'


def _claim(finding: statistics.Finding) -> dict[str, str]:
    claim, difference = finding.claim, finding.difference
    shown = '-' if difference is None else _shown(difference)
    return {
        'claim': claim.text,
        'measure': claim.measure.replace('_', ' '),
        'compared': f'{claim.higher} minus {claim.lower}',
        'difference': shown,
        'claimed': f'> {claim.by:g}',
        'verdict': finding.verdict,
    }


def _orders(orders: statistics.Orders) -> list[str]:
    table = [
        {'measure': name.replace('_', ' '), 'best to worst': ', '.join(points)}
        for name, points in orders.by_measure.items()
    ]
    first = next(iter(orders.by_measure)).replace('_', ' ')
    verdict = 'The orders agree.' if orders.agree else 'The orders do not agree.'
    if orders.unsettled:
        pairs = '; '.join(f'{better} and {worse}' for better, worse in orders.unsettled)
        verdict += f' Pairs whose {first} does not differ clearly, seed by seed: {pairs}.'
        agree = 'agree' if orders.agree_where_settled else 'do not agree'
        verdict += f' On all other pairs the orders {agree}.'
    return [_table(table), verdict]


def _prediction(found: prediction.Prediction) -> str:
    outcome = found.outcome.replace('_', ' ')
    table = [
        {
            f'{outcome} predicted by': name.replace('_', ' '),
            'R squared': _shown(square),
            'rank correlation': _shown(found.rank_correlation[name]),
        }
        for name, square in found.r_squared.items()
    ]
    verdict = f'{len(found.points)} points.'
    if found.difference is not None:
        first, second = found.r_squared
        better = 'not settled' if found.better is None else found.better.replace('_', ' ')
        verdict += (
            f' R squared of {first.replace("_", " ")} minus that of {second.replace("_", " ")}, '
            f'seed by seed: {_shown(found.difference)}. Predicts better: {better}.'
        )
    return f'{_table(table)}\n\n{verdict}'


def _smoothing(study) -> str:
    if study.smooth == 1:
        return ''
    return f' Accuracy and loss are means of the last {study.smooth} evaluations.'


def _thresholds(study, runs) -> str:
    if study.threshold is None:
        return ''
    missed = [
        f'{sum("rounds_to_threshold" in run.is_bound for run in each)} of {len(each)} runs of '
        f'{point}'
        for point, each in runs.items()
        if any('rounds_to_threshold' in r.is_bound for r in each)
    ]
    text = f' The threshold is an accuracy of {study.threshold:g}.'
    if missed:
        text += f' Not reached by {", ".join(missed)}; these count as one round more than the run.'
    return text


def _made(study, seeds) -> str:
    tuned = (
        f'The flags were chosen on other seeds ({", ".join(map(str, study.tuned_on))}). '
        if study.tuned_on
        else ''
    )
    return (
        f'{tuned}The noise of every run comes from its seed, so the study can be repeated bit for '
        'bit. Therefore the runs are simulations and protect nobody. Each run has its own '
        'directory with its privacy report:'
    )


def _run_links(study: definition.Study, seeds: Sequence[int]) -> str:
    """A table with links to the reports of all runs, relative to the page of the study."""
    return _table(
        [
            {
                'point': point.name,
                'runs': ' '.join(
                    f'[seed {seed}]({jobs.run_name(point.name, seed)}/privacy_report.html)'
                    for seed in seeds
                ),
            }
            for point in study.points
        ]
    )


def _table(table: Sequence[Mapping[str, str]]) -> str:
    names = list(table[0])
    lines = [names, ['---'] * len(names), *([row[name] for name in names] for row in table)]
    return '\n'.join('| ' + ' | '.join(line) + ' |' for line in lines)


def render(title: str, text_: str, figure: bytes, predictions: bytes | None = None) -> str:
    """The HTML page, one file with the text and the figures.

    Args:
      title: Title of the page.
      text_: The study in Markdown.
      figure: PNG that is shown above the results.
      predictions: PNG that is shown above the predictions; None for none.
    """
    body = markdown.markdown(text_, extensions=['tables'])
    for heading, image in (('Results', figure), ('Predictions', predictions)):
        if image is None:
            continue
        data = base64.b64encode(image).decode()
        shown = f'<p><img alt="{html.escape(title)}" src="data:image/png;base64,{data}"></p>\n'
        head, found, rest = body.partition(f'<h2>{heading}</h2>')
        body = f'{head}{found}\n{shown}{rest}'
    return html_page.document(title, body, _STYLE)


def values(
    study: definition.Study,
    runs: statistics.Runs,
    findings: Sequence[statistics.Finding],
    orders: Mapping[str | None, statistics.Orders],
    predictions: Mapping[str | None, Sequence[prediction.Prediction]],
    seeds: Sequence[int],
) -> dict[str, Any]:
    """The study as JSON values: measures of each run, their summaries, claims and rankings."""
    return {
        'study': study.name,
        'title': study.title,
        'mirrors': study.mirrors,
        'seeds': list(seeds),
        'tuned_on': list(study.tuned_on),
        'confidence': statistics.CONFIDENCE,
        'points': [
            {
                'point': point.name,
                'line': point.line,
                'value': None if point.value is None else float(point.value),
                'flags': dict(point.flags),
                'measures': {
                    name: _interval(statistics.summary(runs[point.name], name))
                    for name in runs[point.name][0].values
                },
                'runs': [
                    {'seed': seed, **run.values, 'lower_bounds': sorted(run.is_bound)}
                    for seed, run in zip(seeds, runs[point.name], strict=True)
                ],
            }
            for point in study.points
        ],
        'claims': [
            {
                'claim': each.claim.text,
                'measure': each.claim.measure,
                'higher': each.claim.higher,
                'lower': each.claim.lower,
                'by': each.claim.by,
                'difference': _interval(each.difference),
                'verdict': each.verdict,
            }
            for each in findings
        ],
        'orders': _order_values(orders),
        'predictions': _prediction_values(predictions),
    }


def _prediction_values(
    predictions: Mapping[str | None, Sequence[prediction.Prediction]],
) -> dict[str, Any] | None:
    """The predictions by the value of the axis, '' without one; None without predictions."""
    return {
        value or '': {
            each.outcome: {
                'points': list(each.points),
                'r_squared': {name: _interval(found) for name, found in each.r_squared.items()},
                'rank_correlation': {
                    name: _interval(found) for name, found in each.rank_correlation.items()
                },
                'difference': _interval(each.difference),
                'better': each.better,
            }
            for each in found
        }
        for value, found in predictions.items()
    } or None


def _order_values(orders: Mapping[str | None, statistics.Orders]) -> dict[str, Any] | None:
    """The orders, by the value of the axis if there is one; None without orders."""
    values = {
        value: {
            'best_to_worst': {name: list(points) for name, points in each.by_measure.items()},
            'agree': each.agree,
            'not_told_apart': [list(pair) for pair in each.unsettled],
            'agree_on_others': each.agree_where_settled,
            'smaller_is_better': [
                name for name in each.by_measure if name in measures.SMALLER_IS_BETTER
            ],
        }
        for value, each in orders.items()
    }
    if None in values:
        return values[None]
    return {str(value): each for value, each in values.items()} or None


def _interval(found: statistics.Interval | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        'mean': found.mean,
        'half_width': found.half_width,
        'count': found.count,
        'is_lower_bound': found.is_bound,
    }
