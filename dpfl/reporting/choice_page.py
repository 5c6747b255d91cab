"""The page on which `mechanism='auto'` explains its choice: a figure and a table."""

import html
from collections.abc import Sequence

from matplotlib.figure import Figure

from dpfl import mechanisms
from dpfl.participation import Participation
from dpfl.reporting import charts, html_parts

_LEFT, _TAKEN, _BOUND = charts.COLORS[:3]
_CLOSER = '#666666'
_HEADS = (
    'mechanism',
    'max loss',
    'above the bound',
    'if clients come twice as often',
    'copies of the model',
    'GB',
    'draws per round',
    'verdict',
)
_READING = (
    'Max loss is the noise of the worst prefix sum at equal privacy, in clip norms: at the same '
    'epsilon, a mechanism with less loss trains on less noise. The bound is what no mechanism can '
    'be below for this schema. If clients come back after half of the separation, twice as often, '
    'the sensitivity grows, and with it the loss; a mechanism that gains much from the schema also '
    'loses more when the schema is wrong. Copies and gigabytes are what the noise of past rounds '
    'takes; draws are rows of independent noise in each round, and cost time.'
)


def render(candidates: Sequence[mechanisms.Candidate], participation: Participation) -> str:
    """The page for the candidates of `mechanisms.choose`, the chosen one first."""
    schema = (
        f'{participation.rounds:,} rounds; a client takes part at most {participation.count:,} '
        f'times, at least {participation.min_separation:,} rounds apart.'
    )
    body = [
        '<h1>Choice of the mechanism</h1>',
        f'<p>{html.escape(schema)} Taken: <strong>{html.escape(candidates[0].name)}</strong>.</p>',
        html_parts.figure(draw(candidates), 'Max loss of the candidates.'),
        html_parts.table(_HEADS, map(_row, candidates)),
        f'<p>{html.escape(_READING)}</p>',
    ]
    return html_parts.document('Choice of the mechanism', '\n'.join(body))


def draw(candidates: Sequence[mechanisms.Candidate]) -> Figure:
    """Losses of the candidates that were made, the least at the top, and the lower bound."""
    made = [
        (candidate, candidate.loss, candidate.loss_if_closer)
        for candidate in candidates
        if candidate.loss is not None and candidate.loss_if_closer is not None
    ]
    figure = Figure(figsize=(8, 1.2 + 0.42 * len(made)), layout='constrained')
    axes = figure.subplots()
    for place, (_, loss, closer) in enumerate(made):
        color = _LEFT if place else _TAKEN
        axes.plot([closer], [place], 'o', color=_CLOSER, fillstyle='none', markersize=6)
        axes.plot([loss], [place], 'o', color=color, markersize=8)
        axes.annotate(
            f'{loss:.4g}',
            (loss, place),
            (0, 7),
            textcoords='offset points',
            fontsize=8,
            ha='center',
        )
    first, least, _ = made[0]
    if first.above_bound is not None:
        bound = least / (1 + first.above_bound)
        axes.axvline(bound, color=_BOUND, linestyle='--')
        axes.annotate(
            f'no mechanism below {bound:.4g}',
            (bound, len(made) - 0.6),
            (4, 0),
            textcoords='offset points',
            fontsize=8,
            color=_BOUND,
        )
    axes.set_xlabel('max loss (hollow: if clients come back twice as often)')
    charts.logarithmic(axes, 'x')
    axes.set_yticks(range(len(made)), [_label(candidate) for candidate, _, _ in made])
    axes.set_ylim(len(made) - 0.3, -0.8)
    axes.grid(axis='x', alpha=0.3)
    return figure


def _label(candidate: mechanisms.Candidate) -> str:
    copies = f'{candidate.buffers:,} {"copy" if candidate.buffers == 1 else "copies"}'
    draws = f', {candidate.draws} draws' if candidate.draws and candidate.draws > 1 else ''
    return f'{candidate.name}\n{copies}{draws}'


def _row(candidate: mechanisms.Candidate) -> tuple[str, ...]:
    return (
        candidate.name,
        '' if candidate.loss is None else f'{candidate.loss:.4g}',
        '' if candidate.above_bound is None else f'{candidate.above_bound:.1%}',
        '' if candidate.loss_if_closer is None else f'{candidate.loss_if_closer:.4g}',
        f'{candidate.buffers:,}',
        f'{candidate.gigabytes:.3g}',
        '' if candidate.draws is None else str(candidate.draws),
        candidate.verdict,
    )
