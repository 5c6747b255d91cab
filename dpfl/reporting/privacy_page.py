"""The privacy report as a self-contained HTML page: its Markdown text and figures."""

import html
import math
from collections.abc import Iterator
from typing import Any

import markdown
import numpy as np
from matplotlib import figure, ticker

from dpfl import accounting
from dpfl.accounting import tradeoff
from dpfl.reporting import html_page

_POINTS = 40  # Points of a curve.
_COARSENESS = 64.0  # Of the grid of a loss distribution: a figure needs many, and few digits.


# The guarantee does not cover metrics of held-out clients: the page refers to the file in the
# directory of the run, and does not contain it.
_CURVES = (
    'Metrics of held-out clients by round, from {path} beside this page. They have no noise and '
    'are not covered by the guarantee, so this page does not contain them. For text, accuracy is '
    'over the words that the model knows; accuracy_with_oov in metrics.csv is over all words.'
)


def render(report: accounting.PrivacyReport, more: str = '', *, curves: str | None = None) -> str:
    """The page: the text of `report.render()`, then figures.

    Args:
      report: the report.
      more: Markdown text to put after that of the report.
      curves: path of the figure of its training, relative to the page; None to leave it out.
    """
    body = markdown.markdown(report.render() + more, extensions=['tables'])
    figures = ''.join(
        f'<figure>{html_page.svg(drawn)}<figcaption>{html.escape(caption)}</figcaption></figure>\n'
        for drawn, caption in _figures(report)
    )
    if curves is not None:
        name = html.escape(curves)
        figures += (
            f'<figure><img src="{name}" alt="Loss and accuracy by round: {name}">'
            f'<figcaption>{html.escape(_CURVES.format(path=curves))}</figcaption></figure>\n'
        )
    return html_page.document('Privacy report', f'{body}\n<h2>Figures</h2>\n{figures}')


def _figures(report: accounting.PrivacyReport) -> Iterator[tuple[figure.Figure, str]]:
    """The figures with their captions."""
    # A curve of estimates would take minutes for each point.
    is_estimate = report.plan.accountants == ('best',)
    if report.plan.noise_multiplier and not is_estimate:
        yield _epsilon_by_delta(report), 'Epsilon against delta, for the whole run.'
        yield (
            _epsilon_by_round(report),
            f'Epsilon of the plan for the rounds so far, at delta = {report.deltas[0]:g}.',
        )
    if report.tradeoff is not None:
        yield _tradeoff(report.tradeoff), 'What a membership test can reach.'
    if report.observed is not None:
        yield (
            _participations(report.observed),
            'Number of participations of the clients, from the participation log.',
        )


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


def _epsilon_by_round(report: accounting.PrivacyReport) -> figure.Figure:
    plan, method = report.plan, _curve_accountant(report)
    rounds = np.unique(np.linspace(1, plan.participation.rounds, _POINTS).astype(int))
    epsilons = []
    for t in rounds:
        so_far = plan.with_participation(plan.participation.within(int(t)))
        epsilons.append(so_far.bound(report.deltas[0], method, _COARSENESS).epsilon)
    drawn, axes = _axes('rounds', 'epsilon')
    axes.step(rounds, epsilons, where='post')
    axes.set_ylim(bottom=0)
    return drawn


def _tradeoff(found: tradeoff.Tradeoff) -> figure.Figure:
    false, true = (np.array(each) for each in zip(*found.points, strict=True))
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
    drawn = figure.Figure(figsize=(7, 3.6))
    # Fixed margins: to find the least ones takes longer than to draw the figure.
    drawn.subplots_adjust(left=0.13, right=0.98, bottom=0.15, top=0.93)
    axes = drawn.add_subplot(xlabel=x, ylabel=y)
    axes.grid(alpha=0.3)
    return drawn, axes
