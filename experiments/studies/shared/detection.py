"""A study of detection power: its cells in files, the fitted power of each fault, and its page.

A cell is one diagnosis: of one fault at one share, seed and level of privacy. Clean cells, without
a fault, tell how often an alarm is false.
"""

import dataclasses
import io
import itertools
import json
import math
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from dpfl import _files, _json, _storage
from dpfl._settings import Settings, setting
from dpfl.debugging.differences import Mean, Share
from dpfl.errors import ArgumentError, StorageError, shown
from dpfl.reporting import charts, html_parts, plain_text
from experiments.studies.shared import files, power

FOUND, SUSPECTED = 'found', 'suspected'


@dataclasses.dataclass(frozen=True, kw_only=True)
class GridConfig(Settings):
    """The seeds of the cells, and the power that is asked for."""

    seeds: tuple[int, ...] = setting(
        (1, 2, 3, 4, 5),
        'Seeds, comma-separated. A seed decides synthetic data, what is damaged, cohorts and '
        'initial weights; all faults and shares of a seed share its clean generators.',
        minimum=0,
    )
    power: float = setting(
        0.8, 'Probability of being found that the smallest share must reach.', above=0, below=1
    )

    def check(self) -> None:
        """Checks that each list has values, and no value twice."""
        for name, values in self.flat().items():
            if isinstance(values, tuple) and (not values or len({*values}) < len(values)):
                text = ','.join(f'{value:g}' for value in values)
                raise ArgumentError(name, text, 'must be different values, at least one')


