"""Epsilon of training on samples as curves: tables of [McMahan18] and [Augenstein20]."""

import itertools
import math
from collections.abc import Sequence

import dp_accounting
import numpy as np

from dpfl.accounting import gaussian
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
    one_round = gaussian.moments_of_poisson_sample(inputs['q'], 1 / inputs['z'])
    curve = [
        gaussian.epsilon_from_moments(count * one_round, inputs['delta'])
        for count in rounds.tolist()
    ]
    return [
        Line(label, rounds.tolist(), curve, color),
        Line(
            f'{label}, {_PRINTED}',
            [row.inputs['rounds'] for row in printed],
            _printed(printed),
            _BLACK,
            None,
            _PRINTED,
        ),
    ]


def _setting(row: rows.Row) -> tuple[float, float, float]:
    return row.inputs['K'], row.inputs['C'], row.inputs['z']


def _power(value: float) -> str:
    return f'10^{round(math.log10(value))}'


_POPULATIONS = tuple(np.geomspace(100_000, 2_000_000, 40).round().astype(int).tolist())
_SMALL_POPULATIONS = tuple(np.geomspace(300, 3400, 12).round().astype(int).tolist())
_ROUNDS = tuple(np.unique(np.geomspace(1, 3000, 40).round().astype(int)).tolist())
_READINGS = (
    ('z, as published', 1.0),
    ('z / 2: replacing a client moves the sum by up to 2 clip norms', 2.0),
)


def table5() -> Drawn:
    """Epsilon against rounds for the language models of section 5."""
    runs = drawn.selected('004-S5')
    lines = []
    for color, row in enumerate(runs):
        inputs = row.inputs
        for dash, (name, factor) in enumerate(_READINGS):
            one_round = _one_round(inputs['N'], inputs['qN'], inputs['z'] / factor)
            epsilons = [
                gaussian.epsilon_from_moments(t * one_round, inputs['delta']) for t in _ROUNDS
            ]
            lines.append(Line(f'N = {inputs["N"]:,}, {name}', _ROUNDS, epsilons, color, dash))
    lines.append(
        Line(
            _PRINTED,
            [row.inputs['rounds'] for row in runs],
            _printed(runs),
            len(runs),
            None,
        )
    )
    title = f'{runs[0].inputs["qN"]:,} clients per round, delta = {runs[0].inputs["delta"]:g}'
    panel = Panel(title, 'rounds', 'epsilon', lines, x_log=True, y_log=True)
    return Drawn([panel], 1, drawn.measured(runs))


def by_population(beginning: str) -> Drawn:
    """Epsilon against the size of the subpopulation, for the GANs of a table ([Augenstein20]).

    Args:
      beginning: of the ids of its rows.
    """
    runs = drawn.selected(f'{beginning} ')
    panels = [
        _panel('realistic', [row for row in runs if ' real ' in row.id], _POPULATIONS),
        _panel('simulation', [row for row in runs if ' sim ' in row.id], _SMALL_POPULATIONS),
    ]
    return Drawn(panels, 2, drawn.measured(runs))


def _panel(name: str, runs: list[rows.Row], populations: tuple[int, ...]) -> Panel:
    inputs = runs[0].inputs
    lines = []
    for dash, (reading, factor) in enumerate(_READINGS):
        epsilons = []
        for population in populations:
            one_round = _one_round(population, inputs['qN'], inputs['z'] / factor)
            delta = inputs['delta_times_N'] / population
            epsilons.append(gaussian.epsilon_from_moments(inputs['rounds'] * one_round, delta))
        lines.append(Line(reading, populations, epsilons, dash, dash))
    lines.append(
        Line(_PRINTED, [row.inputs['N'] for row in runs], _printed(runs), len(_READINGS), None)
    )
    title = (
        f'{name}: {inputs["qN"]:,} clients per round, z = {inputs["z"]:g}, '
        f'delta = {inputs["delta_times_N"]:g} / N'
    )
    return Panel(
        title, 'N: clients that meet the criteria', 'epsilon', lines, x_log=True, y_log=True
    )


def _one_round(population: int, cohort: int, noise_multiplier: float) -> np.ndarray:
    """Log moments of one round."""
    noise = dp_accounting.GaussianDpEvent(noise_multiplier)
    event = dp_accounting.SampledWithoutReplacementDpEvent(population, cohort, noise)
    return gaussian.moments_of_fixed_sample(event)


def _printed(runs: Sequence[rows.Row]) -> list[float]:
    return [row.published['eps'] for row in runs if isinstance(row.published, dict)]
