"""Draws the figure of docs/concepts/robust_designs.md, and writes its points as a JSON file.

`robust_regret`: how much more a BLT loses than the one optimised for the separation that the run
turns out to have, for BLTs made for one separation, and for a range of separations.

Run: python -m scripts.robust_figures    (some minutes)
     python -m scripts.robust_figures --draw    (draws again from the JSON file)
"""

import argparse
import json
import pathlib
from typing import Any

import matplotlib

matplotlib.use('Agg')
import matplotlib.pyplot as plt
import numpy as np

from dpfl import Participation, mechanisms

FOLDER = pathlib.Path(__file__).parents[1] / 'docs' / 'figures'
POINTS = FOLDER / 'robust_regret.json'

# (rounds, planned separation, max participations or None for all that fit, packaged BLT with the
# number of buffers)
PLANS = (
    (2052, 342, 6, 'stackoverflow_blt{}'),
    (2052, 342, None, 'stackoverflow_blt{}'),
    (2000, 100, 10, 'blt_b100'),
    (4000, 400, 5, 'blt_b400'),
    (4000, 1000, 2, 'blt_b1000'),
)
BUFFERS = (2, 3, 4, 5, 6)
_DRAWN_BUFFERS = 4
_MOST_PACKAGED = 5
# Separations for which a robust BLT is optimised, and those at which it is measured.
_DESIGNED, _MEASURED = 9, 17

_STYLES = {
    'one separation': ('#0072B2', '-'),
    'packaged': ('#666666', '--'),
    'expected': ('#009E73', '-'),
    'worst': ('#D55E00', '-'),
}


def schemas(
    rounds: int, planned: int, most: int | None, octaves: float, count: int
) -> list[Participation]:
    """Schemas whose separations are spread around the planned one, by factors up to 2^octaves."""
    factors = 2.0 ** np.linspace(-octaves, octaves, count)
    return [Participation(rounds, round(planned * factor), most) for factor in factors]


def curves(
    plan: tuple[int, int, int | None, str], buffers: int, loss: str, octaves: float = 2.0
) -> dict[str, Any]:
    """Relative losses of the designs for one plan at the measured separations."""
    rounds, planned, most, packaged = plan
    designed = schemas(rounds, planned, most, octaves, _DESIGNED)
    measured = schemas(rounds, planned, most, octaves, _MEASURED)
    designs = {
        'one separation': mechanisms.optimize_blt(
            Participation(rounds, planned, most), buffers, loss
        ),
        'packaged': mechanisms.load(packaged.format(min(buffers, _MOST_PACKAGED))).with_rounds(
            rounds
        ),
        'expected': mechanisms.optimize_robust_blt(designed, None, buffers, loss, 'expected'),
        'worst': mechanisms.optimize_robust_blt(designed, None, buffers, loss, 'worst'),
    }
    return {
        'rounds': rounds,
        'planned': planned,
        'most': most,
        'buffers': buffers,
        'loss': loss,
        'octaves': octaves,
        'separations': [schema.min_separation for schema in measured],
        'relative': {
            name: np.round(mechanisms.relative_losses(blt, measured, buffers, loss), 5).tolist()
            for name, blt in designs.items()
        },
    }


def all_curves() -> list[dict[str, Any]]:
    """Every curve of the page."""
    found = [curves(plan, _DRAWN_BUFFERS, loss) for plan in PLANS for loss in ('max', 'rms')]
    found += [curves(PLANS[0], d, 'max') for d in BUFFERS if d != _DRAWN_BUFFERS]
    found += [curves(plan, _DRAWN_BUFFERS, 'max', 1.0) for plan in PLANS]
    return found


def table(found: list[dict[str, Any]]) -> str:
    """Mean and largest loss above the optimum in percent, a line for each curve, as Markdown."""
    lines = ['| rounds, planned b, k | range | buffers | loss | ' + ' | '.join(_STYLES) + ' |']
    lines.append('|' + '---|' * (4 + len(_STYLES)))
    for one in found:
        most = 'all' if one['most'] is None else one['most']
        cells = [f'{one["rounds"]}, {one["planned"]}, {most}', f'{2 ** one["octaves"]:g}']
        cells += [str(one['buffers']), one['loss']]
        for name in _STYLES:
            above = 100 * (np.array(one['relative'][name]) - 1)
            cells.append(f'{above.mean():.1f} / {above.max():.1f}')
        lines.append('| ' + ' | '.join(cells) + ' |')
    return '\n'.join(lines)


def draw(found: list[dict[str, Any]]) -> None:
    """Draws `robust_regret.png`: the first two plans, max loss, over the whole range."""
    plt.rcParams.update({'font.size': 8, 'axes.spines.top': False, 'axes.spines.right': False})
    figure, axes = plt.subplots(2, 1, figsize=(4.2, 5.6), layout='constrained')
    shown = [
        one
        for one in found
        if (one['rounds'], one['planned']) == (2052, 342)
        and (one['buffers'], one['loss'], one['octaves']) == (_DRAWN_BUFFERS, 'max', 2.0)
    ]
    for axis, one in zip(axes, shown, strict=True):
        for name, (color, line) in _STYLES.items():
            above = 100 * (np.array(one['relative'][name]) - 1)
            axis.plot(one['separations'], above, line, color=color, linewidth=1.4, label=name)
        axis.axvline(one['planned'], color='#bbbbbb', linewidth=0.8)
        axis.set_xscale('log')
        ticks = one['separations'][::4]
        axis.set_xticks(ticks, [str(tick) for tick in ticks])
        axis.minorticks_off()
        axis.set_ylim(0, 10)
        axis.grid(axis='y', color='#dddddd', linewidth=0.6)
        most = 'all that fit' if one['most'] is None else f'at most {one["most"]}'
        axis.set_title(
            f'Max loss above the optimum in %: {one["rounds"]} rounds, {most}',
            fontsize=8.5,
            loc='left',
        )
        axis.set_xlabel('separation that the run has')
    axes[0].legend(frameon=False, fontsize=8)
    figure.savefig(FOLDER / 'robust_regret.png', dpi=200)


def main() -> None:
    """Computes the points, unless --draw is given, draws them, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--draw', action='store_true', help='Draw from the JSON file only.')
    if not parser.parse_args().draw:
        POINTS.write_text(json.dumps(all_curves(), indent=1) + '\n')
    found = json.loads(POINTS.read_text())
    draw(found)
    print(table(found))


if __name__ == '__main__':
    main()
