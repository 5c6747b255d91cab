"""The privacy report as one HTML file: its Markdown page with figures, nothing loaded from afar."""

import html
import math

import markdown
import numpy as np
from matplotlib import figure, ticker

from dpfl import accounting
from dpfl.reporting import html_page

_POINTS = 40


def render(report: accounting.PrivacyReport, more: str = '') -> str:
    """The page: text of `report.render()`, figures where there is noise, and no outside parts.

    Args:
      report: the report.
      more: Markdown that follows its text.
    """
    body = markdown.markdown(report.render() + more, extensions=['tables'])
    figures = ''.join(
        f'<figure>{html_page.svg(drawn)}<figcaption>{html.escape(caption)}</figcaption></figure>\n'
        for drawn, caption in _figures(report)
    )
    return html_page.document('Privacy report', f'{body}\n<h2>Figures</h2>\n{figures}')


def _figures(report: accounting.PrivacyReport):
    """Pairs of figure and caption."""
    if report.plan.noise_multiplier:
        yield _epsilon_by_delta(report), 'Epsilon against delta, for the whole run.'
        yield (
            _epsilon_by_round(report),
            (f'Epsilon of the rounds so far, at delta = {report.deltas[0]:g}, by the plan.'),
        )
    if report.observed is not None:
        yield _participations(report), 'How often clients took part, by the participation log.'


def _curve_accountant(report) -> str:
    """The exact curve where there is one: a figure needs many values."""
    known = report.plan.accountants
    return 'analytic_gaussian' if 'analytic_gaussian' in known else 'rdp'


def _epsilon_by_delta(report):
    method = _curve_accountant(report)
    low = min(-12.0, math.log10(report.deltas[0]) - 1)
    deltas = np.logspace(low, -2, _POINTS)
    drawn, axes = _axes('delta', 'epsilon')
    epsilons = [report.plan.epsilon(delta, method) for delta in deltas]
    axes.semilogx(deltas, epsilons, label=f'plan ({method})')
    axes.plot(
        report.deltas, report.plan_guarantee.epsilons, 'o', label=f'reported ({report.accountant})'
    )
    if report.observed is not None:
        axes.plot(report.deltas, report.observed.guarantee.epsilons, 'x', label='observed limits')
    axes.legend()
    return drawn


def _epsilon_by_round(report):
    plan, method = report.plan, _curve_accountant(report)
    rounds = np.unique(np.linspace(1, plan.participation.rounds, _POINTS).astype(int))
    epsilons = []
    for t in rounds:
        so_far = plan.with_participation(plan.participation.within(int(t)))
        epsilons.append(so_far.epsilon(report.deltas[0], method))
    drawn, axes = _axes('rounds', 'epsilon')
    axes.step(rounds, epsilons, where='post')
    axes.set_ylim(bottom=0)
    return drawn


def _participations(report):
    times, clients = zip(*report.observed.clients_by_participations, strict=True)
    drawn, axes = _axes('rounds that a client took part in', 'clients')
    axes.bar(times, clients)
    axes.set_xlim(0, max(times) + 1)
    axes.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
    return drawn


def _axes(x: str, y: str):
    drawn = figure.Figure(figsize=(7, 3.6), layout='constrained')
    axes = drawn.add_subplot(xlabel=x, ylabel=y)
    axes.grid(alpha=0.3)
    return drawn, axes
