"""Scores of the canaries of a run, as a self-contained HTML page with histograms."""

import math

import markdown
import numpy as np
import scipy
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dpfl.accounting.measured.estimate import Estimate
from dpfl.accounting.measured.measured import Measured, Scores, audit_section, shown_number
from dpfl.reporting import charts, html_parts

_WITHOUT, _WITH, _CLAIM = charts.COLORS[0], charts.COLORS[1], charts.COLORS[4]
_BINS = 40
_CURVE_POINTS = 300


def render(scores: Scores, measured: Measured) -> str:
    """The page: the section of the report, then the scores of both attackers.

    Args:
      scores: of all canaries.
      measured: the estimates that follow from them.
    """
    text = markdown.markdown('# Audit\n\n' + audit_section(measured), extensions=['tables'])
    scale = math.sqrt(scores.dimension)
    parts = [
        (
            'Sees all releases',
            scale * scores.releases,
            measured.releases,
            measured.mu_of_canaries,
            'Scores against all releases of the run.'
            + (
                ' The dotted line is where they should be by the plan, if updates of clients '
                'cancelled each other.'
                if _is_number(measured.mu_of_canaries)
                else ''
            ),
        ),
        (
            'Sees the final model only',
            scale * scores.final_model,
            measured.final_model,
            None,
            'Scores against the change of the model over the run.',
        ),
    ]
    figures = ''.join(
        html_parts.figure(_histogram(title, scores.took_part, values, estimate, mu), caption)
        for title, values, estimate, mu, caption in parts
    )
    return html_parts.document('Audit', f'{text}\n<h2>Scores</h2>\n{figures}')


def _histogram(
    title: str, took_part: np.ndarray, values: np.ndarray, estimate: Estimate, mu: float | None
) -> Figure:
    drawn = Figure(figsize=(7, 3.6), layout='constrained')
    axes = drawn.add_subplot(
        title=f'{title}: epsilon about {shown_number(estimate.epsilon)}',
        xlabel='score: cosine in standard deviations of a random direction',
        ylabel='probability density, 1 / score',
    )
    low, high = min(-4.0, float(values.min())), max(4.0, float(values.max()))
    edges = np.linspace(low, high, _BINS + 1).tolist()
    names = (f'{estimate.unobserved} without the canary', f'{estimate.observed} with it')
    for is_in, color, name in zip((False, True), (_WITHOUT, _WITH), names, strict=True):
        chosen = values[took_part == is_in]
        axes.hist(chosen, edges, density=True, color=color, alpha=0.35, label=name)
    points = np.linspace(low, high, _CURVE_POINTS)
    axes.plot(points, scipy.stats.norm.pdf(points), color=_WITHOUT, label='N(0, 1)')
    _fitted(axes, points, estimate)
    if mu is not None and _is_number(mu):
        axes.axvline(mu, color=_CLAIM, linestyle=':', label='plan: mean with it')
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    return drawn


def _fitted(axes: Axes, points: np.ndarray, estimate: Estimate) -> None:
    deviation = 1.0 if estimate.has_null_spread else estimate.deviation
    if deviation <= 0:
        return
    curve = scipy.stats.norm.pdf(points, estimate.mean, deviation)
    name = f'N({estimate.mean:.2f}, {deviation:.3g}²)'
    axes.plot(points, curve, color=_WITH, linestyle='--', label=name)


def _is_number(value: float | None) -> bool:
    return value is not None and math.isfinite(value)
