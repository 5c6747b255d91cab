"""The privacy report as a self-contained HTML page: its Markdown text and figures."""

import html
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import markdown
import numpy as np
from matplotlib import figure, ticker

from dpfl import accounting
from dpfl.accounting import tradeoff
from dpfl.accounting.reports import page
from dpfl.mechanisms import rounding
from dpfl.reporting import charts, html_parts

_POINTS = 40  # Points of a curve.
_SPACE = 1.1  # Height of a vertical axis, relative to the curves in it.
_COARSENESS = 64.0  # Of the grid of a loss distribution: a figure needs many, and few digits.
# CSS classes of the sections; all others are 'more', below the first screen.
_KINDS = {'Who took part': 'card', 'What was checked': 'card', 'Not covered': 'limits'}
_COURSE = 'Course'  # The figure beside the headline.
_LEFT, _RIGHT = charts.COLORS[:2]
# Metrics to draw beside epsilon: the first of these that was measured.
_MEASURES = ('accuracy', 'loss')
# Accuracies to compare with: key, label in the figure, place and side of the label.
_REFERENCES = (
    ('uniform_accuracy', 'guessing', 0.99, 'right'),
    ('unigram_accuracy', 'most frequent word', 0.99, 'right'),
    ('bigram_accuracy', 'from the word before', 0.01, 'left'),
)
# A page for everybody shows it only if the data were declared to be public.
_MEASURED = (
    '{measure} was measured on held-out clients without noise: the guarantee does not cover it.'
)
_STYLE = """
body { max-width: 72rem; margin-top: 1.2rem; }
main { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 1.1rem 2rem; }
main > * { grid-column: 1 / -1; min-width: 0; }
main > .opening:has(+ figure), main > .card, main > figure { grid-column: span 1; }
main > figure { margin: 0; align-self: center; }
header, figcaption, h1 small { color: var(--muted); }
header, figcaption, .limits ul { font-size: .87rem; }
h1 { font-size: 2.3rem; margin: 0 0 .8rem; }
h1 small { display: block; font-size: 1.1rem; font-weight: 400; margin-top: .3rem; }
h2 { font-size: 1.1rem; margin: 0 0 .4rem; border: 0; }
section p, section ul, section ol { margin: .4rem 0; }
section ul, section ol { padding-left: 1.2rem; }
.card { border: 1px solid var(--line); border-radius: .6rem; padding: .7rem 1rem; }
.limits { border-left: .3rem solid var(--unsure); padding-left: 1rem; }
.limits ul { columns: 2; column-gap: 2rem; }
.limits li { break-inside: avoid; }
.more { border-top: 1px solid var(--line); padding-top: .8rem; font-size: .95rem; }
.figures { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 1rem 2rem; }
.figures figure { margin: .6rem 0 0; }
.more:has(figure:only-child) { display: grid; gap: 0 2rem; grid-template-columns: 1fr 1fr; }
.more:has(figure:only-child) > * { grid-column: 1; }
.more:has(figure:only-child) > .figures { display: block; grid-area: 1 / 2 / span 9; }
@media screen and (max-width: 48rem) {
  main, .figures { grid-template-columns: minmax(0, 1fr); }
  .limits ul { columns: 1; }
  .more:has(figure:only-child) { display: block; }
}
@media print {
  @page { size: A4; margin: 12mm; }
  html { font-size: 8.5pt; }
  body { font-size: 1rem; line-height: 1.35; max-width: none; margin: 0; padding: 0; }
  main { gap: .8rem 1.5rem; }
  th, td { padding: .05rem .8rem; }
  h2 { break-after: avoid; }
  figure, tr { break-inside: avoid; }
}
"""


def render(
    report: accounting.PrivacyReport,
    more: str = '',
    *,
    rows: Sequence[Mapping[str, float]] = (),
    references: Mapping[str, float] | None = None,
) -> str:
    """The page: the first screen with the course of the run, then the other sections.

    Args:
      report: the report.
      more: Markdown text to put after the statement.
      rows: metrics of the rounds of its run, with `round`, as far as readers of the page may see
        them.
      references: accuracies to compare with, by name.
    """
    about = '' if report.about is None else f': {html.escape(report.about.line())}'
    value, where = map(html.escape, page.headline(report))
    head = f'<h1>{value} <small>{where}</small></h1>\n'.replace('epsilon', '&epsilon;')
    drawn: dict[str, str] = {}
    for title, curves, caption in _figures(report, rows, references or {}):
        drawn[title] = drawn.get(title, '') + html_parts.figure(curves, caption)
    parts = [
        f'<header><strong>Privacy report</strong>{about}</header>\n',
        _section('opening', head + _html(page.opening(report))),
        drawn.get(_COURSE, ''),
    ]
    if more:
        parts.append(_section('card', _html(more)))
    for title, text in page.sections(report):
        heading = f'<h2>{html.escape(title)}</h2>\n'
        figures = f'<div class="figures">{drawn[title]}</div>' if title in drawn else ''
        parts.append(_section(_KINDS.get(title, 'more'), heading + _html(text) + figures))
    return html_parts.document('Privacy report', f'<main>\n{"".join(parts)}</main>', _STYLE)


def _section(kind: str, content: str) -> str:
    return f'<section class="{kind}">\n{content}\n</section>\n'


def _html(text: str) -> str:
    return markdown.markdown(text, extensions=['tables'])