@dataclasses.dataclass(frozen=True)
class Cell:
    """One diagnosis.

    Attributes:
      axis: name of the level, `epsilon` or `noise_multiplier`.
      level: target epsilon or noise multiplier of the generators.
      seed: seed of the cell.
      fault: name of the fault; None for clean data.
      share: share of the data that the fault affects; 0 for clean data.
      verdict: 'found', 'suspected', 'not seen' or 'cannot tell'.
      named: names of the faults that the diagnosis named.
      named_alone: names of the faults that are named without a reference.
      traits: values of all traits, by name.
    """

    axis: str
    level: float
    seed: int
    fault: str | None = None
    share: float = 0.0
    verdict: str = ''
    named: tuple[str, ...] = ()
    named_alone: tuple[str, ...] = ()
    traits: Mapping[str, float | None] = dataclasses.field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name of the cell and of its file."""
        data = f'{self.fault}_{self.share:g}' if self.fault else 'clean'
        return f'{self.axis}_{self.level:g}_seed_{self.seed}_{data}'


def values_of(traits: Mapping[str, Share | Mean]) -> dict[str, float | None]:
    """Values of traits by name, for a cell; None where there is none."""
    return {
        name: float(trait.value) if math.isfinite(trait.value) else None
        for name, trait in traits.items()
    }


def _read(path: pathlib.Path) -> dict[str, Any]:
    try:
        with _storage.naming(path):
            return dict(_json.loads(_files.read_bytes(path)))
    except (ValueError, TypeError) as error:
        raise StorageError(f'{path}: is damaged ({shown(error)})') from None


def _write(path: pathlib.Path, values: Mapping[str, Any]) -> None:
    files.write(path, json.dumps(values, indent=1) + '\n')


def cells(
    directory: pathlib.Path,
    settings: Mapping[str, Any],
    seeds: Sequence[int],
    axis: str,
    levels: Sequence[float],
    faults: Sequence[tuple[str | None, float]],
    begin: Callable[[int, float], Callable[[Cell], Cell]],
) -> list[Cell]:
    """All cells of a study, those of a seed at one level together; makes those that are missing.

    Args:
      directory: directory of the study, with the finished cells; made if need be.
      settings: settings that the cells depend on besides their own values, JSON values by name.
      seeds: of the cells.
      axis, levels: name and values of the level of privacy.
      faults: names of faults with their shares, clean data first: (None, 0).
      begin: called with seed and level where a cell is missing; returns what fills in the
        diagnosis of each.

    Raises:
      ArgumentError: if there is no fault, or the directory has cells of other settings; it names
        the setting.
      StorageError: if a file is damaged, or cannot be read or written.
    """
    if len(faults) < 2:
        raise ArgumentError('inject', '', 'must name at least one fault')
    now, path = json.loads(json.dumps(settings)), directory / 'configuration.json'
    before = _read(path) if path.exists() else now
    for name in sorted({*now, *before}):
        if now.get(name) != before.get(name):
            allowed = f'must be {before.get(name)}, as for the cells in {directory}'
            raise ArgumentError(name, now.get(name), allowed)
    _write(path, now)
    found = []
    for seed, level in itertools.product(seeds, levels):
        diagnosed = None
        for fault, share in faults:
            cell = Cell(axis, level, seed, fault, share)
            path = directory / 'cells' / f'{cell.name}.json'
            if path.exists():
                cell = _finished(path)
            else:
                diagnosed = diagnosed or begin(seed, level)
                cell = diagnosed(cell)
                _write(path, dataclasses.asdict(cell))
                files.tell(f'{cell.name}: {cell.verdict} {", ".join(cell.named)}')
            found.append(cell)
    return found


def _finished(path: pathlib.Path) -> Cell:
    values = _read(path)
    try:
        named = {each: tuple(values[each]) for each in ('named', 'named_alone')}
        return Cell(**{**values, **named})
    except (TypeError, KeyError) as error:
        raise StorageError(f'{path}: is damaged ({shown(error)})') from None


@dataclasses.dataclass(frozen=True)
class FaultPower:
    """Power of one fault at one level of privacy.

    Attributes:
      fault: name of the fault.
      level: epsilon or noise multiplier of the generators.
      trials: trials by share, the clean ones first. Found: the diagnosis names this fault.
      noticed: the same trials. Found: the diagnosis names a fault or suspects something.
      alone: the same trials. Found: the fault is named without a reference.
      fit: the fitted curve, and the smallest share.
    """

    fault: str
    level: float
    trials: tuple[power.Trials, ...]
    noticed: tuple[power.Trials, ...]
    alone: tuple[power.Trials, ...]
    fit: power.Fit

    @property
    def smallest(self) -> str:
        """The smallest share that is found, in percent with its interval, in words."""
        share, lowest, highest = self.fit.share, self.trials[1].share, self.trials[-1].share
        if share is not None:
            return f'{_percent(share)} ({self.interval})'
        is_below = self.fit.reference < lowest
        beyond = f'below {_percent(lowest)}' if is_below else f'above {_percent(highest)}'
        return f'{beyond} ({self.interval})'

    @property
    def interval(self) -> str:
        """The interval of the smallest share, in percent."""
        # Curves go beyond the share 1; there is no such share.
        ends = (None if end is None else min(end, 1.0) for end in (self.fit.low, self.fit.high))
        low, high = (None if end is None else _percent(end) for end in ends)
        if low is None or high is None:
            return 'no bound' if low == high else f'>= {low}' if high is None else f'<= {high}'
        return f'{low} to {high}'

    def to_dict(self) -> dict[str, Any]:
        """The power as JSON values."""
        return {
            'fault': self.fault,
            'level': self.level,
            'smallest_share': self.fit.share,
            'interval': [self.fit.low, self.fit.high],
            'fit': dataclasses.asdict(self.fit),
            'trials': [
                {
                    'share': named.share,
                    'count': named.count,
                    'named': named.found,
                    'named_interval': named.interval(),
                    'any_alarm': noticed.found,
                    'named_without_reference': alone.found,
                }
                for named, noticed, alone in zip(self.trials, self.noticed, self.alone, strict=True)
            ],
        }


def measure(cells: Sequence[Cell], wanted: float) -> list[FaultPower]:
    """Fits the power of every fault at every level at which it has cells.

    Args:
      cells: all cells of a study.
      wanted: the power that the smallest share must reach.
    """
    pairs = {(cell.fault, cell.level) for cell in cells if cell.fault is not None}
    faults = dict.fromkeys(cell.fault for cell in cells if cell.fault is not None)
    levels = sorted({cell.level for cell in cells})
    return [
        _of_fault(cells, fault, level, wanted)
        for fault in faults
        for level in levels
        if (fault, level) in pairs
    ]


def _of_fault(cells: Sequence[Cell], fault: str, level: float, wanted: float) -> FaultPower:
    by_share: dict[float, list[Cell]] = {}
    for cell in cells:
        if cell.level == level and cell.fault in (None, fault):
            by_share.setdefault(cell.share, []).append(cell)

    def trials(is_found: Callable[[Cell], bool]) -> tuple[power.Trials, ...]:
        return tuple(
            power.Trials(share, sum(map(is_found, group)), len(group))
            for share, group in sorted(by_share.items())
        )

    named = trials(lambda cell: fault in cell.named)
    return FaultPower(
        fault,
        level,
        named,
        trials(lambda cell: cell.verdict in (FOUND, SUSPECTED)),
        trials(lambda cell: fault in cell.named_alone),
        power.fit(named, wanted),
    )


def _percent(share: float) -> str:
    return f'{float(f"{100 * share:.2g}"):g} %'


def report(
    directory: pathlib.Path, cells: Sequence[Cell], wanted: float
) -> tuple[dict[str, Any], str]:
    """Writes page, numbers and figures of a study; returns its JSON values, and a text.

    Args:
      directory: directory of the study.
      cells: all of its cells.
      wanted: the power that the smallest share must reach.

    Raises:
      StorageError: if a file cannot be written.
    """
    results = measure(cells, wanted)
    values = {
        'power': wanted,
        'axis': cells[0].axis,
        'results': [result.to_dict() for result in results],
        'cells': [dataclasses.asdict(cell) for cell in cells],
    }
    axis = cells[0].axis.replace('_', ' ')
    faults = dict.fromkeys(result.fault for result in results)
    figures = {
        fault: draw([result for result in results if result.fault == fault], axis, wanted)
        for fault in faults
    }
    page = directory / 'power.html'
    files.write(directory / 'power.json', json.dumps(values))
    files.write(page, render(results, figures, axis, len({cell.seed for cell in cells})))
    for fault, figure in figures.items():
        image = io.BytesIO()
        figure.savefig(image, format='png', dpi=110, metadata={'Software': None})
        files.write(directory / f'power_{fault}.png', image.getvalue())
    return values, f'{plain_text.columns(rows(results, axis))}\n\n{page}'


def rows(results: Sequence[FaultPower], axis: str) -> list[dict[str, str]]:
    """A row for each fault and level of privacy, as text."""
    return [
        {
            'fault': result.fault,
            axis: f'{result.level:g}',
            f'share found with power {result.fit.power:g}': result.smallest,
            'false alarms': _alarms(result.trials[0]),
            'any alarm on clean data': _alarms(result.noticed[0]),
        }
        for result in results
    ]


def _alarms(trials: power.Trials) -> str:
    low, high = trials.interval()
    return f'{trials.found} of {trials.count} ({100 * low:.0f} to {100 * high:.0f} %)'


def render(
    results: Sequence[FaultPower], figures: Mapping[str, Figure], axis: str, seeds: int
) -> str:
    """The page as HTML, with a figure for each fault."""
    wanted, shown_rows = results[0].fit.power, rows(results, axis)
    parts = [
        '<h1>How small a share of damaged data is found</h1>',
        '<p>Generators of data of which a fault affects a share are compared with generators of '
        'data without it, from another training. Found means that the diagnosis names the fault. '
        f'{seeds} seeds for each share and {axis}.</p>',
        f'<h2>Smallest share found with power {wanted:g}</h2>',
        html_parts.table(list(shown_rows[0]), [list(row.values()) for row in shown_rows]),
        html_parts.note(
            'Share: where the fitted curve of power reaches the power asked for beyond false '
            'alarms, with the 95 % interval of its profile likelihood. False alarms: clean data in '
            'which this fault is named, with the exact 95 % interval of Clopper and Pearson. Any '
            'alarm: clean data in which anything is named or suspected.'
        ),
    ]
    for fault, figure in figures.items():
        parts += [
            f'<h2>{fault.replace("_", " ")}</h2>',
            html_parts.figure(
                figure,
                'Share of the trainings in which the fault is named, with exact 95 % intervals, '
                'and the fitted curves. Dotted: false alarms on clean data.',
            ),
            html_parts.table(
                [axis, 'share', 'named', 'any alarm', 'named without a reference'],
                [
                    [
                        f'{result.level:g}',
                        f'{100 * trials[0].share:g} %' if trials[0].share else 'clean',
                        *(f'{one.found} of {one.count}' for one in trials),
                    ]
                    for result in results
                    if result.fault == fault
                    for trials in zip(result.trials, result.noticed, result.alone, strict=True)
                ],
            ),
        ]
    return html_parts.document('Power of detection', '\n'.join(parts), html_parts.STYLE)


def draw(results: Sequence[FaultPower], axis: str, wanted: float) -> Figure:
    """Power of a fault against its share, a curve for each level of privacy."""
    lines = []
    lowest = min(result.trials[1].share for result in results) / 1.5
    highest = min(1.5 * max(result.trials[-1].share for result in results), 1.0)
    ends = [100 * lowest, 100 * highest]
    for number, result in enumerate(results):
        clean, *faulty = result.trials
        label, points = f'{axis} {result.level:g}', np.geomspace(lowest, highest, 200)
        curve = 100 * result.fit.curve(points)
        # Points of different levels stand beside each other.
        aside = 1.05 ** (number - (len(results) - 1) / 2)
        lines += [
            charts.Line(
                label,
                [100 * one.share * aside for one in faulty],
                [100 * one.found / one.count for one in faulty],
                number,
                None,
                'measured',
                [(100 * low, 100 * high) for low, high in (one.interval() for one in faulty)],
            ),
            charts.Line(label, (100 * points).tolist(), curve.tolist(), number, 0),
            charts.Line('false alarms', ends, [100 * clean.found / clean.count] * 2, number, 2),
        ]
    lines.append(charts.Line('power asked for', ends, [100 * wanted] * 2, 7, 1))
    panel = charts.Panel(
        results[0].fault.replace('_', ' '),
        'share of the data with the fault (%)',
        'found (%)',
        lines,
        x_log=True,
        y_range=(-3, 103),
    )
    return charts.draw([panel], 1)
