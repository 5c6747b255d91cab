"""Rho of production mechanisms elsewhere: figures 8 to 10 of [McMahan24], figure 4 of [Xu23].

The BLTs of [McMahan24] are those of appendix A. The BandMF matrices are not published. In their
place there are matrices for prefix sums of the same rounds and bands, with a squared column norm
that gives the printed rho (1000 bands) or is assumed, since no document has it (400 bands).
The figure of [Xu23] is rho of tree aggregation against report goal and min separation.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence

import numpy as np

from dpfl import Participation, mechanisms, strategies
from dpfl.published.figures import drawn
from dpfl.published.figures.drawn import Design, Drawn
from dpfl.reporting.charts import Line, Panel

_REPORT_GOAL = 6500
_BANDED_ROUNDS = 2000
_ROUNDS = (1000, 2000)
_POPULATIONS = {'a': 3_000_000, 'b': 10_000_000}
_GOALS = tuple(np.geomspace(1000, 20000, 25).round().astype(int).tolist())
_SEPARATIONS = tuple(np.geomspace(50, 1000, 19).round().astype(int).tolist())
_STEPS = tuple(sorted({*range(100, 4001, 100), *range(401, 4000, 400), *range(1001, 4000, 1000)}))
_COEFFICIENTS = 2000
# Coefficients that are shown; those for b = 100 soon are much smaller.
_SHOWN = (1e-10, 1.0)
# Figure 4 of [Xu23]: the noise that was good enough with this report goal (section 3).
_TREE_NOISE_MULTIPLIER = 7.0
_TREE_ROUNDS = (1000, 2000, 3000)
_TREE_GOALS = tuple(np.geomspace(500, 20000, 33).round().astype(int).tolist())
_TREE_SEPARATIONS = tuple(np.geomspace(50, 1500, 33).round().astype(int).tolist())


@dataclasses.dataclass(frozen=True)
class _Production:
    """A mechanism of table 4 with its noise.

    Attributes:
      name: its name in the legend.
      design: the mechanism, over the most rounds that it can have.
      noise_multiplier: that of table 4, scaled to the report goal of 6500.
      squared_norm: factor of the squared sensitivity, where the published columns have this
        squared norm.
    """

    name: str
    design: Design
    noise_multiplier: float
    squared_norm: float = 1.0

    def rho(self, schema: Participation, report_goal: int = _REPORT_GOAL) -> float:
        """Rho with noise in proportion to the report goal."""
        noise = self.noise_multiplier * report_goal / _REPORT_GOAL
        squared = self.design.squared_sensitivity(schema) * self.squared_norm
        return squared / (2 * noise**2)


def figure8() -> Drawn:
    """Rho against report goal and min separation, for mechanisms made for separation 400."""
    blt, banded = _blt(400, _sigma('002-T4-es-ES-BLT')), _banded('002-T4-es-ES-BandMF')
    panels = [
        _by_goal(f'({name}) population {population:,}', population, (blt, banded))
        for name, population in _POPULATIONS.items()
    ]
    panels += [
        _by_separation('(c) report goal 6,500, worst-case max participations', None, (blt, banded)),
        _by_separation('(d) report goal 6,500, max participations 2', 2, (blt, banded)),
    ]
    goal_panels = panels[:2]
    larger = {
        f'rho_ratio_{panel.title[1]}': max(line.y[-1] / line.y[0] for line in panel.lines)
        for panel in goal_panels
    }
    few, many = _ROUNDS
    measured = {
        '002/fig8/blt': {
            f'most_rho_ratio_{panel.title[1]}': max(
                own / other
                for rounds in _ROUNDS
                for own, other in zip(
                    _line(panel, blt, rounds).y, _line(panel, banded, rounds).y, strict=True
                )
            )
            for panel in panels
        },
        '002/fig8/report-goal': larger,
        '002/fig8/more-rounds': {
            f'least_growth_{word}': min(
                longer / shorter
                for longer, shorter in zip(
                    _line(panels[1], production, many).y,
                    _line(panels[1], production, few).y,
                    strict=True,
                )
            )
            for word, production in (('blt', blt), ('banded', banded))
        },
        '002/fig8/gap': {
            'rho_ratio': banded.rho(Participation(_BANDED_ROUNDS, 400))
            / blt.rho(Participation(_BANDED_ROUNDS, 400))
        },
    }
    return Drawn(panels, 2, measured)


def figure9() -> Drawn:
    """Rho against rounds at separations 100, 400 and 1000."""
    tree = _Production('TreeAgg', Design(mechanisms.BinaryTree(_STEPS[-1])), 7.0)
    shown: dict[int, list[_Production]] = {
        100: [
            _blt(
                100,
                _sigma('002-T4-pt-PT-3.12-BLT') * _REPORT_GOAL / 3000,
                ', sigma 3.12 at goal 3,000',
            ),
            _blt(
                100,
                _sigma('002-T4-pt-PT-5.5-BLT') * _REPORT_GOAL / 6000,
                ', sigma 5.5 at goal 6,000',
            ),
        ],
        400: [_blt(400, _sigma('002-T4-es-ES-BLT')), _banded('002-T4-es-ES-BandMF')],
        1000: [_blt(1000, _sigma('002-T4-pt-BR-BLT')), _banded('002-T4-pt-BR-BandMF')],
    }
    panels: list[Panel] = []
    ratios: dict[str, dict[str, float]] = {}
    for (separation, productions), letter in zip(shown.items(), 'abc', strict=True):
        schemas = {n: Participation(n, separation) for n in _STEPS}
        by_tree = {n: tree.rho(schema) for n, schema in schemas.items()}
        lines = [Line('TreeAgg', list(by_tree), list(by_tree.values()), 0, 2)]
        for number, production in enumerate(productions, 1):
            rhos = {
                n: production.rho(schema)
                for n, schema in schemas.items()
                if n <= production.design.mechanism.rounds
            }
            is_banded = production.name.startswith('BandMF')
            color = 3 if is_banded else number
            lines.append(
                Line(production.name, list(rhos), list(rhos.values()), color, 1 if is_banded else 0)
            )
            if not is_banded:
                name = f'most_rho_ratio_{number}' if separation == 100 else 'most_rho_ratio'
                ratios.setdefault(f'002/fig9/b{separation}', {})[name] = max(
                    rhos[n] / by_tree[n] for n in rhos
                )
        title = f'({letter}) min separation {separation:,}'
        panels.append(Panel(title, 'rounds n', 'rho (zCDP)', lines, y_log=True))
    return Drawn(panels, 3, {**ratios, **drawn.measured(drawn.selected('002-T4'))})


def figure10() -> Drawn:
    """Toeplitz coefficients of C and of its inverse, for the BLTs of appendix A."""
    columns, inverses = {}, {}
    for b in (100, 400, 1000):
        mechanism = _appendix(b, _COEFFICIENTS)
        columns[b] = mechanism.coefficients()[1:]
        decay, scale = mechanism.inverse_parameters()
        inverses[b] = -(scale @ decay[:, None] ** np.arange(_COEFFICIENTS - 1))
    index = list(range(1, _COEFFICIENTS))
    panels = []
    for title, name, values in (
        ('(a) C', 'coefficient c_i', columns),
        ('(b) inverse of C', 'coefficient of the inverse, times -1', inverses),
    ):
        lines = [
            Line(f'BLT, b = {b:,}', index, column.tolist(), color)
            for color, (b, column) in enumerate(values.items())
        ]
        panels.append(Panel(title, 'index i', name, lines, x_log=True, y_log=True, y_range=_SHOWN))
    kept = {b: column[-1] / column[0] for b, column in columns.items()}
    measured = {
        '002/fig10/decay': {f'ratio_to_{b}': float(kept[100] / kept[b]) for b in (400, 1000)}
    }
    return Drawn(panels, 2, measured)


def tree_figure4() -> Drawn:
    """Rho of tree aggregation; panels (a) and (b) scale the noise with the report goal."""
    panels = []
    measured: dict[str, Mapping[str, float]] = {}
    for name, population in _POPULATIONS.items():
        lines = [
            Line(
                f'{rounds:,} rounds',
                _TREE_GOALS,
                [_tree_rho(rounds, population // goal, goal) for goal in _TREE_GOALS],
                color,
            )
            for color, rounds in enumerate(_TREE_ROUNDS)
        ]
        panels.append(
            _panel(
                f'({name}) population {population:,}, min separation = population / report goal',
                'report goal (clients per round)',
                lines,
            )
        )
        ratio = max(line.y[-1] / line.y[0] for line in lines)
        measured[f'000/fig4/{name}-report-goal'] = {'rho_ratio': ratio}
    lines = [
        Line(
            f'{rounds:,} rounds',
            [b for b in _TREE_SEPARATIONS if b < rounds],
            [_tree_rho(rounds, b, _REPORT_GOAL) for b in _TREE_SEPARATIONS if b < rounds],
            color,
        )
        for color, rounds in enumerate(_TREE_ROUNDS)
    ]
    panels.append(
        _panel(
            f'(c) report goal {_REPORT_GOAL:,}, worst-case max participations',
            'min separation (rounds)',
            lines,
        )
    )
    measured['000/fig4/separation'] = {'rho_ratio': max(line.y[-1] / line.y[0] for line in lines)}
    measured['000/fig4/small-population'] = {
        'rho': _tree_rho(3000, 1_000_000 // _REPORT_GOAL, _REPORT_GOAL)
    }
    models = drawn.selected('000-T1', '000-text-MinS-bounds')
    measured |= drawn.measured(models)
    trained = [row for row in models if row.place.startswith('Table 1')]
    lines.append(
        Line(
            'models of table 1 as printed, each with its own rounds',
            [row.inputs['MinS'] + 1 for row in trained],
            [row.published['zcdp'] for row in trained if isinstance(row.published, dict)],
            len(_TREE_ROUNDS),
            None,
        )
    )
    return Drawn(panels, 3, measured)


def _appendix(separation: int, rounds: int) -> mechanisms.Blt:
    """The BLT of appendix A that is made for this separation."""
    mechanism = strategies.load(f'blt_b{separation}')
    assert isinstance(mechanism, mechanisms.Blt)
    return mechanism.with_rounds(rounds)


def _blt(separation: int, noise_multiplier: float, note: str = '') -> _Production:
    design = Design(_appendix(separation, _STEPS[-1]))
    return _Production(f'BLT, b = {separation:,}{note}', design, noise_multiplier)


def _banded(row: str) -> _Production:
    """The BandMF of a row of table 4, for prefix sums."""
    (inputs,) = (printed.inputs for printed in drawn.selected(row))
    design = drawn.banded(_BANDED_ROUNDS, inputs['bands'])
    name = f'BandMF, {inputs["bands"]:,} bands'
    return _Production(name, design, inputs['sigma_abs'], inputs['column_norm_squared'])


def _sigma(row: str) -> float:
    """Mech-sigma of a row of table 4."""
    (printed,) = drawn.selected(row)
    return printed.inputs['sigma_abs']


def _by_goal(title: str, population: int, productions: Sequence[_Production]) -> Panel:
    """Rho against the report goal, at the largest separation that the population allows."""
    lines = [
        Line(
            _label(production, rounds),
            _GOALS,
            [production.rho(_schema(rounds, population // goal), goal) for goal in _GOALS],
            color,
            dash,
        )
        for color, production in enumerate(productions)
        for dash, rounds in enumerate(_ROUNDS)
    ]
    return _panel(title, 'report goal (clients per round)', lines)


def _by_separation(
    title: str, participations: int | None, productions: Sequence[_Production]
) -> Panel:
    lines = [
        Line(
            _label(production, rounds),
            _SEPARATIONS,
            [production.rho(_schema(rounds, b, participations)) for b in _SEPARATIONS],
            color,
            dash,
        )
        for color, production in enumerate(productions)
        for dash, rounds in enumerate(_ROUNDS)
    ]
    return _panel(title, 'min separation (rounds)', lines)


def _panel(title: str, x_label: str, lines: Sequence[Line]) -> Panel:
    return Panel(title, x_label, 'rho (zCDP)', lines, x_log=True, y_log=True)


def _schema(rounds: int, separation: int, participations: int | None = None) -> Participation:
    # All separations beyond the rounds mean the same: one participation.
    return Participation(rounds, min(separation, rounds), participations)


def _label(production: _Production, rounds: int) -> str:
    return f'{production.name}, {rounds:,} rounds'


def _line(panel: Panel, production: _Production, rounds: int) -> Line:
    return next(line for line in panel.lines if line.label == _label(production, rounds))


def _tree_rho(rounds: int, separation: int, goal: int) -> float:
    squared = _squared_sensitivity(_schema(rounds, separation))
    return squared / (2 * (_TREE_NOISE_MULTIPLIER * goal / _REPORT_GOAL) ** 2)


@functools.cache
def _squared_sensitivity(schema: Participation) -> float:
    return mechanisms.BinaryTree(schema.rounds).sensitivity_bound(schema).squared