def _figures(
    report: accounting.PrivacyReport,
    rows: Sequence[Mapping[str, float]],
    references: Mapping[str, float],
) -> Iterator[tuple[str, figure.Figure, str]]:
    """The section that each figure is in, the figure and its caption."""
    # A curve of estimates would take minutes for each point.
    is_estimate = report.plan.accountants == ('best',)
    has_epsilon = bool(report.plan.noise_multiplier) and not is_estimate
    if has_epsilon or rows:
        yield _COURSE, *_course(report, rows, references, has_epsilon)
    if has_epsilon:
        yield 'Numbers', _epsilon_by_delta(report), 'Epsilon against delta, for the whole run.'
    if report.observed is not None:
        yield (
            'Numbers',
            _participations(report.observed),
            'Number of participations of the clients, from the participation log.',
        )
    if report.tradeoff is not None:
        caption = 'What a membership test can reach.'
        yield 'Membership tests', _tradeoff(report.tradeoff), caption


def _curve_accountant(report: accounting.PrivacyReport) -> str:
    """A fast accountant, since a figure needs many values: the exact curve if there is one."""
    known = report.plan.accountants
    return next(name for name in ('analytic_gaussian', 'rdp', 'pld') if name in known)


def _epsilon_by_delta(report: accounting.PrivacyReport) -> figure.Figure:
    method = _curve_accountant(report)
    low = min(-12.0, math.log10(report.deltas[0]) - 1)
    deltas = np.logspace(low, -2, _POINTS)
    drawn, axes = _axes('delta', 'epsilon')
    epsilons = [report.plan.bound(delta, method, _COARSENESS).epsilon for delta in deltas]
    axes.semilogx(deltas, epsilons, label=f'plan ({method})')
    axes.plot(
        report.deltas, report.plan_guarantee.epsilons, 'o', label=f'reported ({report.accountant})'
    )
    if report.observed_guarantee is not None:
        axes.plot(report.deltas, report.observed_guarantee.epsilons, 'x', label='observed limits')
    axes.legend()
    return drawn


def _course(
    report: accounting.PrivacyReport,
    rows: Sequence[Mapping[str, float]],
    references: Mapping[str, float],
    has_epsilon: bool,
) -> tuple[figure.Figure, str]:
    """Accuracy, or else the loss, and epsilon so far against rounds; and the caption."""
    drawn, axes = _axes('round', '')
    captions = []
    measure = next((name for name in _MEASURES if any(name in row for row in rows)), None)
    if measure is not None:
        measured = [(row['round'], row[measure]) for row in rows if measure in row]
        axes.plot(*zip(*measured, strict=True), color=_LEFT, label=measure)
        axes.set_ylabel(measure, color=_LEFT)
        if measure == 'accuracy':
            _compare(axes, references)
        axes.set_ylim(0, _SPACE * axes.get_ylim()[1])
        captions.append(_MEASURED.format(measure=measure.capitalize()))
    if has_epsilon:
        right = axes.twinx()
        drawn.subplots_adjust(right=0.88)
        spent = [(row['round'], row['epsilon']) for row in rows if 'epsilon' in row]
        right.plot(
            *zip(*(spent or _planned_epsilons(report)), strict=True), color=_RIGHT, label='epsilon'
        )
        right.set_xlabel('round')  # Of values under the pointer; it is where the other one is.
        right.set_ylabel('epsilon so far', color=_RIGHT)
        right.set_ylim(0, _SPACE * right.get_ylim()[1])
        captions.append(f'Epsilon so far at delta = {rounding.shown_delta(report.deltas[0])}.')
    return drawn, ' '.join(captions)


def _compare(axes: Any, references: Mapping[str, float]) -> None:
    """Draws accuracies to compare with."""
    for name, label, place, side in _REFERENCES:
        if name in references:
            axes.axhline(references[name], linestyle='--', color='gray', linewidth=1)
            axes.annotate(
                f'{label}: {references[name]:.3f}',
                (place, references[name]),
                xycoords=('axes fraction', 'data'),
                ha=side,
                va='bottom',
                bbox={'facecolor': 'white', 'edgecolor': 'none', 'alpha': 0.8, 'pad': 0.5},
            )


def _planned_epsilons(report: accounting.PrivacyReport) -> Iterator[tuple[int, float]]:
    """Rounds, and epsilon of the plan for the rounds so far."""
    plan, method = report.plan, _curve_accountant(report)
    for t in np.unique(np.linspace(1, plan.participation.rounds, _POINTS).astype(int)):
        so_far = plan.with_participation(plan.participation.within(int(t)))
        yield int(t), so_far.bound(report.deltas[0], method, _COARSENESS).epsilon


def _tradeoff(curve: tradeoff.Tradeoff) -> figure.Figure:
    false, true = (np.array(rates) for rates in zip(*curve.points, strict=True))
    drawn, axes = _axes('false positive rate', 'true positive rate')
    axes.loglog(false, true, 'o-', markersize=3, label='at most')
    axes.loglog(false, false, '--', color='gray', label='guessing')
    axes.set_ylim(top=1.5)
    axes.legend()
    return drawn


def _participations(observed: Any) -> figure.Figure:
    times, clients = zip(*observed.clients_by_participations, strict=True)
    drawn, axes = _axes('rounds that a client took part in', 'clients')
    axes.bar(times, clients)
    axes.set_xlim(0, max(times) + 1)
    axes.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
    return drawn


def _axes(x: str, y: str) -> tuple[figure.Figure, Any]:
    drawn = figure.Figure(figsize=(6.4, 3.3))
    # Fixed margins: to find the least ones takes longer than to draw the figure.
    drawn.subplots_adjust(left=0.13, right=0.98, bottom=0.15, top=0.95)
    axes = drawn.add_subplot(xlabel=x, ylabel=y)
    axes.grid(alpha=0.3)
    return drawn, axes
