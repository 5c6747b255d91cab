"""Figure 4 of [Xu23]: rho of tree aggregation against report goal and min separation."""

import functools
from collections.abc import Mapping

import numpy as np

from dpfl import Participation, mechanisms
from dpfl.published.figures import drawn
from dpfl.published.figures.drawn import Drawn
from dpfl.reporting.charts import Line, Panel

# The noise that was good enough with a report goal of 6500 (section 3), and scaled from there.
_NOISE_MULTIPLIER = 7.0
_REPORT_GOAL = 6500
_ROUNDS = (1000, 2000, 3000)
_POPULATIONS = (3_000_000, 10_000_000)
_GOALS = tuple(np.geomspace(500, 20000, 33).round().astype(int).tolist())
_SEPARATIONS = tuple(np.geomspace(50, 1500, 33).round().astype(int).tolist())
_NAMES = ('a', 'b')


def figure4() -> Drawn:
    """Rho of tree aggregation; panels (a) and (b) scale the noise with the report goal."""
    panels = []
    measured: dict[str, Mapping[str, float]] = {}
    for name, population in zip(_NAMES, _POPULATIONS, strict=True):
        lines = [
            Line(
                f'{rounds:,} rounds',
                _GOALS,
                [_rho(rounds, population // goal, goal) for goal in _GOALS],
                color,
            )
            for color, rounds in enumerate(_ROUNDS)
        ]
        panels.append(
            Panel(
                f'({name}) population {population:,}, min separation = population / report goal',
                'report goal (clients per round)',
                'rho (zCDP)',
                lines,
                x_log=True,
                y_log=True,
            )
        )
        ratio = max(line.y[-1] / line.y[0] for line in lines)
        measured[f'000/fig4/{name}-report-goal'] = {'rho_ratio': ratio}
    lines = [
        Line(
            f'{rounds:,} rounds',
            [b for b in _SEPARATIONS if b < rounds],
            [_rho(rounds, b, _REPORT_GOAL) for b in _SEPARATIONS if b < rounds],
            color,
        )
        for color, rounds in enumerate(_ROUNDS)
    ]
    panels.append(
        Panel(
            f'(c) report goal {_REPORT_GOAL:,}, worst-case max participations',
            'min separation (rounds)',
            'rho (zCDP)',
            lines,
            x_log=True,
            y_log=True,
        )
    )
    measured['000/fig4/separation'] = {'rho_ratio': max(line.y[-1] / line.y[0] for line in lines)}
    measured['000/fig4/small-population'] = {
        'rho': _rho(3000, 1_000_000 // _REPORT_GOAL, _REPORT_GOAL)
    }
    models = drawn.selected('000-T1', '000-text-MinS-bounds')
    measured |= drawn.measured(models)
    trained = [row for row in models if row.table.startswith('Table 1')]
    lines.append(
        Line(
            'models of table 1 as printed, each with its own rounds',
            [row.inputs['MinS'] + 1 for row in trained],
            [row.published['zcdp'] for row in trained if isinstance(row.published, dict)],
            len(_ROUNDS),
            None,
        )
    )
    return Drawn(panels, 3, measured)


def _rho(rounds: int, separation: int, goal: int) -> float:
    squared = _squared_sensitivity(Participation(rounds, min(separation, rounds)))
    return squared / (2 * (_NOISE_MULTIPLIER * goal / _REPORT_GOAL) ** 2)


@functools.cache
def _squared_sensitivity(schema: Participation) -> float:
    return mechanisms.BinaryTree(schema.rounds).sensitivity_bound(schema).squared
