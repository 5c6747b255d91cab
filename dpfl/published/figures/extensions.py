"""Figures 1 and 5 of [McMahan24]: other numbers of rounds, and the time of the optimisers."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence

from dpfl import Participation, mechanisms
from dpfl.published.figures import designs
from dpfl.published.figures.designs import Design
from dpfl.published.figures.drawn import Drawn
from dpfl.reporting.charts import Line, Panel

_SEPARATION = 400
_ROUNDS = 2000
_STEPS = tuple(sorted({*range(25, _ROUNDS + 1, 25), *range(401, _ROUNDS, _SEPARATION)}))
# Figure 1. BandMF takes minutes for many more rounds.
_BANDED_ROUNDS = (500, 1000, 2000)
_BLT_ROUNDS = (500, 1000, 2000, 5000, 20_000, 100_000)
_BUFFERS = 4


def figure1() -> Drawn:
    """Seconds to optimise BandMF and BLTs on this machine, without kept results."""

    def banded(rounds: int) -> None:
        mechanisms.optimize_banded(Participation(rounds, _SEPARATION), _SEPARATION)

    def blt(loss: str) -> Callable[[int], None]:
        def optimise(rounds: int) -> None:
            mechanisms.optimize_blt(Participation(rounds, _SEPARATION), _BUFFERS, loss)

        return optimise

    with _nothing_kept():
        blt('max')(_BLT_ROUNDS[0])  # Imports and first calls take time of their own.
        lines = [
            Line('BandMF, 400 bands', _BANDED_ROUNDS, _seconds(banded, _BANDED_ROUNDS), 0, 1),
            Line('BLT, 4 buffers, max loss', _BLT_ROUNDS, _seconds(blt('max'), _BLT_ROUNDS), 1),
            Line('BLT, 4 buffers, RMS loss', _BLT_ROUNDS, _seconds(blt('rms'), _BLT_ROUNDS), 2),
        ]
    panel = Panel(
        'time to optimise on this machine, min separation 400',
        'rounds n',
        'seconds (wall clock)',
        lines,
        x_log=True,
        y_log=True,
    )
    at = {line.label: dict(zip(line.x, line.y, strict=True)) for line in lines}
    many, few = (
        max(line[n] for name, line in at.items() if name.startswith('BLT'))
        / at['BandMF, 400 bands'][n]
        for n in (_BANDED_ROUNDS[-1], _BANDED_ROUNDS[0])
    )
    measured = {
        '002/fig1/many-rounds': {'time_ratio': many},
        '002/fig1/few-rounds': {'time_ratio': few},
        '002/fig1/large': {'rounds_in_the_time_of_bandmf': _most_rounds(lines)},
    }
    return Drawn([panel], 1, measured)


def figure5() -> Drawn:
    """RMS loss over fewer and more rounds than mechanisms were made for."""
    made: dict[str, Design] = {}
    for rounds in (800, _ROUNDS):
        made[f'BandMF, n = {rounds:,}'] = designs.banded(rounds, _SEPARATION)
        for buffers in (2, 5):
            made[f'BLT, n = {rounds:,}, {buffers} buffers'] = _extended_blt(rounds, buffers)
    at = {
        name: {
            n: design.loss(Participation(n, _SEPARATION), 'rms')
            for n in _STEPS
            if n <= design.mechanism.rounds
        }
        for name, design in made.items()
    }
    own = f'BLT, n = {_ROUNDS:,}, 5 buffers'
    relative = {
        name: {n: loss / at[own][n] for n, loss in line.items()} for name, line in at.items()
    }
    pair = _extended_blt(_ROUNDS, 2)
    single = _extended_blt(_ROUNDS, 1)
    ratios = [single.loss(Participation(n, _SEPARATION), 'rms') / at[own][n] for n in _STEPS]
    measured = {
        '002/fig5/two-buffers': {
            f'loss_ratio_{rounds}': max(
                at[f'BLT, n = {rounds:,}, 2 buffers'][n] / at[f'BLT, n = {rounds:,}, 5 buffers'][n]
                for n in _STEPS
            )
            for rounds in (800, _ROUNDS)
        },
        '002/fig5/one-buffer': {'least_loss_ratio': min(ratios)},
        '002/fig5/memory': {'ratio': _SEPARATION / pair.mechanism.num_buffers()},
    }
    panels = [
        _panel(relative, 'relative', f'RMS loss / {own}'),
        _panel(at, 'absolute', 'RMS loss'),
    ]
    return Drawn(panels, 2, measured)


def _extended_blt(rounds: int, buffers: int) -> Design:
    """The BLT that is made for `rounds`, extended to all rounds."""
    made = designs.blt(rounds, _SEPARATION, None, buffers, 'rms').mechanism
    return Design(made.with_rounds(_ROUNDS))


def _panel(at: dict[str, dict[int, float]], title: str, y_label: str) -> Panel:
    lines = [
        Line(name, list(line), list(line.values()), color, 1 if name.startswith('BandMF') else 0)
        for color, (name, line) in enumerate(at.items())
    ]
    return Panel(title, 'rounds executed', y_label, lines)


def _seconds(optimise: Callable[[int], None], rounds: Sequence[int]) -> list[float]:
    seconds = []
    for number in rounds:
        start = time.perf_counter()
        optimise(number)
        seconds.append(time.perf_counter() - start)
    return seconds


def _most_rounds(lines: Sequence[Line]) -> float:
    """The most rounds for which both BLTs are found sooner than the largest BandMF."""
    banded, *blts = lines
    quick = [
        n
        for n, *times in zip(blts[0].x, *(line.y for line in blts), strict=True)
        if max(times) < banded.y[-1]
    ]
    return float(max(quick, default=0))


@contextlib.contextmanager
def _nothing_kept() -> Iterator[None]:
    """Context without the cache of the optimisers' results."""
    name = 'DPFL_CACHE_DIR'
    before = os.environ.get(name)
    os.environ[name] = ''
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
