"""The page of a study of power, and its figures. No TensorFlow."""

import html
import io

import numpy as np
from matplotlib.figure import Figure

from dpfl.reporting import html_page
from experiments.studies.power.measured import Measured

# As in `charts`: told apart with any colour vision.
_COLORS = ('#0072B2', '#D55E00', '#009E73', '#CC79A7', '#000000', '#E69F00')
_MARKERS = 'os^vD*'
_DASHES = ('-', '--', ':', '-.', (0, (5, 1, 1, 1)), (0, (1, 1)))
_STYLE = """
body { max-width: 70rem; }
.scroll { overflow-x: auto; }
td { white-space: nowrap; font-variant-numeric: tabular-nums; }
.note, figcaption { color: var(--muted); font-size: .92rem; }
"""


def render(found: Measured) -> str:
    """The page as HTML."""
    seeds = len({cell.seed for cell in found.cells})
    parts = [
        '<h1>How small a share of damaged data is found</h1>',
        f'<p>Generators of data of which a fault affects a share are compared with generators of '
        f'data without it, from another training. Found means that the diagnosis names the fault. '
        f'{seeds} seeds for each share and {found.axis}.</p>',
        f'<h2>Smallest share found with power {found.power:g}</h2>',
        _table([list(row.values()) for row in found.rows()], list(found.rows()[0])),
        '<p class="note">Share: where the fitted curve of power reaches the power asked for beyond '
        'false alarms, with the 95 % interval of its profile likelihood. False alarms: clean data '
        'in which this fault is named, with the exact 95 % interval of Clopper and Pearson. Any '
        'alarm: clean data in which anything is named or suspected.</p>',
    ]
    for fault in found.faults:
        parts += [
            f'<h2>{html.escape(fault.replace("_", " "))}</h2>',
            f'<figure>{html_page.svg(draw(found, fault))}<figcaption>Share of the trainings in '
            'which the fault is named, with exact 95 % intervals, and the fitted curves. Dotted: '
            'false alarms on clean data.</figcaption></figure>',
            _trials(found, fault),
        ]
    return html_page.document('Power of detection', '\n'.join(parts), _STYLE)


def draw(found: Measured, fault: str) -> Figure:
    """Power against share, a line for each epsilon; the caller saves the figure."""
    drawn = Figure(figsize=(7.5, 4.2), layout='constrained')
    axes = drawn.add_subplot(
        xscale='log', xlabel='share of the data with the fault (%)', ylabel='found (%)'
    )
    results = found.of_fault(fault)
    for number, each in enumerate(results):
        color, marker = _COLORS[number % len(_COLORS)], _MARKERS[number % len(_MARKERS)]
        faulty = each.trials[1:]
        shares = np.array([one.share for one in faulty])
        rates = np.array([one.found / one.count for one in faulty])
        bounds = np.array([one.interval() for one in faulty]).T
        # Points of different epsilons stand beside each other.
        axes.errorbar(
            100 * shares * 1.05 ** (number - (len(results) - 1) / 2),
            100 * rates,
            100 * np.abs(bounds - rates),
            color=color,
            marker=marker,
            linestyle='',
            capsize=3,
        )
        ends = shares[0] / 1.5, min(shares[-1] * 1.5, 1.0)
        points = np.geomspace(*ends, 200)
        axes.plot(
            100 * points,
            100 * each.fit.curve(points),
            color=color,
            linestyle=_DASHES[number % len(_DASHES)],
            marker='',
            label=f'{found.axis} {each.level:g}',
        )
        clean = each.trials[0]
        axes.axhline(100 * clean.found / clean.count, color=color, linestyle=':', linewidth=1)
    axes.axhline(100 * found.power, color='grey', linewidth=0.8)
    ticks = sorted({100 * one.share for each in results for one in each.trials[1:]})
    axes.set_xticks(ticks, [f'{tick:g}' for tick in ticks])
    axes.minorticks_off()
    axes.set_ylim(-3, 103)
    axes.grid(alpha=0.3)
    axes.legend()
    axes.set_title(fault.replace('_', ' '))
    return drawn


def png(found: Measured, fault: str) -> bytes:
    """The figure of a fault as a PNG file."""
    file = io.BytesIO()
    draw(found, fault).savefig(file, format='png', dpi=110, metadata={'Software': None})
    return file.getvalue()


def _trials(found: Measured, fault: str) -> str:
    rows = [
        [
            f'{each.level:g}',
            f'{100 * named.share:g} %' if named.share else 'clean',
            f'{named.found} of {named.count}',
            f'{noticed.found} of {noticed.count}',
            f'{alone.found} of {alone.count}',
        ]
        for each in found.of_fault(fault)
        for named, noticed, alone in zip(each.trials, each.noticed, each.alone, strict=True)
    ]
    return _table(rows, [found.axis, 'share', 'named', 'any alarm', 'named without a reference'])


def _table(rows: list[list[str]], names: list[str]) -> str:
    head = ''.join(f'<th>{html.escape(name)}</th>' for name in names)
    body = ''.join(
        '<tr>' + ''.join(f'<td>{html.escape(cell)}</td>' for cell in row) + '</tr>\n'
        for row in rows
    )
    return f'<div class="scroll"><table><tr>{head}</tr>\n{body}</table></div>\n'
