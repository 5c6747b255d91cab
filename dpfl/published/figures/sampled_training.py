"""Tables 1 and 2 of [McMahan18] as curves: epsilon of sampled training against rounds."""

import itertools
import math
from collections.abc import Sequence

import numpy as np

from dpfl.accounting import moments
from dpfl.published.figures import drawn
from dpfl.published.figures.drawn import Drawn
from dpfl.published.tables import rows
from dpfl.reporting.charts import Line, Panel

_PRINTED = 'as printed'
_BLACK = 4
_COLORS = (0, 1, 2, 3, 5, 6)
_PER_DECADE = 8


def table1() -> Drawn:
    """Epsilon after 1 to 10^6 rounds for the six rows of the table."""
    printed = drawn.selected('001-T1')
    rounds = np.unique(np.geomspace(1, 10**6, 6 * _PER_DECADE + 1).round().astype(int))
    lines = []
    groups = itertools.groupby(printed, _setting)
    for color, ((users, cohort, noise), group) in zip(_COLORS, groups, strict=False):
        label = f'K = {_power(users)}, C = {_power(cohort)}, z = {noise:g}'
        lines += _pair(label, list(group), rounds, color)
    panel = Panel(
        'delta = 1 / K^1.1, moments accountant', 'rounds', 'epsilon', lines, x_log=True, y_log=True
    )
    return Drawn([panel], 1, drawn.measured(printed))


def table2() -> Drawn:
    """Epsilon at delta = 1e-9 for the settings of table 2 and of the text."""
    printed = drawn.selected('001-T2', '001-Ttext')
    rounds = np.unique(np.geomspace(100, 20000, 40).round().astype(int))
    printed.sort(key=_setting)
    panels = []
    colors = iter(_COLORS)
    for users, group in itertools.groupby(printed, lambda row: row.inputs['K']):
        lines = []
        for (_, cohort, _), same in itertools.groupby(group, _setting):
            label = f'K = {users:,.0f}, C = {cohort:,.0f}'
            lines += _pair(label, list(same), rounds, next(colors))
        title = f'{users:,.0f} users, z = 1, delta = 1e-9, moments accountant'
        panels.append(Panel(title, 'rounds', 'epsilon', lines, x_log=True))
    return Drawn(panels, 2, drawn.measured(printed))


def _pair(label: str, printed: Sequence[rows.Row], rounds: np.ndarray, color: int) -> list[Line]:
    """The curve of one setting, and the points that the document prints."""
    inputs = printed[0].inputs
    one_round = moments.poisson_sampled_gaussian(inputs['q'], 1 / inputs['z'])
    curve = [moments.epsilon(count * one_round, inputs['delta']) for count in rounds.tolist()]
    points = [row.published['eps'] for row in printed if isinstance(row.published, dict)]
    return [
        Line(label, rounds.tolist(), curve, color),
        Line(
            f'{label}, {_PRINTED}',
            [row.inputs['rounds'] for row in printed],
            points,
            _BLACK,
            None,
            _PRINTED,
        ),
    ]


def _setting(row: rows.Row) -> tuple[float, float, float]:
    return row.inputs['K'], row.inputs['C'], row.inputs['z']


def _power(value: float) -> str:
    return f'10^{round(math.log10(value))}'
