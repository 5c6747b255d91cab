"""Figures 1 to 6 and 12 of [McMahan24]: mechanisms at other separations and numbers of rounds.

Rounds and participations are those of the captions. The document does not say for which separations
figures 2, 3, 4, 6 and 12 have points, nor how many buffers a BLT has. Figure 5 executes fewer and
more rounds than mechanisms were made for, and figure 1 is the time of the optimisers.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from dpfl import Participation, mechanisms
from dpfl.published.figures.drawn import Design, Drawn, banded, blt, full_honaker_tree
from dpfl.reporting.charts import Line, Panel

_ROUNDS = 2000
_MADE_FOR = 400
# As the production mechanisms have (section 5).
_BUFFERS = 4
_BANDS = (200, 400, 800)
_LOSS_NAMES = {'rms': 'RMS loss', 'max': 'max loss'}
_SEPARATION = 'min separation b (rounds)'
# Separations at which the right panel of figure 2 still admits five participations.
_MOST_OF_FIVE = 499
# Rounds executed that figure 5 has points for.
_STEPS = tuple(sorted({*range(25, _ROUNDS + 1, 25), *range(401, _ROUNDS, _MADE_FOR)}))
# Figure 1. BandMF takes minutes for many more rounds.
_BANDED_ROUNDS = (500, 1000, 2000)
_BLT_ROUNDS = (500, 1000, 2000, 5000, 20_000, 100_000)


def figure2() -> Drawn:
    """RMS loss of BLT, BandMF and TreeAgg-Full for two and five participations."""
    drawn = _by_participations('rms')
    separations = [*range(50, 390, 20), 389, 400, *range(701, 1000, 10), 1000]
    pair = {'BLT': _blts()[2, 'rms'], 'BandMF': banded(_ROUNDS, 400)}
    ratio = _ratio(_losses(pair, _schemas(separations, 2)), 'BLT', 'BandMF')
    measured = {
        '002/fig2/below': {'loss_ratio': max(ratio[b] for b in separations if b < 390)},
        '002/fig2/above': {'loss_ratio': max(ratio[b] for b in separations if b > 700)},
    }
    measured['002/fig2/buffers'] = {
        f'separation_{buffers}': _crossing(blt(_ROUNDS, _MADE_FOR, 2, buffers, 'rms'))
        for buffers in (2, 4)
    }
    measured['002/fig2/tree'] = {'loss_ratio': _against_tree('rms')}
    return Drawn(drawn, 2, measured)


def figure12() -> Drawn:
    """The mechanisms of figure 2, compared on max loss."""
    blts = _blts()
    other = {'rms': 'max', 'max': 'rms'}
    ratios = [
        blts[k, kind].loss(schema, kind) / blts[k, other[kind]].loss(schema, kind)
        for k in (2, 5)
        for kind in ('rms', 'max')
        for schema in [Participation(_ROUNDS, _MADE_FOR, k)]
    ]
    measured = {
        '002/fig12/metric': {'loss_ratio': max(ratios)},
        '002/fig12/tree': {'loss_ratio': _against_tree('max')},
    }
    return Drawn(_by_participations('max'), 2, measured)


def figure3() -> Drawn:
    """BandMF and BLT for three participations at separations from 10 to 999."""
    separations = sorted(
        {*np.geomspace(10, 999, 31).round().astype(int).tolist(), 200, 400, 667, 800, 990}
    )

    everything = _bands_and_blts(lambda bands: Participation(_ROUNDS, bands, 3).count)
    at = _losses(everything, _schemas(separations, 3))
    ratios = {bands: _ratio(at, *_of_bands(bands)) for bands in _BANDS}
    measured = {
        '002/fig3/near-bands': {f'loss_ratio_{bands}': ratios[bands][bands] for bands in _BANDS},
        '002/fig3/small-separation': {f'loss_ratio_{bands}': ratios[bands][10] for bands in _BANDS},
        '002/fig3/last-separation': {f'loss_ratio_{bands}': ratios[bands][999] for bands in _BANDS},
        '002/fig3/columns': {'columns': _columns_of(Participation(_ROUNDS, 999, 3), 3)},
    }
    return Drawn(_relative_and_absolute(at, 'BLT, b = 400'), 2, measured)


def figure4() -> Drawn:
    """BandMF and BLT for the most participations that fit; separations divide the rounds."""
    separations = [b for b in range(10, _ROUNDS + 1) if _ROUNDS % b == 0]
    everything = _bands_and_blts(lambda bands: _ROUNDS // bands)
    at = _losses(everything, {b: Participation(_ROUNDS, b, _ROUNDS // b) for b in separations})
    measured = {}
    for bands in _BANDS:
        ratio = _ratio(at, *_of_bands(bands))
        within = [ratio[b] for b in separations if b <= bands]
        measured[f'002/fig4/bands-{bands}'] = {
            'mean_loss_ratio': float(np.mean(within)),
            'most_loss_ratio': max(within),
        }
        measured[f'002/fig4/degrades-{bands}'] = {
            'growth_of_ratio': ratio[_ROUNDS] / ratio[bands if bands in ratio else 1000]
        }
    return Drawn(_relative_and_absolute(at, 'BLT, b = 400'), 2, measured)


def figure6() -> Drawn:
    """BLT against BandToep, BandFHU and BandMF, made for separation 400, five participations."""
    schema = Participation(_ROUNDS, _MADE_FOR, 5)
    own = f'BLT, {_BUFFERS} buffers'
    everything = {
        own: blt(_ROUNDS, _MADE_FOR, 5, _BUFFERS, 'rms'),
        'BandToep, 400 bands': Design(mechanisms.optimize_banded_toeplitz(schema, _MADE_FOR)),
        'BandFHU, 400 bands': Design(mechanisms.BandedToeplitz.fichtenberger(_ROUNDS, _MADE_FOR)),
        'BandMF, 400 bands': banded(_ROUNDS, _MADE_FOR),
    }
    separations = sorted({*np.geomspace(50, 499, 31).round().astype(int).tolist(), 390, 399, 400})
    at = _losses(everything, _schemas(separations, 5))
    measured = {}
    for word, name in (
        ('toeplitz', 'BandToep, 400 bands'),
        ('fichtenberger', 'BandFHU, 400 bands'),
    ):
        ratios = list(_ratio(at, name, own).values())
        measured[f'002/fig6/{word}'] = {
            'least_loss_ratio': min(ratios),
            'mean_loss_ratio': float(np.mean(ratios)),
        }
    panel = _panel(_relative(at, own), '5 participations, 2,000 rounds', f'RMS loss / {own}')
    return Drawn([panel], 1, measured)


def figure1() -> Drawn:
    """Seconds to optimise BandMF and BLTs on this machine, without kept results."""

    def banded(rounds: int) -> None:
        mechanisms.optimize_banded(Participation(rounds, _MADE_FOR), _MADE_FOR)

    def blt(loss: str) -> Callable[[int], None]:
        def optimise(rounds: int) -> None:
            mechanisms.optimize_blt(Participation(rounds, _MADE_FOR), _BUFFERS, loss)

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
        made[f'BandMF, n = {rounds:,}'] = banded(rounds, _MADE_FOR)
        for buffers in (2, 5):
            made[f'BLT, n = {rounds:,}, {buffers} buffers'] = _extended_blt(rounds, buffers)
    made['single'] = _extended_blt(_ROUNDS, 1)
    at = _losses(made, {n: Participation(n, _MADE_FOR) for n in _STEPS})
    own = f'BLT, n = {_ROUNDS:,}, 5 buffers'
    single = _ratio(at, 'single', own)
    del at['single']  # It is measured, and not drawn.
    measured = {
        '002/fig5/two-buffers': {
            f'loss_ratio_{rounds}': max(
                _ratio(
                    at, f'BLT, n = {rounds:,}, 2 buffers', f'BLT, n = {rounds:,}, 5 buffers'
                ).values()
            )
            for rounds in (800, _ROUNDS)
        },
        '002/fig5/one-buffer': {'least_loss_ratio': min(single.values())},
        '002/fig5/memory': {'ratio': _MADE_FOR / _extended_blt(_ROUNDS, 2).mechanism.num_buffers()},
    }
    panels = [
        _panel(_relative(at, own), 'relative', f'RMS loss / {own}', 'rounds executed'),
        _panel(at, 'absolute', 'RMS loss', 'rounds executed'),
    ]
    return Drawn(panels, 2, measured)


def _blts() -> dict[tuple[int, str], Design]:
    """The BLTs of figures 2 and 12, by participations and loss."""
    return {
        (k, loss): blt(_ROUNDS, _MADE_FOR, k, _BUFFERS, loss)
        for k in (2, 5)
        for loss in ('rms', 'max')
    }


def _by_participations(kind: str) -> list[Panel]:
    """Losses for two and five participations, and relative to the BLT for exactly that."""
    words = {'rms': 'mean', 'max': 'max'}
    blts = {f'BLT (k = {k}, {words[loss]})': design for (k, loss), design in _blts().items()}
    bands = {f'BandMF, {bands} bands': banded(_ROUNDS, bands) for bands in _BANDS}
    everything = {**blts, **bands, 'TreeAgg-Full': full_honaker_tree(_ROUNDS)}
    absolute, relative = [], []
    for k in (2, 5):
        at = _losses(everything, _schemas(_separations(k), k), kind)
        own = f'BLT (k = {k}, {words[kind]})'
        title = f'{k} participations, 2,000 rounds'
        absolute.append(_panel(at, title, _LOSS_NAMES[kind]))
        relative.append(
            _panel(_relative(at, own), f'{title}, relative', f'{_LOSS_NAMES[kind]} / {own}')
        )
    return [*absolute, *relative]


def _separations(participations: int) -> list[int]:
    """Separations that admit `participations`, closer around 400."""
    most = 1000 if participations == 2 else _MOST_OF_FIVE
    values = {*range(50, most + 1, 50), 375, 385, 389, 395, 399, 410, most}
    return sorted(b for b in values if b <= most)


def _bands_and_blts(participations: Callable[[int], int]) -> dict[str, Design]:
    """BandMF and, for each number of bands, the BLT for that separation."""
    bands_first = {_of_bands(bands)[0]: banded(_ROUNDS, bands) for bands in _BANDS}
    return bands_first | {
        _of_bands(bands)[1]: blt(_ROUNDS, bands, participations(bands), _BUFFERS, 'rms')
        for bands in _BANDS
    }


def _of_bands(bands: int) -> tuple[str, str]:
    """Names of BandMF and of the BLT for the separation of as many rounds."""
    return f'BandMF, {bands} bands', f'BLT, b = {bands}'


def _schemas(separations: Sequence[int], participations: int) -> dict[int, Participation]:
    return {b: Participation(_ROUNDS, b, participations) for b in separations}


def _losses(
    designs: Mapping[str, Design], schemas: Mapping[int, Participation], kind: str = 'rms'
) -> dict[str, dict[int, float]]:
    """Losses by name of the design and key of the schema, if the design has its rounds."""
    return {
        name: {
            at: design.loss(schema, kind)
            for at, schema in schemas.items()
            if schema.rounds <= design.mechanism.rounds
        }
        for name, design in designs.items()
    }


def _ratio(at: Mapping[str, Mapping[int, float]], name: str, own: str) -> dict[int, float]:
    """Losses of one design over those of another, `own`."""
    return {b: loss / at[own][b] for b, loss in at[name].items()}


def _relative(at: Mapping[str, Mapping[int, float]], own: str) -> dict[str, dict[int, float]]:
    return {name: _ratio(at, name, own) for name in at}


def _relative_and_absolute(at: Mapping[str, Mapping[int, float]], own: str) -> list[Panel]:
    return [
        _panel(_relative(at, own), 'relative', f'RMS loss / {own}', x_log=True),
        _panel(at, 'absolute', 'RMS loss', x_log=True),
    ]


def _panel(
    at: Mapping[str, Mapping[int, float]],
    title: str,
    y_label: str,
    x_label: str = _SEPARATION,
    *,
    x_log: bool = False,
) -> Panel:
    """A panel of losses. BLTs are solid, BandMF is dashed, others are dotted."""
    lines = []
    for color, (name, line) in enumerate(at.items()):
        dash = 0 if name.startswith('BLT') else 1 if name.startswith('BandMF') else 2
        lines.append(Line(name, list(line), list(line.values()), color, dash))
    return Panel(title, x_label, y_label, lines, x_log=x_log)


def _crossing(design: Design) -> float:
    """Least separation above 400 from which on a BLT beats BandMF with 400 bands (k = 2)."""
    pair = {'BLT': design, 'BandMF': banded(_ROUNDS, _MADE_FOR)}
    at = _losses(pair, _schemas(range(410, 1000, 5), 2))
    return float(max(b for b, ratio in _ratio(at, 'BLT', 'BandMF').items() if ratio >= 1) + 5)


def _against_tree(kind: str) -> float:
    """Largest loss of a BLT over that of TreeAgg-Full, over all separations of the figure."""
    largest = 0.0
    for (k, _), design in _blts().items():
        pair = {'BLT': design, 'TreeAgg-Full': full_honaker_tree(_ROUNDS)}
        at = _losses(pair, _schemas(_separations(k), k), kind)
        largest = max(largest, *_ratio(at, 'BLT', 'TreeAgg-Full').values())
    return largest


def _columns_of(schema: Participation, participations: int) -> float:
    """Number of rounds in which a client with `participations` can take part."""
    slack = schema.rounds - 1 - (participations - 1) * schema.min_separation
    return float(participations * (slack + 1))


def _extended_blt(rounds: int, buffers: int) -> Design:
    """The BLT that is made for `rounds`, extended to all rounds."""
    made = blt(rounds, _MADE_FOR, None, buffers, 'rms').mechanism
    return Design(made.with_rounds(_ROUNDS))


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
