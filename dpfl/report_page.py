"""The privacy report as one HTML file: its Markdown page with figures, nothing loaded from afar."""

import html
import io
import math

import markdown
import matplotlib
import numpy as np
from matplotlib import figure, ticker

from dpfl import accounting

_POINTS = 40
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 52rem; margin: 2rem auto; padding: 0 1rem;
  color: #1a1a1a; background: #ffffff; }
h1, h2 { line-height: 1.2; }
h2 { margin-top: 2.2rem; border-bottom: 1px solid #d0d0d0; }
table { border-collapse: collapse; }
th, td { padding: .25rem .8rem; border-bottom: 1px solid #d0d0d0; text-align: right; }
th:first-child, td:first-child { text-align: left; }
li { overflow-wrap: anywhere; }
figure { margin: 1.5rem 0; }
svg { max-width: 100%; height: auto; }
"""


def render(report: accounting.PrivacyReport) -> str:
    """The page: text of `report.render()`, figures where there is noise, and no outside parts."""
    body = markdown.markdown(report.render(), extensions=['tables'])
    figures = ''.join(
        f'<figure>{_svg(drawn)}<figcaption>{html.escape(caption)}</figcaption></figure>\n'
        for drawn, caption in _figures(report)
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<title>Privacy report</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n{body}\n'
        f'<h2>Figures</h2>\n{figures}</body>\n</html>\n'
    )


def _figures(report: accounting.PrivacyReport):
    """Pairs of figure and caption."""
    if report.plan.noise_multiplier:
        yield _epsilon_by_delta(report), 'Epsilon against delta, for the whole run.'
        yield _epsilon_by_round(report), (
            f'Epsilon of the rounds so far, at delta = {report.deltas[0]:g}, by the plan.'
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
    axes.plot(report.deltas, report.plan_guarantee.epsilons, 'o',
              label=f'reported ({report.accountant})')
    if report.observed is not None:
        axes.plot(report.deltas, report.observed.guarantee.epsilons, 'x', label='observed limits')
    axes.legend()
    return drawn


def _epsilon_by_round(report):
    plan, method = report.plan, _curve_accountant(report)
    rounds = np.unique(np.linspace(1, plan.participation.rounds, _POINTS).astype(int))
    epsilons = []
    for t in rounds:
        so_far = plan.over(plan.participation.within(int(t)))
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


def _svg(drawn) -> str:
    """The figure as an SVG element that is the same for the same figure."""
    text = io.StringIO()
    with matplotlib.rc_context({'svg.hashsalt': 'dpfl'}):
        drawn.savefig(text, format='svg', metadata={'Date': None})
    return text.getvalue().partition('?>')[2].partition('>')[2].strip()
