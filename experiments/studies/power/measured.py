"""What the cells of a study of power show: trials, fits, false alarms. No TensorFlow."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from dpfl.debugging import power as power_lib
from dpfl.debugging.power import Fit, Trials
from dpfl.debugging.text import diagnosis
from experiments.studies.power.cells import Cell


@dataclasses.dataclass(frozen=True)
class FaultPower:
    """Power of one fault at one level of privacy.

    Attributes:
      fault: Name of the fault.
      level: Epsilon or noise multiplier of the generators.
      trials: Trials by share, the clean ones first. Found: the diagnosis names this fault.
      noticed: The same trials. Found: the diagnosis names a fault or suspects something.
      alone: The same trials. Found: the fault is named without a reference.
      fit: The fitted curve, and the smallest share.
    """

    fault: str
    level: float
    trials: tuple[Trials, ...]
    noticed: tuple[Trials, ...]
    alone: tuple[Trials, ...]
    fit: Fit

    @property
    def smallest(self) -> str:
        """The smallest share that is found, in percent with its interval, in words."""
        fit, (lowest, highest) = self.fit, (self.trials[1].share, self.trials[-1].share)
        if fit.share is not None:
            return f'{_percent(fit.share)} ({self.interval})'
        is_below = fit.reference < lowest
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


@dataclasses.dataclass(frozen=True)
class Measured:
    """A study of power.

    Attributes:
      power: The power asked for.
      cells: All cells.
      results: Power of each fault at each level of privacy.
    """

    power: float
    cells: tuple[Cell, ...]
    results: tuple[FaultPower, ...]

    @property
    def axis(self) -> str:
        """Name of the levels in words."""
        return self.cells[0].axis.replace('_', ' ')

    @property
    def faults(self) -> tuple[str, ...]:
        """Names of the faults, in their order."""
        return tuple(dict.fromkeys(each.fault for each in self.results))

    def of_fault(self, fault: str) -> tuple[FaultPower, ...]:
        """The results of one fault."""
        return tuple(each for each in self.results if each.fault == fault)

    def rows(self) -> list[dict[str, Any]]:
        """A row for each fault and epsilon, as text."""
        return [
            {
                'fault': each.fault,
                self.axis: f'{each.level:g}',
                f'share found with power {self.power:g}': each.smallest,
                'false alarms': _of(each.trials[0]),
                'any alarm on clean data': _of(each.noticed[0]),
            }
            for each in self.results
        ]

    def to_dict(self) -> dict[str, Any]:
        """The study as JSON values."""
        return {
            'power': self.power,
            'axis': self.cells[0].axis,
            'results': [each.to_dict() for each in self.results],
            'cells': [dataclasses.asdict(cell) for cell in self.cells],
        }


def of_cells(cells: Sequence[Cell], power: float) -> Measured:
    """Fits the power of every fault at every level at which it has cells."""
    faults = dict.fromkeys(cell.fault for cell in cells if cell.fault is not None)
    pairs = {(cell.fault, cell.level) for cell in cells}
    levels = sorted({cell.level for cell in cells})
    return Measured(
        power,
        tuple(cells),
        tuple(
            _of_fault(cells, fault, level, power)
            for fault in faults
            for level in levels
            if (fault, level) in pairs
        ),
    )


def _of_fault(cells: Sequence[Cell], fault: str, level: float, power: float) -> FaultPower:
    by_share: dict[float, list[Cell]] = {}
    for cell in cells:
        if cell.level == level and cell.fault in (None, fault):
            by_share.setdefault(cell.share, []).append(cell)
    ordered = sorted(by_share.items())

    def trials(counts) -> tuple[Trials, ...]:
        return tuple(Trials(share, sum(map(counts, group)), len(group)) for share, group in ordered)

    named = trials(lambda cell: fault in cell.named)
    return FaultPower(
        fault,
        level,
        named,
        trials(lambda cell: cell.verdict in (diagnosis.FOUND, diagnosis.SUSPECTED)),
        trials(lambda cell: fault in cell.named_alone),
        power_lib.fit(named, power),
    )


def _percent(share: float) -> str:
    return f'{float(f"{100 * share:.2g}"):g} %'


def _of(trials: Trials) -> str:
    low, high = trials.interval()
    return f'{trials.found} of {trials.count} ({100 * low:.0f} to {100 * high:.0f} %)'
